/**
 * Broken manifests: each must give exactly the errors written beside it (`x.yaml.expected`), and keep nothing but the
 * objects listed there. `UPDATE=1` rewrites the lists; read what changed before keeping it.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { readManifests } from "../../lib/source/files/file_source.ts";
import { identityOf } from "../../lib/source/source.ts";

const FOLDER = new URL("./broken/", import.meta.url).pathname;

async function outcomeOf(file: string): Promise<string> {
  const { objects, problems } = await readManifests([FOLDER + file]);
  const errors = problems.map(({ where, object, message }) =>
    `${where}: ${object}: ${message}`.replaceAll(FOLDER, "")
  );
  const kept = objects.map((object) => `kept: ${identityOf(object)}`);
  return [...errors, ...kept].join("\n") + "\n";
}

const files = [...Deno.readDirSync(FOLDER)].map(({ name }) => name).filter((name) =>
  !name.endsWith(".expected")
).sort();

Deno.test("there are at least 40 broken manifests, and nothing else in the folder", () => {
  assert(files.length >= 40, `only ${files.length}`);
  const expected = [...Deno.readDirSync(FOLDER)].map(({ name }) => name).filter((name) =>
    name.endsWith(".expected")
  );
  assertEquals(expected.sort(), files.map((file) => `${file}.expected`));
});

for (const file of files) {
  Deno.test(`broken manifest ${file} gives its errors`, async () => {
    const outcome = await outcomeOf(file);
    if (Deno.env.get("UPDATE") === "1") await Deno.writeTextFile(`${FOLDER}${file}.expected`, outcome);
    assertEquals(outcome, await Deno.readTextFile(`${FOLDER}${file}.expected`));
    assert(!outcome.startsWith("kept:") && outcome !== "\n", "no error at all");
  });
}
