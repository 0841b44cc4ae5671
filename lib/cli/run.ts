/**
 * `kproxy run`: prepares the node, then serves until a signal comes.
 *
 * @module
 */
import { resolveMode } from "../backend/registry.ts";
import { selectedPeriods } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ExecError } from "../errors.ts";
import { conntrackSettings } from "../conntrack/settings.ts";
import { applyConntrackSettings } from "../kernel/conntrack_settings.ts";
import { cpuCount } from "../kernel/cpu.ts";
import { systemExec } from "../kernel/exec.ts";
import { setOomScoreAdjustment } from "../kernel/oom_score.ts";
import type { Logger } from "../observe/log.ts";
import type { Io } from "./io.ts";
import { openLogger } from "./logger.ts";
import { nodeName } from "./node_name.ts";
import type { ParsedFlags } from "./parse_args.ts";
import { serveNode } from "./serve_node.ts";
import { StopSignals } from "./stop_signals.ts";
import { versionLine } from "./version.ts";

/**
 * Runs the proxy until SIGTERM or SIGINT; the rules stay in place.
 *
 * @returns 0 after a signal or `--init-only`, 1 if the source gave up
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {UnsupportedError} if the node cannot run the mode
 */
export async function runCommand(
  config: KubeProxyConfiguration,
  flags: ParsedFlags,
  io: Io,
): Promise<number> {
  const verbosity = { level: config.logging.verbosity };
  const log = openLogger(config.logging, io, verbosity);
  const { mode, prepare } = resolveMode(config.mode);
  const node = nodeName(config);
  log.info("Starting", { version: versionLine(), mode, node });
  using signals = new StopSignals((name) => log.info("Stopping, rules stay in place", { signal: name }));
  const preparation = prepareNode(config, log, prepare);
  // The tools may wait long for a lock that others hold. What is abandoned has only read, or set what it found wanting.
  const prepared = await Promise.race([preparation, signals.received]);
  if (prepared === null) return 0;
  if (flags.get("init-only") === true) {
    log.info("System initialized and --init-only specified");
    return 0;
  }
  await adjustOomScore(config.oomScoreAdj, log);
  const periods = selectedPeriods(config, mode);
  await serveNode({ ...prepared, config, flags, mode, periods, node, log, verbosity, signals });
  return 0;
}

/** Needs a right that few grant; a node works without, so a refusal is told to those who ask for details only. */
async function adjustOomScore(adjustment: number, log: Logger): Promise<void> {
  try {
    await setOomScoreAdjustment(systemExec, Deno.pid, adjustment);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    log.info("OOM score stays as it is", { wanted: adjustment, problem: error.message }, 2);
  }
}

/** Connection tracking comes first: the mode reads what is set there. */
async function prepareNode(
  config: KubeProxyConfiguration,
  log: Logger,
  prepare: ReturnType<typeof resolveMode>["prepare"],
) {
  const refused = await applyConntrackSettings(
    systemExec,
    conntrackSettings(config.conntrack, cpuCount()),
    log,
  );
  return { prepared: await prepare({ exec: systemExec, config, log }), refused };
}
