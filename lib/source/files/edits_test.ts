/** Edits as editors, kubelet and operators make them: in place, by renaming, by links, by deleting. */
import { assertEquals } from "@std/assert";
import { FileSource } from "./file_source.ts";
import { RecordedLog, RecordingHandler, service, withSource } from "../../../tests/support/file_source.ts";
import { until } from "../../../tests/support/until.ts";

Deno.test("edits in place, new files and deletions arrive", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler, write }) => {
    await write("a.yaml", service("web", 81));
    await handler.untilPorts("web:81");
    await write("b.yaml", service("api", 90));
    await handler.untilPorts("api:90", "web:81");
    await Deno.remove(`${folder}/a.yaml`);
    await handler.untilPorts("api:90");
  });
});

Deno.test("an edit of the same length within the same millisecond is not missed", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler, write }) => {
    const before = await Deno.stat(`${folder}/a.yaml`);
    await write("a.yaml", service("web", 81));
    await Deno.utime(`${folder}/a.yaml`, before.atime ?? 0, before.mtime ?? 0);
    await handler.untilPorts("web:81");
  });
});

Deno.test("an atomic rename into place arrives as one batch", async () => {
  const before = service("a", 1) + service("b", 1) + service("c", 1);
  await withSource({ "all.yaml": before }, async ({ folder, handler, write }) => {
    const batches = handler.batches.length;
    await write("all.yaml.tmp", service("a", 2) + service("b", 1) + service("d", 1));
    await Deno.rename(`${folder}/all.yaml.tmp`, `${folder}/all.yaml`);
    await handler.untilPorts("a:2", "b:1", "d:1");
    assertEquals(handler.batches.length, batches + 1);
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
    const handler = new RecordingHandler();
    try {
      await publish(folder, "v1", { "a.yaml": service("a", 1), "b.yaml": service("b", 1) });
      const source = new FileSource({
        paths: paths.map((path) => path === "." ? folder : `${folder}/${path}`),
        log: new RecordedLog(),
        pollMs: 60_000,
      });
      const running = source.run(handler, abort.signal);
      try {
        await handler.untilPorts("a:1", "b:1");
        await publish(folder, "v2", { "a.yaml": service("a", 2), "b.yaml": service("b", 1) });
        await handler.untilPorts("a:2", "b:1");
        await publish(folder, "v3", { "a.yaml": "kind: [", "b.yaml": service("b", 3) });
        await handler.untilPorts("a:2", "b:3");
        await handler.untilRejected("cannot be parsed");
        await publish(folder, "v4", { "a.yaml": service("a", 4), "b.yaml": service("b", 3) });
        await handler.untilPorts("a:4", "b:3");
        await publish(folder, "v5", { "a.yaml": service("a", 4) });
        await handler.untilPorts("a:4");
      } finally {
        abort.abort();
        await running;
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

Deno.test("a file that is emptied and filled again loses nothing; one that stays empty does", async () => {
  const files = { "a.yaml": service("web", 80) };
  await withSource(files, async ({ handler, write }) => {
    const batches = handler.batches.length;
    await write("a.yaml", "");
    await new Promise((resolve) => setTimeout(resolve, 150));
    await write("a.yaml", service("web", 81));
    await handler.untilPorts("web:81");
    assertEquals(handler.batches.length, batches + 1, "the Service was gone in between");
    await write("a.yaml", "kind: [");
    await handler.untilRejected("cannot be parsed");
    await write("a.yaml", "");
    await new Promise((resolve) => setTimeout(resolve, 150));
    assertEquals(handler.ports(), ["web:81"]);
    await write("a.yaml", service("web", 82));
    await handler.untilPorts("web:82");
  }, { emptyGraceMs: 60_000 });
  await withSource(files, async ({ handler, write }) => {
    await write("a.yaml", "");
    await handler.untilPorts();
  }, { emptyGraceMs: 200 });
});

Deno.test("a folder that vanishes keeps its objects, says so, and is followed again when it is back", async () => {
  const options = { pollMs: 50 };
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler, log, write }) => {
    await Deno.rename(folder, `${folder}.away`);
    try {
      await until(() => log.lines.some((line) => line.startsWith("W Manifest folder is gone")));
      assertEquals(handler.ports(), ["web:80"]);
    } finally {
      await Deno.mkdir(folder);
      await Deno.remove(`${folder}.away`, { recursive: true });
    }
    await write("a.yaml", service("web", 81));
    await handler.untilPorts("web:81");
  }, options);
});

Deno.test("polling alone finds what no event reported", async () => {
  // The file's own folder is watched, not the one that its link leads to.
  const elsewhere = await Deno.makeTempDir({ prefix: "kproxy-elsewhere-" });
  try {
    await Deno.writeTextFile(`${elsewhere}/a.yaml`, service("web", 80));
    await withSource({}, async ({ folder, handler }) => {
      await Deno.symlink(`${elsewhere}/a.yaml`, `${folder}/a.yaml`);
      await handler.untilPorts("web:80");
      await Deno.writeTextFile(`${elsewhere}/a.yaml`, service("web", 8081));
      await handler.untilPorts("web:8081");
    }, { pollMs: 50 });
  } finally {
    await Deno.remove(elsewhere, { recursive: true });
  }
});

Deno.test("a deleted file given by its path takes its objects along, and may come back", async () => {
  await withSource(
    { "a.yaml": service("web", 80) },
    async ({ folder, handler, write }) => {
      await Deno.remove(`${folder}/a.yaml`);
      await handler.untilPorts();
      await write("a.yaml", service("web", 81));
      await handler.untilPorts("web:81");
    },
    {},
    ["a.yaml"],
  );
});
