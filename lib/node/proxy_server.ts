/**
 * Everything one proxy server is made of. A changed configuration begins a new proxy server in the same process.
 *
 * @module
 */
import { modeSysctls } from "../backend/node/mode_sysctls.ts";
import type { ProcessWide } from "../backend/node/process_wide.ts";
import { candidateModes, chooseMode, type ChosenMode, passedOverText } from "../backend/node/choose_mode.ts";
import { loadMode, MODES } from "../backend/node/registry.ts";
import { selectedPeriods } from "../config/defaults.ts";
import { checkFamilies } from "../config/families.ts";
import {
  CLEANUP_MODES,
  type CleanupMode,
  type KubeProxyConfiguration,
  type SyncPeriods,
} from "../config/types.ts";
import {
  applyConntrackSettings,
  conntrackNames,
  conntrackSettings,
  type RefusedSetting,
} from "../kernel/conntrack_settings.ts";
import { ConfigError } from "../errors.ts";
import { cpuCount, nodeName } from "../kernel/machine.ts";
import { untilDescriptors } from "../kernel/descriptors.ts";
import { Runner } from "../kernel/runner.ts";
import type { Exec } from "../kernel/exec.ts";
import { nodeSysctls, UNKNOWN_SYSCTLS } from "../kernel/sysctl.ts";
import type { IpFamily } from "../model/objects.ts";
import { type Logger, openLogger, type RecentProblems, type Verbosity } from "../observe/log.ts";
import { type ApiAnswer, type ApiRequest, ProxyMetrics } from "../observe/metrics.ts";
import type { LogStreams } from "../observe/line_writer.ts";
import { type ReloadRecord, SnapshotMetrics } from "../observe/metrics_kproxy.ts";
import type { Source } from "../source/source.ts";
import { type OpenedEvents, openEvents, openSource } from "./source.ts";
import { OtherModesCleanup, preloadRemoval } from "./other_modes.ts";

export interface CommandLine {
  /** Address of the API server, which takes precedence over a kubeconfig; `""` if none is given. */
  readonly master: string;
  /** True: files that others may write are accepted even as root. */
  readonly allowsInsecureFiles: boolean;
  /** Modes whose leftovers may be removed. */
  readonly cleanupModes: readonly CleanupMode[];
  /** Every flag with the text of its value, for `/flagz`. */
  readonly flagTexts: readonly (readonly [name: string, text: string])[];
}

/** Resources that all proxy servers of a process share. */
export interface ProcessResources {
  readonly commandLine: CommandLine;
  readonly logStreams: LogStreams;
  readonly exec: Exec;
  /** Verbosity of the log; an operator may have changed it. */
  readonly verbosity: Verbosity;
  /** Record of configuration reloads; null if the file is not watched. */
  readonly reloads: ReloadRecord | null;
  /** The last warnings and errors of the log. */
  readonly problems: RecentProblems;
  /** Resources of modes that outlast a proxy server. */
  readonly processWide: ProcessWide;
}

/** A proxy server as its configuration plans it: nothing of the node was touched. */
export interface PlannedProxyServer extends ProcessResources {
  /** Configuration as the proxy server began. */
  readonly config: KubeProxyConfiguration;
  /** Configuration as it is now: some fields may change while the proxy server goes on. */
  readonly now: { config: KubeProxyConfiguration };
  readonly node: string;
  readonly log: Logger;
  /** The programs of this proxy server, which end with it. */
  readonly programs: Runner;
}

/** Source of objects, and Events. */
export interface Channels {
  readonly source: Source;
  readonly snapshot: SnapshotMetrics | null;
  readonly events: OpenedEvents;
  readonly countRequests: (metrics: ProxyMetrics) => void;
}

/** A node that can run the mode chosen for it. */
export interface PreparedNode extends Omit<ChosenMode, "passedOver"> {
  /** Set if this is not the mode that was configured. */
  readonly fallback: ModeFallback | null;
  /** Kernel settings of connection tracking that are not as wanted. */
  readonly refused: readonly RefusedSetting[];
}

/** A configured mode that was replaced by another one. */
export interface ModeFallback {
  readonly wanted: string;
  readonly used: string;
  readonly why: string;
}

/** Ready to serve. `config` is that of the mode really in use, `now.config` the configured one. */
export interface ProxyServer extends PlannedProxyServer, Omit<Channels, "countRequests">, PreparedNode {
  readonly metrics: ProxyMetrics;
  readonly periods: SyncPeriods;
  readonly otherModes: OtherModesCleanup;
}

/**
 * Plans the proxy server of a configuration on this node.
 *
 * @throws {ConfigError} if the node has no name
 * @throws {UnsupportedError} if this release does not have the mode
 */
export function planProxyServer(
  config: KubeProxyConfiguration,
  resources: ProcessResources,
): PlannedProxyServer {
  candidateModes(config, MODES);
  const log = openLogger(config.logging, resources.logStreams, resources.verbosity, resources.problems);
  return {
    ...resources,
    config,
    now: { config },
    node: nodeName(config),
    log,
    programs: new Runner(resources.exec, { slowLog: log }),
  };
}

/**
 * Opens source and Events, which begin nothing before they are run.
 *
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {UsageError} if a manifest path is not there
 */
async function openChannels(
  { config, commandLine: { master, allowsInsecureFiles }, node, log, programs: exec }: PlannedProxyServer,
): Promise<Channels> {
  // Which metrics there are depends on the mode, and that is chosen on the node.
  let counting: ProxyMetrics | undefined;
  const snapshot = config.kproxy.snapshot === "" ? null : new SnapshotMetrics();
  const requests = {
    onRequest: (request: ApiRequest): void => counting?.observeApiRequest(request),
    onAnswer: (answer: ApiAnswer): void => counting?.observeApiAnswer(answer),
  };
  const source = await openSource(config, {
    master,
    allowsInsecureFiles,
    nodeName: node,
    log,
    exec,
    snapshot,
    ...requests,
  });
  return {
    source,
    snapshot,
    events: await openEvents(config, { master, log, exec, ...requests }),
    countRequests: (metrics) => void (counting = metrics),
  };
}

/** True if Services are opened on addresses of the node: such a proxy touches nothing of it, neither rules nor settings. */
export function isRuleless({ mode, kproxy: { userspaceListen } }: KubeProxyConfiguration): boolean {
  return mode === "userspace" && userspaceListen.length > 0;
}

function newProxyServer(
  planned: PlannedProxyServer,
  node: PreparedNode,
  channels: Channels,
): ProxyServer {
  const { countRequests, ...rest } = channels;
  const metrics = new ProxyMetrics({ mode: node.mode });
  countRequests(metrics);
  channels.snapshot?.addTo(metrics.registry);
  const leavesNodeAlone = isRuleless(node.config);
  const otherModes = new OtherModesCleanup({
    modes: leavesNodeAlone ? [] : planned.commandLine.cleanupModes.filter((mode) => mode !== node.mode),
    ownMode: leavesNodeAlone ? undefined : CLEANUP_MODES.find((mode) => mode === node.mode),
    families: node.prepared.proxiers.map(({ family }) => family),
    log: planned.log,
    exec: planned.exec,
    excludeCidrs: node.config.ipvs.excludeCIDRs ?? [],
  });
  const periods = selectedPeriods(node.config, node.mode);
  return { ...planned, ...rest, ...node, metrics, periods, otherModes };
}

/**
 * Chooses the mode and sets what the node needs for it. Connection tracking comes first: the mode reads what is set there.
 *
 * @param opening of the first proxy server of the process; waited for before anything is set, because a configuration that is wrong must leave
 *   the node as it is. Null for others
 * @throws {UnsupportedError} if the node cannot run the mode, or none of those that may take its place
 * @throws {ExecError} if what it can run cannot be found out
 * @throws {ConfigError} if the configuration is for another IP family than the only one that this node serves
 */
export async function prepareNode(
  { config, log, programs, processWide }: PlannedProxyServer,
  opening: Promise<Channels> | null,
): Promise<PreparedNode> {
  // What the node can do is decided here for as long as the proxy server runs.
  const exec = new Runner(programs, { retryLog: log });
  const { modes } = candidateModes(config, MODES);
  const best = modes.slice(0, 1);
  const names = [...isRuleless(config) ? [] : conntrackNames(config.conntrack), ...modeSysctls(best)];
  // The programs leave this process the time to load.
  const [sysctls, settings] = await Promise.all([
    isRuleless(config) ? UNKNOWN_SYSCTLS : nodeSysctls(exec, log, names),
    isRuleless(config) ? [] : cpuCount().then((cpus) => conntrackSettings(config.conntrack, cpus)),
    opening,
    ...best.map(loadMode),
    preloadRemoval(),
  ]);
  const refused = await applyConntrackSettings(exec, settings, log, sysctls);
  const { passedOver, ...chosen } = await chooseMode(MODES, {
    exec,
    config,
    log,
    sysctls,
    processWide,
  });
  exec.settle();
  if (!isRuleless(chosen.config)) {
    checkServedFamilies(
      chosen.config,
      chosen.prepared.proxiers.map(({ family }) => family),
      log,
    );
  }
  const isFallback = config.mode !== "auto" && passedOver.length > 0;
  const fallback = isFallback
    ? { wanted: config.mode, used: chosen.mode, why: passedOverText(passedOver) }
    : null;
  return { ...chosen, fallback, refused };
}

function checkServedFamilies(
  config: KubeProxyConfiguration,
  families: readonly IpFamily[],
  log: Logger,
): void {
  const { problems, warnings } = checkFamilies(config, families);
  for (const { path, message } of warnings) {
    log.warn("Configuration may be incomplete or incorrect", { field: path, problem: message });
  }
  if (problems.length > 0) throw new ConfigError(problems);
}

/**
 * A proxy server that takes the place of another one, which may still serve. Begins when there are file descriptors for it: that there are
 * none says nothing about the configuration.
 *
 * @throws {Error} whatever keeps this configuration from being run here
 * @throws the reason of `signal`, if that ended the wait for descriptors
 */
export async function nextProxyServer(
  config: KubeProxyConfiguration,
  resources: ProcessResources,
  signal: AbortSignal,
): Promise<ProxyServer> {
  const planned = planProxyServer(config, resources);
  const onWait = (): void =>
    planned.log.warn("Too few file descriptors for a new proxy server, waiting for some");
  await untilDescriptors({ signal, onWait });
  const channels = await openChannels(planned);
  try {
    return newProxyServer(planned, await prepareNode(planned, null), channels);
  } catch (error) {
    await channels.events.run(AbortSignal.abort());
    throw error;
  }
}

/**
 * The first proxy server of a process: opens source and Events while it prepares the node.
 *
 * @param received resolves to null if the start is called off
 * @returns null if it was called off
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {UnsupportedError} if the node cannot run the mode
 * @throws {ExecError} if what it can run cannot be found out
 */
export async function startProxyServer(
  planned: PlannedProxyServer,
  received: Promise<null>,
): Promise<ProxyServer | null> {
  const opening = openChannels(planned);
  // A failure is thrown by the preparation, which waits for it, after what is said of the node.
  opening.catch(() => undefined);
  let proxy: ProxyServer | null = null;
  try {
    // The tools may wait long for others' lock. An abandoned preparation only read, or set what it found wanting.
    const prepared = await Promise.race([prepareNode(planned, opening), received]);
    if (prepared !== null) proxy = newProxyServer(planned, prepared, await opening);
  } finally {
    if (proxy === null) planned.programs.end();
  }
  return proxy;
}
