/** The same seed gives the same run, and another one another. */
import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { ChaosCluster } from "./cluster.ts";
import { faultsOf } from "./faults.ts";
import { CHAOS_MODES, chaosMode, type ChaosModeName } from "./mode.ts";
import { planStep } from "./plan.ts";

/** All that a run decides: what happens when, and what each fault would draw first. */
function script(mode: ChaosModeName, seed: number, steps: number): unknown[] {
  const cluster = new ChaosCluster();
  const faults = faultsOf(chaosMode(mode));
  return Array.from({ length: steps }, (_, index) => {
    const step = planStep(seed, index, faults);
    return {
      changes: step.changesAtMs.map((atMs) => [atMs, cluster.change(step.random)]),
      faults: step.faults.map(({ fault, afterMs, random }) => [fault.name, afterMs, random.unit()]),
    };
  });
}

for (const mode of CHAOS_MODES) {
  Deno.test(`mode ${mode}: the same seed, the same run`, () => {
    assertEquals(script(mode, 7, 40), script(mode, 7, 40));
    assertNotEquals(script(mode, 7, 40), script(mode, 8, 40));
  });

  Deno.test(`mode ${mode}: half an hour has every fault in it`, () => {
    const faults = faultsOf(chaosMode(mode));
    const seen = new Set<string>();
    for (let index = 0; index < 600; index++) {
      for (const { fault } of planStep(1, index, faults).faults) seen.add(fault.name);
    }
    assertEquals(faults.filter(({ name }) => !seen.has(name)).map(({ name }) => name), []);
  });
}

Deno.test("a thousand changes leave the Services that clients connect to as they are", () => {
  const cluster = new ChaosCluster();
  const stable = () =>
    JSON.stringify(cluster.objects.filter(({ metadata }) => metadata.name.startsWith("stable")));
  const before = stable();
  let moved = 0;
  for (let index = 0; index < 100; index++) {
    const { random } = planStep(9, index, faultsOf(chaosMode("iptables")));
    for (let i = 0; i < 10; i++) if (cluster.change(random).what === "moving endpoints") moved++;
  }
  assertEquals(stable(), before);
  assert(moved > 100);
});
