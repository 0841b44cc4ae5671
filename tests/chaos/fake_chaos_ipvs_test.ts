/** Any events, failures, damages and restarts end in the rules of a fresh full sync: IPVS mode. */
import { type FakeStep, testFakeChaos } from "./fake_chaos.ts";
import { fakeIpvsMachine } from "./fake_machines.ts";

/** A full sync in which iptables-save printed nothing, without a word: every jump was written a second time, for ever. */
const JUMPS_UNSEEN: readonly FakeStep[] = [
  { kind: "fault", fault: "refuses", after: 0 },
  { kind: "service", name: 0, shape: 0, pods: 0 },
  { kind: "fault", fault: "lies", after: 3 },
  { kind: "service", name: 0, shape: 0, pods: 0 },
];

/** A removal that came no further than the address, a new life, and then another process empties the sets. */
const REMOVAL_CUT: readonly FakeStep[] = [
  { kind: "service", name: 0, shape: 3, pods: 0 },
  { kind: "fault", fault: "reports failure", after: 0 },
  { kind: "service", name: 0, shape: 0, pods: 0 },
  { kind: "fault", fault: "refuses", after: 0 },
  { kind: "restart" },
  { kind: "damage", what: 3 },
];

/** Entries went, rules were refused, a new life unbound the address and was killed: nothing told any more whose server it was. */
const EVIDENCE_LOST: readonly FakeStep[] = [
  { kind: "service", name: 0, shape: 3, pods: 0 },
  { kind: "fault", fault: "refuses", after: 1 },
  { kind: "service", name: 0, shape: 5, pods: 0 },
  { kind: "fault", fault: "dies half-way", after: 4 },
  { kind: "restart" },
];

testFakeChaos({ name: "ipvs", create: fakeIpvsMachine }, {
  runs: 2_500,
  examples: [JUMPS_UNSEEN, REMOVAL_CUT, EVIDENCE_LOST],
});
