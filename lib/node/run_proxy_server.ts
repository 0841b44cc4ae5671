/**
 * One proxy server, from its first rule to its end. The end must not take long, whatever is under way: the rules in force stay, and the
 * next start does what is not finished.
 *
 * @module
 */
import type { PreparedMode } from "../backend/node/mode.ts";
import { ExecError } from "../errors.ts";
import { wallClockMs, within } from "../kernel/clock.ts";
import type { FamilyRunner, SyncObserver } from "../sync/family_runner.ts";
import { isRuleless, type ProxyServer } from "./proxy_server.ts";
import { type WiredNode, wireNode } from "./wiring.ts";
import { type Exec, QUICK_LIMIT_MS, runOk } from "../kernel/exec.ts";
import type { Runner } from "../kernel/runner.ts";
import type { Logger } from "../observe/log.ts";

export interface RunSpan {
  /** Ends the proxy, as far as the time for it goes after the syncs under way; the rules stay. */
  readonly signal: AbortSignal;
  /** Called when the servers listen, as far as they must. */
  readonly onStarted: () => void;
}

/**
 * Serves until `signal` aborts.
 *
 * @throws {Error} if the source gives up, or an address cannot be had with `bindAddressHardFail`
 */
export async function runProxyServer(proxy: ProxyServer, { signal, onStarted }: RunSpan): Promise<void> {
  // The source may end by itself, and takes everything else along.
  const end = new AbortController();
  const until = AbortSignal.any([signal, end.signal]);
  const wired = wireNode(proxy, until);
  proxy.log.info("Watching", { source: proxy.source.name });
  const running: Running = {
    events: proxy.events.run(until),
    source: Promise.resolve(),
    oomScore: setOomScore(isRuleless(proxy.config) ? null : proxy.config.oomScoreAdj, proxy, until),
  };
  try {
    await wired.servers.start(until);
    onStarted();
    await run(proxy, wired, { until, running });
  } finally {
    end.abort();
    await endNode(proxy, wired, running);
  }
}

/** Tasks that end by themselves once `until` aborts. */
interface Running {
  readonly events: Promise<void>;
  readonly oomScore: Promise<void>;
  source: Promise<void>;
}

async function run(
  { metrics, source }: ProxyServer,
  { runners, nodeWatch, handlers }: WiredNode,
  { until, running }: { readonly until: AbortSignal; readonly running: Running },
): Promise<void> {
  for (const runner of runners) {
    // As kube-proxy does, so that the two times can be compared from the start.
    metrics.lastQueuedTimestamp.set({ ip_family: runner.family }, wallClockMs() / 1000);
    runner.start();
  }
  running.source = source.run(handlers, until);
  const begin = nodeWatch.whenReady(handlers, until).then((ready) => {
    if (ready) handlers.openGate();
  });
  await Promise.race([running.source, begin]);
  await Promise.race([running.source, whenAborted(until)]);
}

async function endNode(proxy: ProxyServer, wired: WiredNode, running: Running): Promise<void> {
  const { runners, servers } = wired;
  const { otherModes, prepared, programs, log } = proxy;
  otherModes.end();
  const syncs = withinGrace(programs, endSyncs(runners, prepared));
  await endTogether({
    "objects and snapshot": running.source,
    syncs,
    "leftovers of other modes": otherModes.settled(),
    "OOM score": running.oomScore,
    // Not before the last sync, which sets what they serve.
    servers: syncs.finally(() => servers.stop()),
    Events: running.events,
  }, log).finally(() => programs.end());
}

/**
 * Sets the OOM score of the process, which the programs that it starts inherit; where that is not allowed, it stays as it is.
 *
 * @param adjustment from -1000 (the kernel never ends it) to 1000; null leaves it as it is
 */
export async function setOomScore(
  adjustment: number | null,
  { exec, log }: { readonly exec: Exec; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  if (adjustment === null) return;
  try {
    const argv = ["choom", "-n", String(adjustment), "-p", String(Deno.pid)];
    await runOk(exec, argv, { timeoutMs: QUICK_LIMIT_MS, signal });
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ExecError)) throw error;
    // Needs a right that few grant; a node works without it, so that a refusal is a detail.
    log.info("OOM score stays as it is", { wanted: adjustment, problem: error.message }, 2);
  }
}

async function endSyncs(runners: readonly FamilyRunner[], mode: PreparedMode): Promise<void> {
  await Promise.all(runners.map((runner) => runner.stop()));
  await mode.close?.();
}

/** How long a sync under way may go on before its programs are ended. */
const SYNC_GRACE_MS = 1_000;
const END_LIMIT_MS = 5_000;

/**
 * Waits for the parts to end, side by side, and at most for so long; those that do not end in time are logged.
 *
 * @throws what the first of them rejects with
 */
export async function endTogether(
  parts: Readonly<Record<string, Promise<unknown>>>,
  log: Logger,
  limitMs = END_LIMIT_MS,
): Promise<void> {
  const left = new Set(Object.keys(parts));
  const ending = Promise.allSettled(
    Object.entries(parts).map(([name, part]) => part.finally(() => left.delete(name))),
  );
  const ended = await within(ending, limitMs);
  if (ended === null) log.warn("Ending without waiting any longer", { unfinished: [...left], limitMs });
  const failed = ended?.find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

/** Resolves when `work`, which uses these programs, is over; ends them after a while. */
export async function withinGrace(
  programs: Runner,
  work: Promise<unknown>,
  graceMs = SYNC_GRACE_MS,
): Promise<void> {
  const timer = setTimeout(() => programs.end(), graceMs);
  try {
    await work;
  } finally {
    clearTimeout(timer);
  }
}

/** Keeps from the observer the failures that are no more than the end of the programs. */
export function untilEnded(observer: SyncObserver, programs: Runner, log: Logger): SyncObserver {
  return {
    begun: (sync) => observer.begun?.(sync),
    synced: (outcome) => observer.synced(outcome),
    failed: (failure) => {
      if (!programs.signal.aborted) return observer.failed(failure);
      const { family, durationMs } = failure;
      const took = `${Math.round(durationMs)}ms`;
      log.info("Left a sync unfinished, the next start writes everything", { family, took });
    },
  };
}

export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
