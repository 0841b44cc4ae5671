/**
 * What kproxy writes for a cluster and its changes, recorded without timing anything: it is what the bare program is fed
 * with afterwards, and it says how many programs a change starts.
 *
 * @module
 */
import { inBenchNetns } from "./bench_netns.ts";
import { type ChangePath, FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { isWritingSync, KproxyProcess } from "./kproxy_process.ts";
import type { BenchMode } from "./mode.ts";
import { RecordedPrograms, type RecordedRun } from "./recorded_programs.ts";

/** One change of the cluster that changes rules; the first is made before, and changes none. */
export interface Step {
  readonly path: ChangePath;
  readonly index: number;
}

/** The changes that are measured, in order. Service numbers from `size.services` on are added ones. */
export function plannedSteps(size: ClusterSize, touches: number, added: number): Step[] {
  const steps: Step[] = [];
  for (let k = 0; k < touches; k++) steps.push({ path: "/touch", index: (k * 37 + 11) % size.services });
  for (let k = 0; k < added; k++) {
    const index = size.services + k;
    steps.push({ path: "/slice/add", index }, { path: "/service/add", index });
    steps.push({ path: "/service/delete", index }, { path: "/slice/delete", index });
  }
  return steps;
}

/** True if the change of a step changes rules: a slice without its Service, as a rule, does not. */
export function changesRules(step: Step): boolean {
  return !step.path.startsWith("/slice/");
}

/** The programs of one change. */
export interface RecordedChange {
  readonly runs: readonly RecordedRun[];
}

/** What was recorded. */
export interface Recording {
  /** Every program started until both families were served. */
  readonly start: readonly RecordedRun[];
  /** Those of them that wrote IPv4's rules. */
  readonly fullSync: readonly RecordedRun[];
  /** Programs of each step that changes rules, in order. */
  readonly changes: readonly RecordedChange[];
}

/** What is recorded. */
export interface RecordedBench {
  readonly size: ClusterSize;
  readonly mode: BenchMode;
  /** `kproxy.js` of a bundle instead of the source: the runtime's caches know it when it is measured. */
  readonly program?: string | undefined;
}

/** Runs kproxy through all steps with recording programs. */
export async function record(
  { size, mode, program }: RecordedBench,
  steps: readonly Step[],
  folder: string,
): Promise<Recording> {
  const programs = await RecordedPrograms.create(`${folder}/recorded`);
  return await inBenchNetns(mode, async (netns) => {
    await using api = await FakeApi.start(netns, size, `${folder}/recorded/api.sock`);
    await using kproxy = new KproxyProcess(netns, {
      master: api.url,
      mode: mode.proxyMode,
      // Nothing is timed, so nothing needs to wait; and what looks at the kernel now and then belongs to no change.
      flags: ["--iptables-min-sync-period=0s", "--iptables-sync-period=24h"],
      path: programs.path,
      ...(program === undefined ? {} : { program }),
    });
    await kproxy.allServed(600_000);
    const start = await programs.since(0);
    // What other modes left is looked for once the rules are in force; that belongs to no change.
    await programs.quiet();
    const changes: RecordedChange[] = [];
    for (const step of steps) {
      const from = await programs.count();
      const position = kproxy.position;
      await api.change(step.path, step.index);
      if (changesRules(step)) {
        await kproxy.line(isWritingSync, position, 60_000);
        changes.push({ runs: await programs.since(from) });
      } else {
        // Slices and Services come over connections of their own: let this one arrive before the next change.
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
    return { start, fullSync: mode.fullSync(start), changes };
  });
}
