/**
 * Rules that other programs remove come back: the story of one mode's damages.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { assertWithin } from "./busyness.ts";
import type { KproxyProcess } from "./kproxy_process.ts";
import type { WebLab } from "./lab_web.ts";
import { onceMoreIfExcused } from "./skip.ts";
import { CLUSTER } from "./web_changes.ts";

/** Interval of kproxy's drift checks here, in milliseconds. */
const SYNC_PERIOD_MS = 1_000;
/** Arguments for `WebLab.start`. */
export const REPAIR_ARGS = [
  `--iptables-sync-period=${SYNC_PERIOD_MS}ms`,
  `--ipvs-sync-period=${SYNC_PERIOD_MS}ms`,
];
/** Limit of a detected and repaired damage: three times the period, plus a check and a repair on a quiet machine. */
const REPAIR_LIMIT_MS = 4_000;
/** The same in the user-mode Linux, where a check's and a repair's programs take seconds. */
const SLOW_REPAIR_LIMIT_MS = 30_000;

/** A damage and its name. */
export type Damage = readonly [name: string, damage: () => Promise<unknown>];

/** Number of damages that kproxy has detected. */
export function repairs(kproxy: KproxyProcess): number {
  return kproxy.lines.filter(({ msg }) => msg.includes("removed by something else")).length;
}

/** Time after which a repair will never come. */
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
    // If checks are expensive, the pauses between them leave the CPU to the repair.
    await new Promise((resolve) => setTimeout(resolve, Math.max(50, performance.now() - lookMs)));
  }
}

/**
 * After each damage the rules become what they were before the first, and kproxy reports it; afterwards clients are served, and
 * without damage nothing is done.
 *
 * @param kproxy started with {@linkcode REPAIR_ARGS}
 * @param rules text of the rules. @default {by the lab's mode}
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
      // Reading the rules would take the CPU from the repair.
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
      // The last repair is logged after it is done, and on a slow machine the next check may be under way.
      if (performance.now() - start > limitMs) assertEquals(said, []);
    }
  });
}
