/**
 * Chaos without a machine: random orders of events, failing programs, damages and restarts over the stateful fakes, thousands of times.
 * Whatever happened, a good sync ends in what a fresh full sync makes.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import fc from "fast-check";
import type { FamilyProxier } from "../../lib/backend/backend.ts";
import { SyncError } from "../../lib/errors.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { testPort, testService, testSlice, testSliceEndpoint } from "../../lib/model/test_objects.ts";
import { Reconciler } from "../../lib/sync/reconcile.ts";
import { offerChanges } from "../support/arbitrary_objects.ts";
import { EXEC_FAULTS, FaultyExec } from "../support/faulty_exec.ts";

/** A mode's fake machine. */
export interface FakeMachine {
  readonly exec: Exec;
  /** A proxier of a new life, over whatever is there. */
  proxier(exec: Exec): FamilyProxier;
  /** What others may do to the rules; each by its number. */
  readonly damages: readonly (() => Promise<void>)[];
  /** Time goes by. */
  pause(): void;
  /** What the kernel holds: equal if and only if the rules do the same. */
  endState(): unknown;
}

/** What may happen. */
export type FakeStep =
  | { readonly kind: "service"; readonly name: number; readonly shape: number; readonly pods: number }
  | { readonly kind: "gone"; readonly name: number }
  | { readonly kind: "fault"; readonly fault: number; readonly after: number }
  | { readonly kind: "damage"; readonly what: number }
  | { readonly kind: "restart" }
  | { readonly kind: "pause" };

const NAMES = ["s1", "s2", "s3"];
const SHAPES: readonly Parameters<typeof testService>[0][] = [
  {},
  { sessionAffinity: "ClientIP" },
  { type: "NodePort", ports: [testPort({ nodePort: 30080 })] },
  { externalIPs: ["198.51.100.1"] },
  { externalIPs: ["198.51.100.1"], externalTrafficPolicy: "Local" },
  {
    type: "LoadBalancer",
    ports: [testPort({ nodePort: 30081 })],
    loadBalancerIngress: [{ ip: "203.0.113.9", ipMode: "VIP" }],
    loadBalancerSourceRanges: ["192.0.2.0/24"],
  },
];
const PODS = [[], ["10.244.1.1"], ["10.244.1.1", "10.244.1.2"], ["10.244.1.3", "10.244.1.2", "10.244.1.4"]];

const name = fc.nat(NAMES.length - 1);
const STEP: fc.Arbitrary<FakeStep> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("service" as const),
      name,
      shape: fc.nat(SHAPES.length - 1),
      pods: fc.nat(PODS.length - 1),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("gone" as const), name }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("fault" as const),
      fault: fc.nat(EXEC_FAULTS.length - 1),
      after: fc.nat(4),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("damage" as const), what: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.constant({ kind: "restart" as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: "pause" as const }) },
);

/** Runs of a few steps: what goes wrong does so between two syncs. */
export const FAKE_STEPS: fc.Arbitrary<readonly FakeStep[]> = fc.array(STEP, { maxLength: 7 });

function objectsOf(at: number, shape: number, pods: number): readonly ApiObject[] {
  const [name, addresses] = [NAMES[at]!, PODS[pods]!];
  return [
    testService({ name, clusterIP: `10.96.1.${at + 1}`, ...SHAPES[shape] }),
    testSlice({
      name: `${name}-1`,
      serviceName: name,
      endpoints: addresses.map((ip) => testSliceEndpoint(ip, { nodeName: "node-b" })),
    }),
  ];
}

function newTracker(): ChangeTracker {
  return new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
}

/** One life of a proxy on a fake machine. */
class FakeLife {
  readonly tracker = newTracker();
  readonly reconciler: Reconciler;
  quarantined = 0;

  constructor(machine: FakeMachine, exec: Exec, objects: readonly ApiObject[]) {
    offerChanges(this.tracker, [], objects);
    this.reconciler = new Reconciler({
      tracker: this.tracker,
      proxier: machine.proxier(exec),
      observer: {
        synced: ({ report }) => {
          this.quarantined = report.quarantined?.length ?? 0;
        },
        failed: () => {},
      },
      nowMs: () => 0,
    });
  }

  /** True if the state was reached. @throws {TypeError} for a failure that is no failure of a program */
  async sync(): Promise<boolean> {
    try {
      await this.reconciler.reconcile();
      return true;
    } catch (error) {
      if (!(error instanceof SyncError)) throw error;
      if (error.cause instanceof TypeError || error.cause instanceof RangeError) throw error.cause;
      return false;
    }
  }
}

/** A sync without faults may take a few: what was refused for no reason is tried again in turns. */
const LAST_SYNCS = 12;

/** Lets all of it happen, then one good full sync; fails unless it ends in what a fresh one makes. */
export async function runFakeChaos(
  create: () => FakeMachine | Promise<FakeMachine>,
  steps: readonly FakeStep[],
): Promise<void> {
  const machine = await create();
  const exec = new FaultyExec(machine.exec);
  const objects = new Map<number, readonly ApiObject[]>();
  const all = (): ApiObject[] => [...objects.values()].flat();
  let life = new FakeLife(machine, exec, []);
  await life.sync();
  for (const step of steps) {
    const before = all();
    if (step.kind === "service") objects.set(step.name, objectsOf(step.name, step.shape, step.pods));
    else if (step.kind === "gone") objects.delete(step.name);
    else if (step.kind === "restart") life = new FakeLife(machine, exec, before);
    else if (step.kind === "pause") machine.pause();
    else if (step.kind === "fault") exec.plan(EXEC_FAULTS[step.fault]!, step.after);
    else {
      await machine.damages[step.what % machine.damages.length]!();
      life.reconciler.requireFullSync();
    }
    if (step.kind === "fault") continue;
    offerChanges(life.tracker, before, all());
    await life.sync();
  }
  exec.heal();
  life.reconciler.requireFullSync();
  for (let syncs = 0; !await life.sync() || life.quarantined > 0; syncs++) {
    assertEquals(syncs < LAST_SYNCS, true, `after ${LAST_SYNCS} good syncs ${life.quarantined} Services are quarantined`);
  }
  const fresh = await create();
  assertEquals(await new FakeLife(fresh, fresh.exec, all()).sync(), true);
  assertEquals(machine.endState(), fresh.endState());
}
