/**
 * Chaos without a machine: random orders of events, failing programs, damages and restarts over the stateful fakes, thousands of times (with `KPROXY_SEED=N` others).
 * Whatever happened, a good sync ends in what a fresh full sync makes, and in that packets fare as the objects say.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import fc from "../support/fast_check.ts";
import type { FamilyProxier } from "../../lib/backend/backend.ts";
import { SyncError } from "../../lib/errors.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { liveOfTexts, type LiveText } from "../../lib/inspect/live/live.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { Reconciler } from "../../lib/sync/family_runner.ts";
import { type ApiJson, service, type ServiceSpec, slice } from "../flows/objects.ts";
import { offerChanges } from "../support/arbitrary_objects.ts";
import { EXEC_FAULTS, type ExecFault, FaultyExec } from "../support/faulty_exec.ts";
import { brokenPromises, type OracleNode, throughRules } from "./oracle.ts";

/** A mode's fake machine. */
export interface FakeMachine {
  readonly exec: Exec;
  /** A proxier of a new life, over whatever is there. */
  proxier(exec: Exec): FamilyProxier;
  /** What others may do to the rules; each by its number. */
  readonly damages: readonly (() => Promise<void>)[];
  /** Time goes by. */
  pause(): void;
  /** Faults that nothing can be done about. */
  readonly isSpared?: (fault: ExecFault, argv: readonly string[]) => boolean;
  /** What the kernel holds: equal if and only if the rules do the same. */
  endState(): unknown;
  readonly mode: OracleNode["mode"];
  /** The same as the tools print it. */
  texts(): Promise<readonly LiveText[]>;
}

/** A mode, and a machine of it that holds nothing. */
export interface FakeMode {
  readonly name: string;
  readonly create: () => FakeMachine | Promise<FakeMachine>;
}

/** What may happen. */
export type FakeStep =
  | { readonly kind: "service"; readonly name: number; readonly shape: number; readonly pods: number }
  | { readonly kind: "gone"; readonly name: number }
  | { readonly kind: "fault"; readonly fault: ExecFault; readonly after: number }
  | { readonly kind: "damage"; readonly what: number }
  | { readonly kind: "restart" }
  | { readonly kind: "pause" };

const NAMES = ["s1", "s2", "s3"];
const SHAPES: readonly Partial<ServiceSpec>[] = [
  {},
  { sessionAffinity: "ClientIP" },
  { type: "NodePort", ports: [":80:30080"] },
  { externalIPs: ["198.51.100.1"] },
  { externalIPs: ["198.51.100.1"], externalTrafficPolicy: "Local" },
  {
    type: "LoadBalancer",
    ports: [":80:30081"],
    ingress: [{ ip: "203.0.113.9", ipMode: "VIP" }],
    loadBalancerSourceRanges: ["192.0.2.0/24"],
  },
  { internalTrafficPolicy: "Local" },
];
const PODS = [
  [],
  ["10.244.1.1@node-b"],
  ["10.244.1.1@node-b", "10.244.1.2@node-a"],
  ["10.244.1.3@node-b", "10.244.1.2@node-b", "10.244.1.4@node-b"],
  ["10.244.1.1@node-b draining", "10.244.1.2@node-b unready"],
];

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
      fault: fc.constantFrom(...EXEC_FAULTS),
      after: fc.nat(4),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("damage" as const), what: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.constant({ kind: "restart" as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: "pause" as const }) },
);

/** Runs of a few steps: what goes wrong does so between two syncs. */
const STEPS: fc.Arbitrary<readonly FakeStep[]> = fc.array(STEP, { maxLength: 7 });

/** @param text a number of {@linkcode SHAPES}, `/`, and one of {@linkcode PODS} */
function jsonOf(at: number, text: string): readonly ApiJson[] {
  const [shape = 0, pods = 0] = text.split("/").map(Number);
  const name = `shop/${NAMES[at]}`;
  return [
    service(name, { clusterIP: `10.96.1.${at + 1}`, ports: [":80"], ...SHAPES[shape] }),
    slice(`${name}.1`, [":8080"], PODS[pods]!),
  ];
}

const decoded = new Map<string, readonly ApiObject[]>();

function objectsOf(at: number, text: string): readonly ApiObject[] {
  const key = `${at} ${text}`;
  const known = decoded.get(key) ?? jsonOf(at, text).flatMap((json) => decodeObject(json, key).objects);
  decoded.set(key, known);
  return known;
}

function newTracker(): ChangeTracker {
  return new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
}

/** One life of a proxy on a fake machine. */
class FakeLife {
  readonly tracker = newTracker();
  readonly reconciler: Reconciler;
  readonly findDamage: () => Promise<unknown>;
  quarantined = 0;
  /** Of the last sync that failed. */
  problem = "";

  constructor(machine: FakeMachine, exec: Exec, objects: readonly ApiObject[]) {
    offerChanges(this.tracker, [], objects);
    const proxier = machine.proxier(exec);
    this.findDamage = () => proxier.findDamage();
    this.reconciler = new Reconciler({
      tracker: this.tracker,
      proxier,
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
      this.problem = error.message;
      if (error.cause instanceof TypeError || error.cause instanceof RangeError) throw error.cause;
      return false;
    }
  }
}

/** A sync without faults may take a few: what was refused for no reason is tried again in turns. */
const LAST_SYNCS = 12;

/** End states of fresh starts, by mode and objects: many runs end with the same ones. */
const freshStates = new Map<string, unknown>();

async function freshState(mode: FakeMode, objects: ReadonlyMap<number, string>): Promise<unknown> {
  const shapes = [...objects].sort(([a], [b]) => a - b);
  const key = `${mode.name} ${shapes.join(" ")}`;
  const known = freshStates.get(key);
  if (known !== undefined) return known;
  const machine = await mode.create();
  const all = shapes.flatMap(([at, shape]) => objectsOf(at, shape));
  assertEquals(await new FakeLife(machine, machine.exec, all).sync(), true);
  await keepsItsPromises(machine, shapes.flatMap(([at, shape]) => jsonOf(at, shape)));
  const state = machine.endState();
  freshStates.set(key, state);
  return state;
}

const NODE = { name: "node-a", zone: "", nodePortIps: ["192.0.2.10"] };
const IDLE = NAMES.map((_, at) => [`10.96.1.${at + 1}`, 80] as const);

/** Fails unless packets fare by these rules as the objects say. */
async function keepsItsPromises(machine: FakeMachine, objects: readonly ApiJson[]): Promise<void> {
  const live = liveOfTexts(await machine.texts(), { from: "a fake machine", bound: null, problems: [] });
  assertEquals(brokenPromises(throughRules(live), objects, { ...NODE, mode: machine.mode }, IDLE), []);
}

/** Lets all of it happen, then one good full sync; fails unless it ends in what a fresh one makes. */
async function runFakeChaos(mode: FakeMode, steps: readonly FakeStep[]): Promise<void> {
  const machine = await mode.create();
  const exec = new FaultyExec(machine.exec, machine.isSpared);
  /** Shape and pods by number of the Service. */
  const objects = new Map<number, string>();
  const all = (): ApiObject[] => [...objects].flatMap(([at, shape]) => objectsOf(at, shape));
  let life = new FakeLife(machine, exec, []);
  /** No program has failed: what is written for a change alone is all there is to do, and no damage. */
  let isSound = true;
  for (const step of steps) {
    if (step.kind === "fault") {
      exec.plan(step.fault, step.after);
      isSound = false;
      continue;
    }
    const before = all();
    if (step.kind === "service") objects.set(step.name, `${step.shape}/${step.pods}`);
    else if (step.kind === "gone") objects.delete(step.name);
    else if (step.kind === "restart") life = new FakeLife(machine, exec, before);
    else if (step.kind === "pause") machine.pause();
    else {
      await machine.damages[step.what % machine.damages.length]!();
      life.reconciler.requireFullSync();
    }
    offerChanges(life.tracker, before, all());
    const isDone = await life.sync();
    if (isSound) assertEquals([isDone, life.quarantined], [true, 0]);
  }
  if (isSound && steps.length > 0) {
    assertEquals([machine.endState(), await life.findDamage()], [await freshState(mode, objects), false]);
  }
  exec.heal();
  life.reconciler.requireFullSync();
  for (let syncs = 1; !await life.sync() || life.quarantined > 0; syncs++) {
    assert(syncs < LAST_SYNCS, `${life.quarantined} Services are still quarantined, ${life.problem}`);
  }
  assertEquals(machine.endState(), await freshState(mode, objects));
}

/** Registers the test of a mode: so many random runs, and these. */
export function testFakeChaos(
  mode: FakeMode,
  { runs, examples = [] }: { readonly runs: number; readonly examples?: readonly (readonly FakeStep[])[] },
): void {
  Deno.test(`${mode.name}: whatever happens ends in the rules of a fresh full sync`, {
    permissions: { env: true },
  }, async () => {
    await fc.assert(fc.asyncProperty(STEPS, (steps) => runFakeChaos(mode, steps)), {
      numRuns: runs,
      examples: examples.map((steps): [readonly FakeStep[]] => [steps]),
    });
  });
}
