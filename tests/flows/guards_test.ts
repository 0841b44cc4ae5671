import { assertEquals } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { IPTABLES_RULES } from "./guards.ts";

function numbersOf(readme: string): string[] {
  return [...readme.matchAll(/^\| (\d+′?)(?: ∃)? +\| (?:nat|filter) /gm)].map(([, number = ""]) => number);
}

Deno.test("the README of mode iptables tells of every rule that has a number, in order", async () => {
  const readme = await Deno.readTextFile(`${ROOT}/lib/backend/iptables/README.md`);
  const wanted = Object.keys(IPTABLES_RULES).sort((a, b) => parseInt(a) - parseInt(b) || a.length - b.length);
  assertEquals(numbersOf(readme), wanted);
});

Deno.test("the README of mode ipvs tells of every rule that a comment of its plan numbers", async () => {
  const folder = `${ROOT}/lib/backend/ipvs`;
  const listed = numbersOf(await Deno.readTextFile(`${folder}/README.md`));
  const plan = await Deno.readTextFile(`${folder}/plan/base_rules.ts`);
  const named = [...plan.matchAll(/\/\/ (\d+)$/gm)].map(([, number = ""]) => number);
  assertEquals(listed, Array.from({ length: 19 }, (_, index) => String(index + 1)));
  assertEquals(named.length > 10, true);
  assertEquals(named.filter((number) => !listed.includes(number)), []);
});
