/** A failure counts unless a damage, and what hindered its repair, accounts for it. */
import { assertEquals } from "@std/assert";
import { type Span, Windows } from "./windows.ts";

const pure = { permissions: "none" } as const;

interface Case {
  readonly name: string;
  readonly damages: readonly Span[];
  readonly hindrances?: readonly Span[];
  readonly standstills?: readonly Span[];
  readonly repairedMs?: number;
  readonly atMs: number;
  readonly causes: readonly string[];
}

const FLUSH: Span = { what: "flush", fromMs: 1_000, untilMs: 1_100 };
const STILL: Span = { what: "standstill", fromMs: 1_500, untilMs: 3_000 };
const DOWN: Span = { what: "down", fromMs: 1_500, untilMs: 4_000 };

const CASES: readonly Case[] = [
  { name: "nothing happened", damages: [], atMs: 500, causes: [] },
  { name: "long before", damages: [FLUSH], atMs: 700, causes: [] },
  { name: "under way when it happened", damages: [FLUSH], atMs: 800, causes: ["flush"] },
  { name: "until the repair is due", damages: [FLUSH], atMs: 3_100, causes: ["flush"] },
  { name: "after the repair was due", damages: [FLUSH], atMs: 3_101, causes: [] },
  { name: "seen to be repaired", damages: [FLUSH], repairedMs: 1_900, atMs: 2_000, causes: [] },
  { name: "kproxy was away", damages: [FLUSH], hindrances: [DOWN], atMs: 6_000, causes: ["flush"] },
  { name: "and came back long ago", damages: [FLUSH], hindrances: [DOWN], atMs: 6_001, causes: [] },
  { name: "being away costs nothing", damages: [], hindrances: [DOWN], atMs: 2_000, causes: [] },
  {
    name: "one hindrance after the other",
    damages: [FLUSH],
    hindrances: [{ what: "lock", fromMs: 5_900, untilMs: 7_000 }, DOWN],
    atMs: 9_000,
    causes: ["flush"],
  },
  {
    name: "a hindrance before it does not matter",
    damages: [FLUSH],
    hindrances: [{ what: "lock", fromMs: 0, untilMs: 900 }],
    atMs: 3_101,
    causes: [],
  },
  {
    name: "the machine stood still after it",
    damages: [FLUSH],
    standstills: [STILL],
    atMs: 5_000,
    causes: ["flush"],
  },
  {
    name: "it was under way while the machine stood still",
    damages: [{ what: "late flush", fromMs: 3_100, untilMs: 3_200 }],
    standstills: [STILL],
    atMs: 1_400,
    causes: ["late flush"],
  },
  {
    name: "it began long before the machine stood still",
    damages: [{ what: "late flush", fromMs: 3_100, untilMs: 3_200 }],
    standstills: [STILL],
    atMs: 1_200,
    causes: [],
  },
];

for (const { name, damages, hindrances = [], standstills = [], repairedMs, atMs, causes } of CASES) {
  Deno.test(`a failed connection: ${name}`, pure, () => {
    const windows = new Windows(2_000);
    for (const damage of damages) windows.damaged(damage);
    for (const hindrance of hindrances) windows.hindered(hindrance);
    for (const standstill of standstills) windows.stoodStill(standstill);
    if (repairedMs !== undefined) windows.repaired(repairedMs);
    assertEquals(windows.causes({ atMs, what: "refused" }), causes);
  });
}

Deno.test("the time that windows are open counts once", pure, () => {
  const windows = new Windows(2_000);
  windows.damaged(FLUSH);
  windows.damaged({ what: "another", fromMs: 2_000, untilMs: 2_000 });
  assertEquals(windows.openMs, 3_000);
});

Deno.test("a kind of damage has cost what failed after it and before the next", pure, () => {
  const windows = new Windows(2_000);
  windows.damaged(FLUSH);
  windows.damaged({ what: "one rule", fromMs: 2_000, untilMs: 2_000 });
  windows.damaged({ ...FLUSH, fromMs: 9_000, untilMs: 9_000 });
  const failed = [500, 1_050, 1_700, 2_700, 9_300].map((atMs) => ({ atMs, what: "refused" }));
  assertEquals([...windows.outages(failed)], [
    ["flush", { connections: 3, longestMs: 700 }],
    ["one rule", { connections: 1, longestMs: 700 }],
  ]);
});
