import { assert, assertEquals } from "@std/assert";
import { MUTATIONS } from "./mutate.ts";
import { ROOT } from "./project_files.ts";

Deno.test("every mutation fits the source: its place is there exactly once and really changes", async () => {
  const texts = new Map<string, string>();
  const misfits: string[] = [];
  for (const edit of MUTATIONS.flatMap(({ edits }) => edits)) {
    const text = texts.get(edit.file) ?? await Deno.readTextFile(`${ROOT}/${edit.file}`);
    texts.set(edit.file, text);
    if (text.split(edit.find).length !== 2 || edit.find === edit.replace) {
      misfits.push(`${edit.file}: ${edit.find}`);
    }
  }
  assertEquals(misfits, []);
});

Deno.test("mutations have names of their own", () => {
  assertEquals(new Set(MUTATIONS.map(({ name }) => name)).size, MUTATIONS.length);
});

Deno.test("every numbered rule and every test vector has a mutation", () => {
  const names = MUTATIONS.map(({ name }) => name);
  const has = (word: string) => names.some((name) => new RegExp(`^(${word})(?![0-9′])`).test(name));
  for (let rule = 1; rule <= 23; rule++) if (rule !== 11) assert(has(`rule ${rule}`), `rule ${rule}`);
  assert(has("rule 12′"));
  for (let rule = 1; rule <= 19; rule++) assert(has(`ipvs rule ${rule}`), `ipvs rule ${rule}`);
  for (let vector = 1; vector <= 18; vector++) {
    if (vector !== 17) assert(has(`vector ${vector}`), `vector ${vector}`);
  }
});
