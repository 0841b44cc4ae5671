/** Other seeds, other cases; the same seed, the same ones. */
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { explore } from "./explore.ts";
import { seedOf } from "../tests/support/fast_check.ts";

const FILE = "tests/support/rare_case_laws.ts";
const ROUNDS = 8;

Deno.test("other seeds find what is rare, and say how to see it again", async () => {
  const said: string[] = [];
  const found = await explore(
    { files: [FILE], rounds: ROUNDS, firstSeed: 100 },
    (line) => void said.push(line),
  );
  assert(found.length > 0 && found.length < ROUNDS, found.join(" "));
  const text = said.join("\n");
  assertMatch(text, /^no number is the fourth of four => /m);
  assertEquals(text.includes("a number is itself"), false);
  assertEquals(text.match(/: nothing found$/gm)?.length, ROUNDS - found.length);
  const again = [...text.matchAll(/^Again: KPROXY_SEED=(\d+) deno test -A --no-check (\S+)$/gm)];
  assertEquals(again.map(([, seed, path]) => [Number(seed), path]), found.map((seed) => [seed, FILE]));
  const [first = 0] = found;
  assertEquals(await explore({ files: [FILE], rounds: 1, firstSeed: first }, () => {}), [first]);

  // What CI does: the usual seed finds nothing, and one that is drawn beside it does.
  const usual = [...Array(ROUNDS).keys()].map((at) => 100 + at).find((seed) => !found.includes(seed)) ?? 0;
  const drawn: string[] = [];
  const beside = { files: [FILE], rounds: 1, firstSeed: usual, drawnSeed: `${first}` };
  assertEquals(await explore(beside, (line) => void drawn.push(line)), [usual]);
  assertMatch(
    drawn.join("\n"),
    new RegExp(`Again: KPROXY_SEED=${first} deno test -A --no-check \\S*/${FILE}`),
  );
});

Deno.test("a seed is a whole number", { permissions: "none" }, () => {
  assertEquals([seedOf(undefined), seedOf(""), seedOf("7"), seedOf("-7")], [1, 1, 7, -7]);
  assertThrows(() => seedOf("seven"), TypeError, 'KPROXY_SEED must be a whole number, not "seven"');
});
