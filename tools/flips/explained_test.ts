import { assertEquals } from "@std/assert";
import { ROOT } from "../project_files.ts";
import { EXPLANATIONS } from "./explained.ts";
import { findFlips } from "./source_flips.ts";

Deno.test("every explanation is of a flip that the source has", async () => {
  const files = new Set([...EXPLANATIONS.keys()].map((key) => key.slice(0, key.indexOf(" "))));
  const keys = new Set<string>();
  for (const file of files) {
    for (const { key } of findFlips(file, await Deno.readTextFile(`${ROOT}/${file}`))) keys.add(key);
  }
  assertEquals([...EXPLANATIONS.keys()].filter((key) => !keys.has(key)), []);
});
