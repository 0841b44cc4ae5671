import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FileSource, readManifests } from "./files.ts";
import { readBounded } from "./files_read.ts";
import {
  DEADLINE_MS,
  RecordedLog,
  RecordingSink,
  service,
  withSource,
} from "../../../tests/support/file_source.ts";

Deno.test("the first read delivers everything and says so once per kind", async () => {
  const slice =
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n  labels:\n" +
    "    kubernetes.io/service-name: web\naddressType: IPv4\nendpoints:\n  - addresses: [10.0.0.1]\n";
  const node = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}';
  const files = {
    "b.yaml": service("web", 80) + service("api", 81),
    "a.yml": slice,
    "node.json": node,
    "notes.txt": "not: [a manifest",
    ".hidden.yaml": "not: [a manifest",
    "empty.yaml": "# nothing\n---\n",
  };
  await withSource(files, async ({ sink }) => {
    await Promise.resolve();
    assertEquals([...sink.objects.keys()].sort(), [
      "EndpointSlice default/web-1",
      "Node node-a",
      "Service default/api",
      "Service default/web",
    ]);
    assertEquals(sink.synced, ["services", "endpointslices", "nodes"]);
    assertEquals([sink.batches, sink.rejections], [1, []]);
  });
});

Deno.test("edits in place, new files and deletions arrive", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink, write }) => {
    await write("a.yaml", service("web", 81));
    await sink.untilPorts("web:81");
    await write("b.yaml", service("api", 90));
    await sink.untilPorts("api:90", "web:81");
    await Deno.remove(`${folder}/a.yaml`);
    await sink.untilPorts("api:90");
  });
});

Deno.test("an edit of the same length within the same millisecond is not missed", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink, write }) => {
    const before = await Deno.stat(`${folder}/a.yaml`);
    await write("a.yaml", service("web", 81));
    await Deno.utime(`${folder}/a.yaml`, before.atime ?? 0, before.mtime ?? 0);
    await sink.untilPorts("web:81");
  });
});

Deno.test("an atomic rename into place arrives as one batch", async () => {
  const before = service("a", 1) + service("b", 1) + service("c", 1);
  await withSource({ "all.yaml": before }, async ({ folder, sink, write }) => {
    const { batches } = sink;
    await write("all.yaml.tmp", service("a", 2) + service("b", 1) + service("d", 1));
    await Deno.rename(`${folder}/all.yaml.tmp`, `${folder}/all.yaml`);
    await sink.untilPorts("a:2", "b:1", "d:1");
    assertEquals(sink.batches, batches + 1);
  });
});

/** What kubelet does for a ConfigMap: a folder per version, `..data` pointing at it, file links through `..data`. */
async function publish(folder: string, version: string, files: Record<string, string>): Promise<void> {
  await Deno.mkdir(`${folder}/..${version}`);
  for (const [name, text] of Object.entries(files)) {
    await Deno.writeTextFile(`${folder}/..${version}/${name}`, text);
  }
  const old = await Deno.readLink(`${folder}/..data`).catch(() => undefined);
  await Deno.symlink(`..${version}`, `${folder}/..data_tmp`);
  await Deno.rename(`${folder}/..data_tmp`, `${folder}/..data`);
  for (const name of Object.keys(files)) {
    await Deno.symlink(`..data/${name}`, `${folder}/${name}`).catch((error) => {
      if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    });
  }
  for await (const { name } of Deno.readDir(folder)) {
    if (!name.startsWith(".") && !(name in files)) await Deno.remove(`${folder}/${name}`);
  }
  if (old !== undefined) await Deno.remove(`${folder}/${old}`, { recursive: true });
}

for (const paths of [["."], ["a.yaml", "b.yaml"]]) {
  Deno.test(`a ConfigMap's link swap arrives, good, bad and good again (paths ${paths})`, async () => {
    const folder = await Deno.makeTempDir({ prefix: "kproxy-configmap-" });
    const abort = new AbortController();
    const sink = new RecordingSink();
    try {
      await publish(folder, "v1", { "a.yaml": service("a", 1), "b.yaml": service("b", 1) });
      const source = new FileSource({
        paths: paths.map((path) => path === "." ? folder : `${folder}/${path}`),
        log: new RecordedLog(),
        pollMs: 60_000,
      });
      const running = source.run(sink, abort.signal);
      try {
        await sink.untilPorts("a:1", "b:1");
        await publish(folder, "v2", { "a.yaml": service("a", 2), "b.yaml": service("b", 1) });
        await sink.untilPorts("a:2", "b:1");
        await publish(folder, "v3", { "a.yaml": "kind: [", "b.yaml": service("b", 3) });
        await sink.untilPorts("a:2", "b:3");
        await sink.untilRejected("cannot be parsed");
        await publish(folder, "v4", { "a.yaml": service("a", 4), "b.yaml": service("b", 3) });
        await sink.untilPorts("a:4", "b:3");
        await publish(folder, "v5", { "a.yaml": service("a", 4) });
        await sink.untilPorts("a:4");
      } finally {
        abort.abort();
        await running;
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

Deno.test("a file that no longer parses keeps its last good content, is reported once with its line, and recovers", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink, write }) => {
    await write("a.yaml", service("web", 81) + "---\nkind: Service\n  bad: indent\n");
    const rejection = await sink.untilRejected("cannot be parsed");
    assertEquals(rejection.where, `${folder}/a.yaml:11 (document 2)`);
    assertStringIncludes(rejection.message, "last good");
    assertEquals(sink.ports(), ["web:80"]);
    await write("b.yaml", service("other", 1));
    await sink.untilPorts("other:1", "web:80");
    assertEquals(sink.rejections.length, 1);
    await write("a.yaml", service("web", 82));
    await sink.untilPorts("other:1", "web:82");
  });
});

Deno.test("a refused object keeps its last good version while the rest of its file changes", async () => {
  await withSource(
    { "a.yaml": service("web", 80) + service("api", 90) },
    async ({ sink, write, refused }) => {
      await write("a.yaml", service("web", 70000) + service("api", 91));
      await sink.untilPorts("api:91", "web:80");
      const rejection = await sink.untilRejected("spec.ports[0].port: must be 1..65535, found 70000");
      assertEquals(rejection.object, "Service default/web");
      await write("a.yaml", service("web", 70000) + service("api", 92));
      await sink.untilPorts("api:92", "web:80");
      assertEquals(sink.rejections.length, 1, "said twice");
      assertEquals(refused(), ["Service default/web"]);
      await write("a.yaml", service("web", 82) + service("api", 92));
      await sink.untilPorts("api:92", "web:82");
      assertEquals(refused(), [], "mended");
      await write("a.yaml", service("api", 92));
      await sink.untilPorts("api:92");
    },
  );
});

Deno.test("a file that is broken from the start does not keep the others from going on", async () => {
  await withSource({ "a.yaml": "kind: [", "b.yaml": service("web", 80) }, async ({ sink, write }) => {
    assertEquals(sink.ports(), ["web:80"]);
    assertEquals(sink.rejections.length, 1);
    assert(!sink.rejections[0]?.message.includes("last good"));
    await write("a.yaml", service("api", 1));
    await sink.untilPorts("api:1", "web:80");
  });
});

Deno.test("objects of kinds that are not read are logged once for each kind and file, and not rejected", async () => {
  const object = (kind: string, name: string): string =>
    `---\napiVersion: apps/v1\nkind: ${kind}\nmetadata:\n  name: ${name}\n`;
  await withSource({
    "a.yaml": object("Deployment", "a") + service("web", 80) + object("Deployment", "b"),
    "b.yaml": object("Deployment", "c"),
  }, async ({ sink, log, write, folder }) => {
    const told = (): string[] => log.lines.filter((line) => line.includes("kind that is not read")).sort();
    const line = (file: string, kind: string, count: number): string =>
      `I Manifest objects of a kind that is not read ${
        JSON.stringify({ file: `${folder}/${file}`, kind, count })
      }`;
    const first = [line("a.yaml", "Deployment", 2), line("b.yaml", "Deployment", 1)];
    assertEquals(told(), first);
    await write("a.yaml", object("Deployment", "a") + service("web", 81) + object("StatefulSet", "c"));
    await sink.untilPorts("web:81");
    assertEquals(told(), [first[0], line("a.yaml", "StatefulSet", 1), first[1]]);
    assertEquals(sink.rejections, []);
  });
});

Deno.test("of two files with the same object the first counts, which is said once, until it goes", async () => {
  const files = { "a.yaml": service("web", 1), "b.yaml": service("web", 2) };
  await withSource(files, async ({ folder, sink, write, refused }) => {
    assertEquals(sink.ports(), ["web:1"]);
    const rejection = await sink.untilRejected("already defined");
    assertEquals(refused(), ["Service default/web"]);
    assertEquals(rejection.where, `${folder}/b.yaml:2 (document 1)`);
    assertStringIncludes(rejection.message, `${folder}/a.yaml:2`);
    await write("b.yaml", service("web", 3));
    await write("c.yaml", service("api", 1));
    await sink.untilPorts("api:1", "web:1");
    assertEquals(sink.rejections.length, 1);
    await Deno.remove(`${folder}/a.yaml`);
    await sink.untilPorts("api:1", "web:3");
    assertEquals(refused(), []);
    await write("a.yaml", service("web", 4));
    await sink.untilPorts("api:1", "web:4");
    assertEquals(sink.rejections.length, 2);
    await Deno.remove(`${folder}/b.yaml`);
    await write("c.yaml", service("api", 2));
    await sink.untilPorts("api:2", "web:4");
    await write("b.yaml", service("web", 5));
    await sink.until("the new conflict is said", () => sink.rejections.length === 3);
  });
});

Deno.test("what kube-proxy's selectors leave out is left out, also from one edit to the next", async () => {
  const foreign = "  labels:\n    service.kubernetes.io/service-proxy-name: other\n";
  await withSource({ "a.yaml": service("web", 80) }, async ({ sink, write }) => {
    await write("a.yaml", service("web", 80, foreign));
    await sink.untilPorts();
    await write("a.yaml", service("web", 80));
    await sink.untilPorts("web:80");
    await write("a.yaml", service("web", 80).replace("10.96.0.1", "None"));
    await sink.untilPorts();
  });
});

Deno.test("comments, order and rewriting change nothing: no event", async () => {
  await withSource({ "a.yaml": service("web", 80) + service("api", 90) }, async ({ sink, write }) => {
    const { batches } = sink;
    await write("a.yaml", "# reordered\n" + service("api", 90) + service("web", 80));
    await write("z.yaml", service("last", 1));
    await sink.untilPorts("api:90", "last:1", "web:80");
    assertEquals(sink.batches, batches + 1);
  });
});

Deno.test("a file that is emptied and filled again loses nothing; one that stays empty does", async () => {
  const files = { "a.yaml": service("web", 80) };
  await withSource(files, async ({ sink, write }) => {
    const { batches } = sink;
    await write("a.yaml", "");
    await new Promise((resolve) => setTimeout(resolve, 150));
    await write("a.yaml", service("web", 81));
    await sink.untilPorts("web:81");
    assertEquals(sink.batches, batches + 1, "the Service was gone in between");
    await write("a.yaml", "kind: [");
    await sink.untilRejected("cannot be parsed");
    await write("a.yaml", "");
    await new Promise((resolve) => setTimeout(resolve, 150));
    assertEquals(sink.ports(), ["web:81"]);
    await write("a.yaml", service("web", 82));
    await sink.untilPorts("web:82");
  }, { emptyGraceMs: 60_000 });
  await withSource(files, async ({ sink, write }) => {
    await write("a.yaml", "");
    await sink.untilPorts();
  }, { emptyGraceMs: 200 });
});

Deno.test("a folder that vanishes keeps its objects, says so, and is followed again when it is back", async () => {
  const options = { pollMs: 50 };
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink, log, write }) => {
    await Deno.rename(folder, `${folder}.away`);
    try {
      const deadline = performance.now() + DEADLINE_MS;
      while (!log.lines.some((line) => line.startsWith("W Manifest folder is gone"))) {
        assert(performance.now() < deadline, log.lines.join("\n"));
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      assertEquals(sink.ports(), ["web:80"]);
    } finally {
      await Deno.mkdir(folder);
      await Deno.remove(`${folder}.away`, { recursive: true });
    }
    await write("a.yaml", service("web", 81));
    await sink.untilPorts("web:81");
  }, options);
});

Deno.test("polling alone finds what no event told", async () => {
  // The file's own folder is watched, not the one that its link leads to.
  const elsewhere = await Deno.makeTempDir({ prefix: "kproxy-elsewhere-" });
  try {
    await Deno.writeTextFile(`${elsewhere}/a.yaml`, service("web", 80));
    await withSource({}, async ({ folder, sink }) => {
      await Deno.symlink(`${elsewhere}/a.yaml`, `${folder}/a.yaml`);
      await sink.untilPorts("web:80");
      await Deno.writeTextFile(`${elsewhere}/a.yaml`, service("web", 8081));
      await sink.untilPorts("web:8081");
    }, { pollMs: 50 });
  } finally {
    await Deno.remove(elsewhere, { recursive: true });
  }
});

Deno.test("a deleted file given by its path takes its objects along, and may come back", async () => {
  await withSource(
    { "a.yaml": service("web", 80) },
    async ({ folder, sink, write }) => {
      await Deno.remove(`${folder}/a.yaml`);
      await sink.untilPorts();
      await write("a.yaml", service("web", 81));
      await sink.untilPorts("web:81");
    },
    {},
    ["a.yaml"],
  );
});

Deno.test("a file reached over two paths is read once", async () => {
  await withSource(
    { "a.yaml": service("web", 80) },
    async ({ sink }) => {
      await Promise.resolve();
      assertEquals([sink.ports(), sink.rejections], [["web:80"], []]);
    },
    {},
    ["a.yaml", "."],
  );
});

Deno.test("text that is not UTF-8 is refused and the former content stays", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink }) => {
    await Deno.writeFile(`${folder}/a.yaml`, new Uint8Array([0x61, 0x3a, 0x20, 0xe9, 0x0a]));
    await sink.untilRejected("cannot be read: is not UTF-8 text");
    assertEquals(sink.ports(), ["web:80"]);
  });
});

Deno.test("standard input is read once and counts by its place among the paths", async () => {
  const stdin = new Blob([service("web", 1) + service("piped", 1)]).stream();
  await withSource(
    { "a.yaml": service("web", 2) },
    async ({ sink, write }) => {
      assertEquals(sink.ports(), ["piped:1", "web:1"]);
      assertStringIncludes((await sink.untilRejected("already defined")).message, "stdin:2 (document 1)");
      await write("b.yaml", service("api", 1));
      await sink.untilPorts("api:1", "piped:1", "web:1");
    },
    { stdin },
    ["-", "."],
  );
});

Deno.test("aborting while standard input is open ends the run", async () => {
  const stdin = new ReadableStream<Uint8Array>();
  const abort = new AbortController();
  const source = new FileSource({ paths: ["-"], log: new RecordedLog(), stdin });
  const running = source.run(new RecordingSink(), abort.signal);
  setTimeout(() => abort.abort(), 20);
  await running;
});

Deno.test("a path that does not exist at the start is an error that names it", async () => {
  const source = new FileSource({ paths: ["/nonexistent/manifests"], log: new RecordedLog() });
  await assertRejects(
    () => source.run(new RecordingSink(), AbortSignal.timeout(1000)),
    Deno.errors.NotFound,
    'no such file or folder: "/nonexistent/manifests"',
  );
});

/** Makes an entry of a folder that is no manifest. */
type MakeEntry = (path: string) => Promise<unknown>;

const run = (...argv: string[]): MakeEntry => async (path) => {
  const [program = "", ...args] = argv;
  const { success } = await new Deno.Command(program, { args: [...args, path] }).output();
  assert(success, argv.join(" "));
};
const linkTo = (target: string): MakeEntry => (path) => Deno.symlink(target, path);

const BAD_ENTRIES: readonly [name: string, make: MakeEntry, problem: string][] = [
  ["a.yaml", run("mkfifo"), "is not a file, but a FIFO"],
  ["a.json", linkTo("/dev/zero"), "is not a file, but a device"],
  ["a.yml", linkTo("a.yml"), "is a link that leads to itself"],
  ["a.yaml", linkTo("."), "is not a file, but a folder"],
  [
    "a\n.yaml",
    (path) => Deno.writeTextFile(path, service("hidden", 1)),
    "has a control character in its name",
  ],
  ["a.yaml", run("truncate", "-s", "129M"), "is larger than 128 MiB"],
];

for (const [name, make, problem] of BAD_ENTRIES) {
  Deno.test(`an entry that ${problem} is refused by its name, others go on (${JSON.stringify(name)})`, async () => {
    // There before the start, and made while others are served.
    const folder = await Deno.makeTempDir({ prefix: "kproxy-files-" });
    try {
      await make(`${folder}/${name}`);
      await Deno.writeTextFile(`${folder}/b.yaml`, service("web", 80));
      const { objects, problems } = await readManifests([folder]);
      assertEquals(objects.length, 1);
      assertEquals(problems, [{ where: `${folder}/${name}`, object: `${folder}/${name}`, message: problem }]);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
    await withSource({ "b.yaml": service("web", 80) }, async ({ folder, sink, write }) => {
      await make(`${folder}/${name}`);
      await sink.untilRejected(`${folder}/${name}: ${problem}`);
      await write("b.yaml", service("web", 81));
      await sink.untilPorts("web:81");
      assertEquals(sink.rejections.length, 1, "said once");
      await Deno.remove(`${folder}/${name}`);
      if (name.includes("\n")) return;
      await write(
        name,
        name.endsWith(".json")
          ? '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}'
          : service("api", 82),
      );
      await sink.until("the entry has become a file", () => sink.objects.size === 2);
    }, { pollMs: 200 });
  });
}

Deno.test("a file that turns into something else keeps what it held in force, and says so", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink }) => {
    await Deno.remove(`${folder}/a.yaml`);
    await run("mkfifo")(`${folder}/b.tmp`);
    await Deno.rename(`${folder}/b.tmp`, `${folder}/a.yaml`);
    await sink.untilRejected("is not a file, but a FIFO");
  }, { pollMs: 200 });
});

Deno.test("a FIFO, a device and a looping link given by their paths are errors that name them", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-files-" });
  try {
    await run("mkfifo")(`${folder}/fifo`);
    await Deno.symlink("loop", `${folder}/loop`);
    const cases = [
      [`${folder}/fifo`, "neither a file nor a folder, but a FIFO"],
      ["/dev/zero", "neither a file nor a folder, but a device"],
      [`${folder}/loop`, "is a link that leads to itself"],
    ] as const;
    for (const [path, problem] of cases) {
      await assertRejects(
        () => readManifests([path]),
        TypeError,
        `Cannot read manifests: ${problem}: "${path}"`,
      );
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a file that became endless after it was looked at is not read to its end, a FIFO not at all", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-files-" });
  try {
    await assertRejects(() => readBounded("/dev/zero"), TypeError, "is not a file");
    await Deno.writeTextFile(`${folder}/long`, "x".repeat(1_000));
    await assertRejects(() => readBounded(`${folder}/long`, 999), TypeError, "is larger than");
    assertEquals((await readBounded(`${folder}/long`, 1_000)).length, 1_000);
    await run("mkfifo")(`${folder}/fifo`);
    // To open it would wait for a writer.
    await assertRejects(() => readBounded(`${folder}/fifo`, 10, 50), TypeError, "is not a file");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

const HOSTILE: readonly [name: string, text: string, reason: string][] = [
  [
    "a-deep.yaml",
    "a: " + "[".repeat(100_000),
    "a-deep.yaml:1 (document 1): nested more than 200 levels deep",
  ],
  [
    "b-dashes.yaml",
    "---\na: b\n---\n" + "- ".repeat(1_000_000),
    "b-dashes.yaml:4 (document 2): nested more than 200",
  ],
  ["c-many.yaml", "- a\n".repeat(400_000), "c-many.yaml:44000 (document 1): more than 220000 tokens"],
  [
    "d-long.yaml",
    "a".repeat(20_000_000),
    "d-long.yaml:1 (document 1): a YAML document may have 3145728 characters",
  ],
  ["e-wide.json", `[${"{},".repeat(5_000_000)}{}]`, "e-wide.json:1 (document 1): more than 5000000 values"],
];

Deno.test("a text that would cost the parser minutes and gigabytes is refused at once; others are served", async () => {
  const startMs = performance.now();
  await withSource({ "z.yaml": service("web", 80) }, async ({ sink, write }) => {
    for (const [name, text] of HOSTILE) await write(name, text);
    for (const [, , reason] of HOSTILE) {
      const [place = "", message = ""] = reason.split(": ");
      await sink.until(
        reason,
        () =>
          sink.rejections.some((found) =>
            found.where.endsWith(`/${place}`) && found.message.startsWith(`cannot be parsed: ${message}`)
          ),
      );
    }
    await write("z.yaml", service("web", 81));
    await sink.untilPorts("web:81");
  });
  // Two seconds of work; the parser's own would be minutes, or the end by a lack of memory.
  assert(performance.now() - startMs < 30_000);
});

Deno.test("while a long text is read everything else goes on", async () => {
  const items = Array.from({ length: 3_000 }, (_, index) => service(`s${index}`, 80));
  let longestMs = 0;
  let lastMs = performance.now();
  let ticks = 0;
  await withSource({ "a.yaml": service("web", 80) }, async ({ sink, write }) => {
    const beat = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - lastMs);
      lastMs = performance.now();
      ticks++;
    }, 5);
    try {
      await write("b.yaml", items.join(""));
      await sink.until("all are there", () => sink.objects.size === 3_001);
    } finally {
      clearInterval(beat);
    }
  });
  assert(ticks > 10, `everything else had ${ticks} turns, the longest wait was ${longestMs} ms`);
});

Deno.test("while a long JSON list is read and taken over everything else goes on", async () => {
  const items = Array.from({ length: 20_000 }, (_, index) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: `s${index}`, annotations: { text: "x".repeat(500) } },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }] },
  }));
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  await withSource({ "a.yaml": service("web", 80) }, async ({ sink, write }) => {
    await write("list.json", list);
    const { batches } = sink;
    let ticks = 0;
    const beat = setInterval(() => ticks++, 1);
    try {
      await sink.until("all are there", () => sink.objects.size === 20_001);
    } finally {
      clearInterval(beat);
    }
    assertEquals(sink.batches, batches + 1, "what comes together is programmed together");
    // Read as a whole it was some ten turns.
    assert(ticks > 40, `everything else had ${ticks} turns`);
  });
});

Deno.test("while a huge file is read, changes of others arrive, and it counts in the end", async () => {
  const huge = Array.from({ length: 20_000 }, (_, index) => service(`s${index}`, 80)).join("");
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, sink, write }) => {
    await write("huge.yaml", huge);
    // It has begun.
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (let port = 81; port < 84; port++) {
      await write("a.yaml", service("web", port));
      await sink.until(`port ${port}`, () => sink.ports().includes(`web:${port}`));
      assertEquals(sink.objects.size, 1, "the huge file is still being read");
    }
    await sink.until("all are there", () => sink.objects.size === 20_001);
    // One that goes while it is read, or changes, leaves nothing behind.
    await write("huge.yaml", `${huge}# changed\n${service("x", 1)}`);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await write("other.yaml", huge.replaceAll("name: s", "name: t"));
    await new Promise((resolve) => setTimeout(resolve, 300));
    await Deno.remove(`${folder}/other.yaml`);
    await write("huge.yaml", service("y", 2));
    await sink.untilPorts("web:83", "y:2");
    await write("a.yaml", service("web", 84));
    await sink.untilPorts("web:84", "y:2");
  });
});

Deno.test("a cluster IP that is an address of the node is refused", async () => {
  const files = {
    "a.yaml": service("web", 80),
    "b.yaml": service("api", 81).replace("10.96.0.1", "192.0.2.7"),
  };
  await withSource(files, async ({ sink }) => {
    await sink.untilRejected('spec.clusterIP: must not be an address of this node, found "192.0.2.7"');
    assertEquals(sink.ports(), ["web:80"]);
  }, { ownIps: () => ["192.0.2.7", "fd00::7"] });
});

Deno.test("v1 Endpoints count until there is a slice for the Service", async () => {
  const endpoints = "apiVersion: v1\nkind: Endpoints\nmetadata:\n  name: web\nsubsets:\n" +
    "  - addresses: [{ip: 10.0.0.1}]\n    ports: [{port: 80}]\n";
  const slice =
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n  labels:\n" +
    "    kubernetes.io/service-name: web\naddressType: IPv4\nendpoints:\n  - addresses: [10.0.0.1]\n";
  await withSource({ "a.yaml": endpoints }, async ({ folder, sink, write }) => {
    const has = (name: string) => () => [...sink.objects.keys()].join() === `EndpointSlice default/${name}`;
    assert(has("endpoints/web/IPv4")());
    await write("b.yaml", slice);
    await sink.until("the slice counts", has("web-1"));
    await Deno.remove(`${folder}/b.yaml`);
    await sink.until("the Endpoints count", has("endpoints/web/IPv4"));
  });
});

Deno.test("the demo's manifests are good", async () => {
  const { objects, problems } = await readManifests([
    new URL("../../../examples/demo", import.meta.url).pathname,
  ]);
  assertEquals(problems, []);
  assertEquals(objects.map(({ kind }) => kind).sort(), ["EndpointSlice", "Service"]);
});
