/**
 * Puts source, model, mode, sync loops and servers together and keeps them running.
 *
 * @module
 */
import type { FamilyProxier } from "../backend/backend.ts";
import type { PreparedMode } from "../backend/mode.ts";
import type { KubeProxyConfiguration, ProxyMode, SyncPeriods } from "../config/types.ts";
import { Conntrack } from "../kernel/conntrack.ts";
import type { RefusedSetting } from "../kernel/conntrack_settings.ts";
import { systemExec } from "../kernel/exec.ts";
import { ChangeTracker } from "../model/change_tracker.ts";
import { matchingNodeIps, nodeIps, nodePortAddresses } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import { serviceHealthFailedEvent, startingEvent, sysctlsRefusedEvent } from "../observe/event_catalog.ts";
import type { EventRecorder } from "../observe/events.ts";
import type { Logger, Verbosity } from "../observe/log.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import { NodeServers } from "../serve/node_servers.ts";
import { FamilyRunner } from "../sync/family_runner.ts";
import { ProxyLoop } from "../sync/proxy_loop.ts";
import { joinObservers, observeChanges, observeSyncs } from "../sync/sync_observer.ts";
import { otherModesToClean } from "./cleanup.ts";
import { openEvents } from "./events.ts";
import { FLAGS } from "./flags.ts";
import { NodeWatch } from "./node_watch.ts";
import { OtherModesCleanup } from "./other_modes.ts";
import type { ParsedFlags } from "./parse_args.ts";
import { openSource } from "./source.ts";
import type { StopSignals } from "./stop_signals.ts";
import { DECISIONS_LEVEL, VERSION } from "./version.ts";

/** Everything a life of the proxy is made of. */
export interface ServeOptions {
  readonly prepared: PreparedMode;
  /** Kernel settings of connection tracking that are not as wanted. */
  readonly refused: readonly RefusedSetting[];
  readonly config: KubeProxyConfiguration;
  readonly flags: ParsedFlags;
  /** The mode really in use. */
  readonly mode: ProxyMode;
  readonly periods: SyncPeriods;
  /** Name of the own Node. */
  readonly node: string;
  readonly log: Logger;
  readonly verbosity: Verbosity;
  readonly signals: StopSignals;
}

/**
 * Serves until a signal comes.
 *
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {Error} if the source gives up, or an address cannot be had with `bindAddressHardFail`
 */
export async function serveNode(options: ServeOptions): Promise<void> {
  const { config, flags, prepared, refused, node, log, signals } = options;
  const master = flags.get("master") ?? "";
  const metrics = new ProxyMetrics({ mode: options.mode });
  const source = await openSource(config, {
    master,
    nodeName: node,
    log,
    onRequest: (request) => metrics.observeApiRequest(request),
  });
  const events = await openEvents(config, { master, log });
  events.recorder.record(startingEvent(node));
  if (refused.length > 0) events.recorder.record(sysctlsRefusedEvent(node, refused));
  const servers = makeServers(options, metrics, events.recorder);
  const ownNode = new OwnNode();
  const otherModes = new OtherModesCleanup({
    modes: otherModesToClean(options.mode, flags),
    families: prepared.proxiers.map(({ family }) => family),
    log,
  });
  const runners = prepared.proxiers.map((proxier) =>
    makeRunner(proxier, options, { metrics, servers, ownNode, otherModes })
  );
  const nodeWatch = new NodeWatch({ config, runners, mode: prepared, log });
  const loop = new ProxyLoop({
    lanes: runners,
    nodeName: node,
    onNode: (object) => {
      servers.setNode(object);
      ownNode.set(object);
      nodeWatch.take(object, loop.initialized);
    },
    onHeard: (kind) => servers.heard(kind),
    changes: observeChanges(metrics),
    onRejected: ({ where, object, message }) => {
      metrics.rejectedObjects.inc();
      log.error("Object refused", message, { object, where });
    },
  });
  log.info("Watching", { source: source.name });
  const eventsEnded = events.run(signals.signal);
  try {
    servers.start();
    for (const runner of runners) runner.start();
    const sourceEnded = source.run(loop, signals.signal);
    const begin = nodeWatch.whenReady(loop, signals.signal).then((ready) => {
      if (ready) loop.openGate();
    });
    await Promise.race([sourceEnded, begin]);
    await sourceEnded;
  } finally {
    signals.stop();
    await Promise.all(runners.map((runner) => runner.stop()));
    await otherModes.settled();
    await servers.stop();
    await eventsEnded;
  }
}

function makeServers(options: ServeOptions, metrics: ProxyMetrics, events: EventRecorder): NodeServers {
  const { config, flags, mode, periods, prepared, node, log, verbosity } = options;
  return new NodeServers({
    config,
    mode,
    periods,
    families: prepared.proxiers.map(({ family }) => family),
    metrics,
    log,
    verbosity,
    flags: () => FLAGS.map(({ name }) => [name, String(flags.get(name) ?? "")] as const),
    version: VERSION,
    emulationVersion: DECISIONS_LEVEL,
    onPortConflict: (conflict) => events.record(serviceHealthFailedEvent(node, conflict)),
  });
}

/** The own Node as it was last known. */
class OwnNode {
  #node: NodeObject | null = null;

  /** Undefined: it is gone, and what it said last stays in force. */
  set(node: NodeObject | undefined): void {
    this.#node = node ?? this.#node;
  }

  /** Addresses of this machine that serve node ports. */
  nodePortIps(family: IpFamily, config: KubeProxyConfiguration): readonly string[] {
    const ips = nodeIps(this.#node, config.bindAddress);
    const addresses = nodePortAddresses(family, config.nodePortAddresses, ips);
    return matchingNodeIps(addresses, Deno.networkInterfaces().map(({ address }) => address));
  }
}

interface RunnerParts {
  readonly metrics: ProxyMetrics;
  readonly servers: NodeServers;
  readonly ownNode: OwnNode;
  readonly otherModes: OtherModesCleanup;
}

function makeRunner(
  proxier: FamilyProxier,
  options: ServeOptions,
  { metrics, servers, ownNode, otherModes }: RunnerParts,
): FamilyRunner {
  const { config, periods, node, log } = options;
  const { family } = proxier;
  return new FamilyRunner({
    tracker: new ChangeTracker({
      family,
      node: { name: node, zone: "" },
      report: (problem) => log.warn("Object is only partly usable", { problem }),
      startedAtMs: wallClockMs(),
    }),
    proxier,
    periods,
    observer: joinObservers(
      observeSyncs(log, metrics, wallClockMs),
      servers.observer,
      otherModes.observer,
    ),
    log,
    onQueued: () => {
      servers.queued(family);
      metrics.lastQueuedTimestamp.set({ ip_family: family }, wallClockMs() / 1000);
    },
    staleFlows: {
      conntrack: new Conntrack(systemExec),
      nodePortIps: () => ownNode.nodePortIps(family, config),
      observe: (reconciliation) => metrics.observeFlows(reconciliation),
    },
    random: Math.random,
  });
}

function wallClockMs(): number {
  return performance.timeOrigin + performance.now();
}
