import { assertEquals } from "@std/assert";
import { editJumps, type JumpRule } from "./iptables_jumps.ts";

/** Jumps to A, B and C, inserted at the top one after another, so C comes first. */
const JUMPS: readonly JumpRule[] = ["A", "B", "C"].map((target) => ({
  table: "filter",
  chain: "INPUT",
  target,
  args: `-j ${target}`,
}));

interface Case {
  readonly name: string;
  /** Targets of the chain's jumps; x or y for rules of others. */
  readonly there: string;
  readonly isInPlace?: (jump: JumpRule, at: number) => boolean;
  readonly surplus?: string;
  /** Places and targets of the insertions. */
  readonly missing?: string;
}

const CASES: readonly Case[] = [
  { name: "all are there", there: "xCBAy" },
  { name: "an empty chain gets all", there: "", missing: "1C 2B 3A" },
  { name: "others' rules stay behind ours at a first start", there: "xy", missing: "1C 2B 3A" },
  { name: "a lost one in the middle comes back into its place", there: "xCyA", missing: "3B" },
  { name: "a lost last one comes right behind the one before it", there: "CxBy", missing: "4A" },
  { name: "of one that is there twice the last one stays", there: "BCBA", surplus: "B" },
  { name: "nothing goes before one that stands too far below", there: "xAyC", missing: "5B" },
  {
    name: "one that is out of place says nothing",
    there: "xC",
    isInPlace: (_, at) => at === 0,
    missing: "1B 2A",
  },
];

for (const { name, there, isInPlace, surplus = "", missing = "" } of CASES) {
  Deno.test(`jumps: ${name}`, { permissions: "none" }, () => {
    const edits = editJumps([...there].map((target) => `-j ${target}`), JUMPS, isInPlace);
    assertEquals(edits.surplus.map((args) => args.slice(3)).join(""), surplus);
    assertEquals(edits.missing.map(({ place, args }) => `${place}${args.slice(3)}`).join(" "), missing);
  });
}
