/** Files that are no manifests or would cost too much are refused by name, and other files do not wait for them. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { startWork } from "../../../tests/support/spent.ts";
import { readManifests } from "./file_source.ts";
import { readBounded } from "./manifest_files.ts";
import { service, withSource } from "../../../tests/support/file_source.ts";

Deno.test("text that is not UTF-8 is refused and the former content stays", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler }) => {
    await Deno.writeFile(`${folder}/a.yaml`, new Uint8Array([0x61, 0x3a, 0x20, 0xe9, 0x0a]));
    await handler.untilRejected("cannot be read: is not UTF-8 text");
    assertEquals(handler.ports(), ["web:80"]);
  });
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
    // Once with the entry there before the start, once with it made while others are served.
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
    await withSource({ "b.yaml": service("web", 80) }, async ({ folder, handler, write }) => {
      await make(`${folder}/${name}`);
      await handler.untilRejected(`${folder}/${name}: ${problem}`);
      await write("b.yaml", service("web", 81));
      await handler.untilPorts("web:81");
      assertEquals(handler.rejections.length, 1, "said once");
      await Deno.remove(`${folder}/${name}`);
      if (name.includes("\n")) return;
      await write(
        name,
        name.endsWith(".json")
          ? '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}'
          : service("api", 82),
      );
      await handler.until(() => handler.objects.size === 2, "the entry has become a file");
    }, { pollMs: 200 });
  });
}

Deno.test("a file that turns into something else keeps what it held in force, and says so", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler }) => {
    await Deno.remove(`${folder}/a.yaml`);
    await run("mkfifo")(`${folder}/b.tmp`);
    await Deno.rename(`${folder}/b.tmp`, `${folder}/a.yaml`);
    await handler.untilRejected("is not a file, but a FIFO");
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
  const spentMs = startWork();
  await withSource({ "z.yaml": service("web", 80) }, async ({ handler, write }) => {
    for (const [name, text] of HOSTILE) await write(name, text);
    for (const [, , reason] of HOSTILE) {
      const [place = "", message = ""] = reason.split(": ");
      await handler.until(
        () =>
          handler.rejections.some((found) =>
            found.where.endsWith(`/${place}`) && found.message.startsWith(`cannot be parsed: ${message}`)
          ),
        reason,
      );
    }
    await write("z.yaml", service("web", 81));
    await handler.untilPorts("web:81");
  });
  // Two seconds of work; the parser's own would be minutes, or the end by a lack of memory.
  assert(spentMs() < 30_000);
});
