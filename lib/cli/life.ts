/**
 * Everything one life of the proxy is made of. A changed configuration begins a new life in the same process.
 *
 * @module
 */
import type { PreparedMode } from "../backend/mode.ts";
import { resolveMode } from "../backend/registry.ts";
import { selectedPeriods } from "../config/defaults.ts";
import type { KubeProxyConfiguration, ProxyMode, SyncPeriods } from "../config/types.ts";
import { conntrackSettings } from "../conntrack/settings.ts";
import { applyConntrackSettings, type RefusedSetting } from "../kernel/conntrack_settings.ts";
import { ExecError } from "../errors.ts";
import { cpuCount } from "../kernel/cpu.ts";
import { systemExec } from "../kernel/exec.ts";
import { setOomScoreAdjustment } from "../kernel/oom_score.ts";
import type { Logger, Verbosity } from "../observe/log.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import type { ReloadRecord } from "../observe/metrics_reload.ts";
import type { Source } from "../source/source.ts";
import { type OpenedEvents, openEvents } from "./events.ts";
import type { Io } from "./io.ts";
import { openLogger } from "./logger.ts";
import { nodeName } from "./node_name.ts";
import type { ParsedFlags } from "./parse_args.ts";
import { openSource } from "./source.ts";

/** What all lives of a process share. */
export interface Lasting {
  readonly flags: ParsedFlags;
  readonly io: Io;
  /** The log's; an operator may have changed it. */
  readonly verbosity: Verbosity;
  /** Null if the configuration is not followed. */
  readonly reloads: ReloadRecord | null;
}

/** A configuration, understood: nothing of the node was touched. */
export interface PlannedLife extends Lasting {
  /** As the life began. */
  readonly config: KubeProxyConfiguration;
  /** As it is now: some fields may change while the life goes on. */
  readonly now: { config: KubeProxyConfiguration };
  /** The mode really in use. */
  readonly mode: ProxyMode;
  readonly prepare: ReturnType<typeof resolveMode>["prepare"];
  readonly periods: SyncPeriods;
  /** Name of the own Node. */
  readonly node: string;
  readonly log: Logger;
}

/** What the proxy hears and where it speaks. */
export interface Channels {
  readonly metrics: ProxyMetrics;
  readonly source: Source;
  readonly events: OpenedEvents;
}

/** A node that can run the mode. */
export interface PreparedNode {
  readonly prepared: PreparedMode;
  /** Kernel settings of connection tracking that are not as wanted. */
  readonly refused: readonly RefusedSetting[];
}

/** Ready to serve. */
export interface Life extends PlannedLife, Channels, PreparedNode {}

/**
 * What a configuration stands for on this node.
 *
 * @throws {ConfigError} if the node has no name
 * @throws {UnsupportedError} if this release does not have the mode
 */
export function planLife(config: KubeProxyConfiguration, lasting: Lasting): PlannedLife {
  const { mode, prepare } = resolveMode(config.mode);
  return {
    ...lasting,
    config,
    now: { config },
    mode,
    prepare,
    periods: selectedPeriods(config, mode),
    node: nodeName(config),
    log: openLogger(config.logging, lasting.io, lasting.verbosity),
  };
}

/**
 * Opens source and Events, which begin nothing before they are run.
 *
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {UsageError} if a manifest path is not there
 */
export async function openChannels({ config, flags, mode, node, log }: PlannedLife): Promise<Channels> {
  const master = flags.get("master") ?? "";
  const metrics = new ProxyMetrics({ mode });
  const source = await openSource(config, {
    master,
    nodeName: node,
    log,
    onRequest: (request) => metrics.observeApiRequest(request),
  });
  return { metrics, source, events: await openEvents(config, { master, log }) };
}

/**
 * Sets what the node needs for a mode. Connection tracking comes first: the mode reads what is set there.
 *
 * @throws {UnsupportedError} if the node cannot run the mode
 */
export async function prepareNode({ config, log, prepare }: PlannedLife): Promise<PreparedNode> {
  const refused = await applyConntrackSettings(
    systemExec,
    conntrackSettings(config.conntrack, cpuCount()),
    log,
  );
  return { prepared: await prepare({ exec: systemExec, config, log }), refused };
}

/** Needs a right that few grant; a node works without, so a refusal is told to those who ask for details only. */
export async function adjustOomScore({ config: { oomScoreAdj }, log }: PlannedLife): Promise<void> {
  try {
    await setOomScoreAdjustment(systemExec, Deno.pid, oomScoreAdj);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    log.info("OOM score stays as it is", { wanted: oomScoreAdj, problem: error.message }, 2);
  }
}

/**
 * A life that takes the place of another one, which still serves.
 *
 * @throws {Error} whatever keeps this configuration from being run here
 */
export async function succeedingLife(config: KubeProxyConfiguration, lasting: Lasting): Promise<Life> {
  const planned = planLife(config, lasting);
  const channels = await openChannels(planned);
  try {
    const node = await prepareNode(planned);
    await adjustOomScore(planned);
    return { ...planned, ...channels, ...node };
  } catch (error) {
    await channels.events.run(AbortSignal.abort());
    throw error;
  }
}
