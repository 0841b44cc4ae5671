/** A list of our table that another program's dry run has made wrong is read again, and nothing is written because of it. */
import { assertEquals } from "@std/assert";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import { A, B, endState, nftablesProxier, syncRequest } from "../../../../tests/support/nftables_rig.ts";

const NONE = { permissions: "none" } as const;
const RULE = /^\t\t.* # handle \d+$/;

/** Changes the lines of a list; `index` counts the lists. */
type Disturbance = (lines: readonly string[], index: number) => readonly string[];

/** From some rule on none is printed, as nft 1.0.6 does on Linux 6.18. */
const cut: Disturbance = (lines) => {
  const rules = lines.flatMap((line, at) => RULE.test(line) ? [at] : []);
  const end = rules[Math.floor(rules.length / 2)] ?? 0;
  return lines.filter((line, at) => at < end || !RULE.test(line));
};
/** Some rules are printed twice. */
const doubled: Disturbance = (lines) => lines.flatMap((line) => RULE.test(line) ? [line, line] : [line]);
const whole: Disturbance = (lines) => lines;

/** A new process on a node that is synced; lists of nft are disturbed. Yields what that process asked of nft. */
async function nextLife(fake: FakeNft, disturb: Disturbance): Promise<{ lists: number; written: number }> {
  const asked = { lists: 0, written: 0 };
  const exec: Exec = {
    async run(argv, options): Promise<ExecResult> {
      const result = await fake.run(argv, options);
      if (argv.includes("-f") && !argv.includes("-c")) asked.written++;
      if (argv.join(" ") !== "nft -a list table ip kproxy") return result;
      const lines = disturb(result.stdout.split("\n"), asked.lists++);
      return { ...result, stdout: lines.join("\n") };
    },
  };
  await nftablesProxier(exec).sync(syncRequest([...A, ...B]));
  return asked;
}

const once = (disturbance: Disturbance): Disturbance => (lines, index) =>
  index === 0 ? disturbance(lines, index) : lines;

for (
  const [what, disturb, lists] of [
    ["a sound list", whole, 1],
    ["a list without its end", once(cut), 2],
    ["a list that tells rules twice", once(doubled), 2],
    ["two lists, each wrong in its way", (lines, index) => [cut, doubled, whole][index]!(lines, index), 3],
  ] satisfies [string, Disturbance, number][]
) {
  Deno.test(`${what}: nothing is written anew`, NONE, async () => {
    const fake = new FakeNft();
    await nftablesProxier(fake).sync(syncRequest([...A, ...B]));
    assertEquals(await nextLife(fake, disturb), { lists, written: 0 });
  });
}

Deno.test("what two lists tell is believed: an emptied chain is filled", NONE, async () => {
  const fake = new FakeNft();
  await nftablesProxier(fake).sync(syncRequest([...A, ...B]));
  const sound = endState(fake);
  await fake.others("flush chain ip kproxy services\n");
  const { lists, written } = await nextLife(fake, whole);
  assertEquals([lists, written > 0], [2, true]);
  assertEquals(endState(fake), sound);
});
