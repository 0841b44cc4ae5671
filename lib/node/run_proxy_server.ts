/**
 * One proxy server, from its first rule to its end.
 *
 * @module
 */
import type { PreparedMode } from "../backend/node/mode.ts";
import { wallClockMs } from "../kernel/clock.ts";
import type { FamilyRunner } from "../sync/family_runner.ts";
import { endTogether, whenAborted, withinGrace } from "./shutdown.ts";
import type { ProxyServer } from "./proxy_server.ts";
import { type WiredNode, wireNode } from "./wiring.ts";

/** When a proxy server ends, and who hears of its beginning. */
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
  const running: Running = { events: proxy.events.run(until), source: Promise.resolve() };
  try {
    await wired.servers.start(until);
    onStarted();
    await run(proxy, wired, { until, running });
  } finally {
    end.abort();
    await endNode(proxy, wired, running);
  }
}

/** What ends by itself once it is told to. */
interface Running {
  readonly events: Promise<void>;
  source: Promise<void>;
}

/** Resolves when `until` aborts. */
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
  const { runners, servers, otherProxy, oomScore } = wired;
  const { otherModes, prepared, programs, log } = proxy;
  otherModes.end();
  otherProxy.end();
  oomScore.end();
  const syncs = withinGrace(programs, endSyncs(runners, prepared));
  await endTogether({
    "objects and snapshot": running.source,
    syncs,
    "leftovers of other modes": otherModes.settled(),
    "the look for another proxy": otherProxy.settled(),
    "OOM score": oomScore.settled(),
    // Not before the last sync, which tells them what to serve.
    servers: syncs.finally(() => servers.stop()),
    Events: running.events,
  }, log).finally(() => programs.end());
}

async function endSyncs(runners: readonly FamilyRunner[], mode: PreparedMode): Promise<void> {
  await Promise.all(runners.map((runner) => runner.stop()));
  await mode.close?.();
}
