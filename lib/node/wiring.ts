/**
 * Puts model, mode, sync loops and servers of one proxy server together.
 *
 * @module
 */
import type { FamilyProxier } from "../backend/backend.ts";
import { configForMode } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { systemClock, wallClockMs } from "../kernel/clock.ts";
import { Conntrack } from "../kernel/conntrack.ts";
import { interfaceIps } from "../kernel/machine.ts";
import { ChangeTracker, type ChangeTrackerOptions } from "../model/change_tracker.ts";
import type { UnservedOfService } from "../model/destination_claims.ts";
import { matchingNodeIps, nodeIps, nodePortAddresses, ownAddresses } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import {
  destinationRefusedEvent,
  endpointUnreachableEvent,
  healthServerFailedEvent,
  metricsServerFailedEvent,
  modeFallbackEvent,
  otherProxyEvent,
  serviceHealthFailedEvent,
  serviceQuarantinedEvent,
  startingEvent,
  sysctlsRefusedEvent,
} from "../observe/events.ts";
import { addLogMetrics, addTrafficMetrics } from "../observe/metrics_kproxy.ts";
import { partlyUsableReport } from "../observe/log.ts";
import { NodeServers } from "../serve/node_servers.ts";
import type { PageFacts, Questions } from "../serve/page/page_document.ts";
import { StatusRecord } from "../serve/status/status_record.ts";
import { FamilyRunner, type SyncObserver } from "../sync/family_runner.ts";
import {
  joinObservers,
  observeChanges,
  observeFirstSyncs,
  observeQuarantine,
  observeSyncs,
} from "../sync/sync_observer.ts";
import { EventHandlers } from "../sync/event_handlers.ts";
import { openApiClient, usesApiServer } from "./source.ts";
import { untilEnded } from "./run_proxy_server.ts";
import type { ProxyServer } from "./proxy_server.ts";
import { NodeWatch } from "./node_watch.ts";
import { collectInQuiet } from "./quiet_garbage.ts";
import { DECISIONS_LEVEL, VERSION } from "./version.ts";
import { UnservedFamilies } from "./unserved_families.ts";

/** The parts of a proxy server that begin nothing before they are started. */
export interface WiredNode {
  readonly servers: NodeServers;
  readonly runners: readonly FamilyRunner[];
  readonly nodeWatch: NodeWatch;
  /** Takes the events of the source. */
  readonly handlers: EventHandlers;
}

/** Puts the parts together; what waits for something gives up when `until` aborts. */
export function wireNode(proxy: ProxyServer, until: AbortSignal): WiredNode {
  const { config, prepared, log, otherModes } = proxy;
  recordStart(proxy);
  addMetrics(proxy);
  const record = new StatusRecord(prepared.proxiers.map(({ family }) => family), wallClockMs);
  /** Networks of ServiceCIDRs as they were last known. */
  let serviceCidrs: readonly string[] = [];
  const runners: FamilyRunner[] = [];
  const unserved = (): readonly UnservedOfService[] =>
    runners.flatMap(({ tracker }) => [...tracker.unserved()]);
  const servers: NodeServers = makeServers(proxy, {
    record,
    page: config.kproxy.statusPage
      ? { node: () => servers.node, serviceCidrs: () => serviceCidrs, questions: loadQuestions }
      : undefined,
    unserved,
  });
  const families = prepared.proxiers.map(({ family }) => family);
  watchOtherProxy(proxy, servers);
  const afterSyncs = joinObservers(
    otherModes.observer,
    collectInQuiet(families, until),
    observeFirstSyncs(families, (_, isLast) => isLast && !until.aborted && proxy.processWide.inForce()),
  );
  const report = partlyUsableReport(log);
  for (const proxier of prepared.proxiers) {
    runners.push(makeRunner(proxier, proxy, { servers, record, afterSyncs, report }));
  }
  const nodeWatch = makeNodeWatch(proxy, runners, (unread) => servers.setNode(unread));
  const handlers = makeHandlers(proxy, {
    servers,
    runners,
    nodeWatch,
    onServiceCidrs: (networks) => void (serviceCidrs = networks),
  });
  return { servers, runners, nodeWatch, handlers };
}

function addMetrics({ config, reloads, metrics, logStreams, mode, prepared, log }: ProxyServer): void {
  reloads?.addTo(metrics.registry);
  addLogMetrics(metrics.registry, () => logStreams.err.dropped);
  if (prepared.packetCounts !== undefined) metrics.followPacketCounts(prepared.packetCounts);
  prepared.addMetrics?.(metrics.registry);
  if (prepared.serviceTraffic !== undefined) addTrafficMetrics(metrics.registry, prepared.serviceTraffic);
  else if (config.kproxy.trafficCounters) log.warn("kproxy.trafficCounters has no effect", { mode });
}

interface HandlerParts {
  readonly servers: NodeServers;
  readonly runners: readonly FamilyRunner[];
  readonly nodeWatch: NodeWatch;
  readonly onServiceCidrs: (networks: readonly string[]) => void;
}

function makeHandlers(proxy: ProxyServer, parts: HandlerParts): EventHandlers {
  const { servers, runners, nodeWatch, onServiceCidrs } = parts;
  const { prepared, node, log, metrics, events } = proxy;
  const unserved = new UnservedFamilies({
    refused: prepared.refused,
    nodeName: node,
    log,
    onEvent: (event) => events.recorder.record(event),
    onUse: (family, use) => servers.health.setUse(family, use),
  });
  const handlers = new EventHandlers({
    runners,
    nodeName: node,
    onService: (service) => unserved.takeService(service),
    onNode: (object) => {
      if (object !== undefined) unserved.takeNode(object);
      servers.setNode(object);
      nodeWatch.take(object, handlers.initialized);
    },
    onServiceCidrs: prepared.setServiceCidrs && ((networks) => {
      onServiceCidrs(networks);
      return prepared.setServiceCidrs!(networks);
    }),
    onHeard: (kind) => servers.health.heard(kind),
    onFailed: (kind, reason) => servers.health.sourceFailed(kind, reason),
    onRestored: (state) => {
      servers.health.restored = state;
      proxy.snapshot?.setInUse(state?.isServed === true ? state.savedAtMs : null);
    },
    changes: observeChanges(metrics),
    onRejected: ({ where, object, message }) => {
      metrics.rejectedObjects.inc();
      log.error("Object refused", message, { object, where });
    },
  });
  return handlers;
}

function watchOtherProxy(
  { node, periods, otherModes, events }: ProxyServer,
  servers: NodeServers,
): void {
  otherModes.watch({
    periodMs: periods.syncPeriod,
    onChange: (tables) => {
      servers.health.otherTables = tables;
      if (tables.length > 0) events.recorder.record(otherProxyEvent(node, tables));
    },
  });
}

function makeNodeWatch(
  { config, commandLine, node, prepared, log }: ProxyServer,
  runners: readonly FamilyRunner[],
  onUnread: (node: NodeObject) => void,
): NodeWatch {
  const isNodeExpected = usesApiServer(config, commandLine.master);
  const { refused } = prepared;
  return new NodeWatch({
    config,
    nodeName: node,
    isNodeExpected,
    runners,
    refused,
    mode: prepared,
    onUnread,
    log,
  });
}

/** Events of the start. */
function recordStart({ node, refused, fallback, events: { recorder } }: ProxyServer): void {
  recorder.record(startingEvent(node));
  if (refused.length > 0) recorder.record(sysctlsRefusedEvent(node, refused));
  if (fallback !== null) recorder.record(modeFallbackEvent(node, fallback));
}

interface ServerParts {
  readonly record: StatusRecord;
  readonly page: PageFacts | undefined;
  readonly unserved: () => readonly UnservedOfService[];
}

function makeServers(proxy: ProxyServer, { record, page, unserved }: ServerParts): NodeServers {
  const { source, reloads, problems, refused, fallback } = proxy;
  const { config, commandLine, mode, periods, prepared, node, log, verbosity, metrics, events } = proxy;
  return new NodeServers({
    config,
    currentConfig: () => configForMode(proxy.now.config, mode),
    mode,
    periods,
    families: prepared.proxiers.map(({ family }) => family),
    refused: prepared.refused,
    metrics,
    log,
    verbosity,
    flags: () => commandLine.flagTexts,
    version: VERSION,
    emulationVersion: DECISIONS_LEVEL,
    proxy: {
      record,
      node,
      configuredMode: fallback?.wanted ?? proxy.now.config.mode,
      fallback: fallback?.why ?? null,
      sourceName: source.name,
      objects: () => source.objects?.() ?? [],
      refusals: () => source.refusals?.() ?? [],
      unserved,
      master: commandLine.master,
      refusedSettings: refused.map(({ name, problem }) => ({ name, reason: problem })),
      reloads,
      problems,
      page,
      ...(prepared.portals === undefined ? {} : { portals: prepared.portals }),
    },
    ...(usesApiServer(config, commandLine.master)
      ? {
        openReviewer: () =>
          openApiClient(config, {
            master: commandLine.master,
            exec: proxy.programs,
            onRequest: (request) => metrics.observeApiRequest(request),
            onAnswer: (answer) => metrics.observeApiAnswer(answer),
          }),
      }
      : {}),
    onPortConflict: (conflict) => events.recorder.record(serviceHealthFailedEvent(node, conflict)),
    onHealthFailure: (problem) => events.recorder.record(healthServerFailedEvent(node, problem)),
    onMetricsFailure: (problem) => events.recorder.record(metricsServerFailedEvent(node, problem)),
  });
}

/** Addresses of this machine that serve node ports. */
function nodePortIps(
  family: IpFamily,
  config: KubeProxyConfiguration,
  node: NodeObject | null,
): readonly string[] {
  const ips = nodeIps(node, config.bindAddress);
  const addresses = nodePortAddresses(family, config.nodePortAddresses, ips);
  return matchingNodeIps(addresses, interfaceIps());
}

interface RunnerParts {
  readonly servers: NodeServers;
  readonly record: StatusRecord;
  readonly afterSyncs: SyncObserver;
  /** Called with problems of objects, by each family. */
  readonly report: (problem: string) => void;
}

function makeRunner(
  proxier: FamilyProxier,
  proxy: ProxyServer,
  { servers, record, afterSyncs, report }: RunnerParts,
): FamilyRunner {
  const { config, periods, node, log, metrics, events, programs } = proxy;
  const { family } = proxier;
  const tracker = new ChangeTracker({
    family,
    node: { name: node, zone: "" },
    externalIPPolicy: config.kproxy.externalIPPolicy,
    report,
    onUnserved: (unserved) => {
      log.warn("Part of a Service is not served", { family, ...unserved });
      events.recorder.record(destinationRefusedEvent(node, unserved));
    },
    onResolved: (resolved) => log.info("Part of a Service is no longer refused", { family, ...resolved }),
    ...unreachableReports(family, proxy),
    startedAtMs: wallClockMs(),
  });
  // Addresses of the configuration count before a Node is known, and without one.
  tracker.setNodeAddresses(ownAddresses(null, config.bindAddress));
  return new FamilyRunner({
    tracker,
    proxier,
    periods,
    observer: untilEnded(
      joinObservers(
        observeSyncs(log, metrics, wallClockMs, proxy.mode === "ipvs" ? "services" : "servicePorts"),
        observeQuarantine({
          log,
          metrics,
          onQuarantined: (quarantined) => events.recorder.record(serviceQuarantinedEvent(node, quarantined)),
        }),
        servers.observer,
        record.observer,
        afterSyncs,
      ),
      programs,
      log,
    ),
    log,
    onQueued: () => {
      servers.health.queued(family);
      metrics.lastQueuedTimestamp.set({ ip_family: family }, wallClockMs() / 1000);
    },
    ...proxy.prepared.keepsFlows === true ? {} : {
      staleFlows: {
        conntrack: new Conntrack(programs),
        nodePortIps: () => nodePortIps(family, config, servers.node),
        observe: (reconciliation) => metrics.observeFlows(reconciliation),
      },
    },
    random: Math.random,
    drift: record.drift,
  });
}

function unreachableReports(
  family: IpFamily,
  { node, log, metrics, events }: ProxyServer,
): Pick<ChangeTrackerOptions, "onUnreachable" | "onUnreachableGone" | "onUnreachableCount"> {
  const onUnreachableCount = (count: number): void =>
    metrics.unreachableEndpoints.set({ ip_family: family }, count);
  // Without a value the metric would not show that there are none.
  onUnreachableCount(0);
  return {
    onUnreachable: (found) => {
      log.warn("An endpoint is left out, it cannot answer", { family, ...found });
      events.recorder.record(endpointUnreachableEvent(node, found));
    },
    onUnreachableGone: (gone) => log.info("An endpoint that was left out is gone", { family, ...gone }),
    onUnreachableCount,
  };
}

/** Loads modules in steps, with room for everything else between them: all at once would hold the event loop. */
export async function loadQuestions(): Promise<Questions> {
  const steps = [
    () => import("../sim/ruleset_snapshot.ts"),
    () => import("../sim/ruleset_simulator.ts"),
    () => import("../inspect/desired/desired.ts"),
    () => import("../inspect/trace/packet.ts"),
    () => import("../inspect/trace/trace_report.ts"),
  ];
  for (const load of steps) {
    await load();
    await systemClock.sleep(0);
  }
  return (await import("../inspect/page/page_questions.ts")).QUESTIONS;
}
