/** Any events, failures, damages and restarts end in the rules of a fresh full sync: iptables mode. */
import { type FakeStep, testFakeChaos } from "./fake_chaos.ts";
import { fakeIptablesMachine } from "./fake_machines.ts";

/** iptables-save once printed nothing, without a word: every jump was written a second time, for ever. */
const JUMPS_UNSEEN: readonly FakeStep[] = [
  { kind: "fault", fault: "lies", after: 0 },
  { kind: "service", name: 0, shape: 0, pods: 1 },
  { kind: "damage", what: 0 },
];

for (const variant of ["nft", "legacy"] as const) {
  const mode = { name: `iptables, variant ${variant}`, create: () => fakeIptablesMachine(variant) };
  testFakeChaos(mode, { runs: 1_250, examples: [JUMPS_UNSEEN] });
}
