/**
 * What others take away from kproxy's rules comes back: the story of one mode's damages.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { assertWithin } from "./busyness.ts";
import type { KproxyProcess } from "./kproxy_process.ts";
import type { WebLab } from "./lab_web.ts";
import { onceMoreIfExcused } from "./skip.ts";
import { CLUSTER } from "./web_changes.ts";

/** How often kproxy looks after its rules here, in milliseconds. */
const SYNC_PERIOD_MS = 1_000;
/** For `WebLab.start`. */
export const REPAIR_ARGS = [
  `--iptables-sync-period=${SYNC_PERIOD_MS}ms`,
  `--ipvs-sync-period=${SYNC_PERIOD_MS}ms`,
];
/** It must have seen the damage and repaired it: three times the period and what a look and a repair take on a quiet machine. */
const REPAIR_LIMIT_MS = 4_000;
/** The same in the user-mode Linux, where programs of a look and of a repair take seconds. */
const SLOW_REPAIR_LIMIT_MS = 30_000;

/** What is done, by its name. */
export type Damage = readonly [name: string, damage: () => Promise<unknown>];

/** How often kproxy saw that something was gone. */
export function repairs(kproxy: KproxyProcess): number {
  return kproxy.lines.filter(({ msg }) => msg.includes("removed by something else")).length;
}

/** What does not come by then never comes. */
const NEVER_MS = 300_000;

/** @param start of the limit, by `performance.now()` */
async function untilSame(
  rules: () => Promise<string>,
  wanted: string,
  { start, limitMs }: { readonly start: number; readonly limitMs: number },
): Promise<void> {
  for (;;) {
    const lookMs = performance.now();
    const found = await rules();
    const tookMs = performance.now() - start;
    if (found === wanted) return await assertWithin(tookMs, limitMs, "a repair");
    if (tookMs > Math.max(NEVER_MS, limitMs)) {
      assertEquals(found, wanted, `not repaired after ${tookMs.toFixed(0)} ms`);
    }
    // Where a look costs much, looks leave the CPU to the repair.
    await new Promise((resolve) => setTimeout(resolve, Math.max(50, performance.now() - lookMs)));
  }
}

/**
 * After each damage the rules are again what they were before the first, and kproxy says so; after all of them clients are served, and
 * as long as nothing is damaged nothing is done.
 *
 * @param kproxy started with {@linkcode REPAIR_ARGS}
 * @param rules what the lab's mode says of them unless given
 */
export async function repairsDamages(
  t: Deno.TestContext,
  web: WebLab,
  kproxy: KproxyProcess,
  damages: readonly Damage[],
  rules: () => Promise<string> = () => web.rules(),
): Promise<void> {
  const wanted = await rules();
  const limitMs = web.mode.pace === undefined ? REPAIR_LIMIT_MS : SLOW_REPAIR_LIMIT_MS;
  for (const [name, damage] of damages) {
    await t.step(name, async () => {
      const before = repairs(kproxy);
      const start = performance.now();
      await damage();
      // Looks at the rules would take the CPU from the repair.
      await kproxy.until("its word of the repair", () => repairs(kproxy) > before);
      await untilSame(rules, wanted, { start, limitMs });
    });
  }
  const name = "and clients are served again";
  await t.step(name, () =>
    onceMoreIfExcused(name, async () => {
      const loop = await web.loop(web.pod, CLUSTER);
      await loop.answeredFor(400);
      await loop.stopUnbroken();
    }));
  await t.step("nothing to repair, nothing done", async () => {
    const start = performance.now();
    for (;;) {
      const from = kproxy.lines.length;
      await new Promise((resolve) => setTimeout(resolve, 2 * SYNC_PERIOD_MS));
      const said = kproxy.lines.slice(from);
      if (said.length === 0) return;
      // The last repair is told of after it is done, and a slow machine has its next look under way.
      if (performance.now() - start > limitMs) assertEquals(said, []);
    }
  });
}
