/**
 * `kproxy run`: puts source, model, mode and sync loop together and runs them until a signal comes.
 *
 * @module
 */
import type { PreparedMode } from "../backend/mode.ts";
import { resolveMode } from "../backend/registry.ts";
import { selectedPeriods } from "../config/defaults.ts";
import type { KubeProxyConfiguration, SyncPeriods } from "../config/types.ts";
import { systemExec } from "../kernel/exec.ts";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { Logger } from "../observe/log.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import { FamilyRunner } from "../sync/family_runner.ts";
import { ProxyLoop } from "../sync/proxy_loop.ts";
import { observeSyncs } from "../sync/sync_observer.ts";
import type { Io } from "./io.ts";
import { openLogger } from "./logger.ts";
import { nodeName } from "./node_name.ts";
import { NodeWatch } from "./node_watch.ts";
import type { ParsedFlags } from "./parse_args.ts";
import { openSource } from "./source.ts";
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
  const log = openLogger(config.logging, io);
  const { mode, prepare } = resolveMode(config.mode);
  log.info("Starting", { version: versionLine(), mode, node: nodeName(config) });
  using signals = new StopSignals((name) => log.info("Stopping, rules stay in place", { signal: name }));
  // The tools may wait long for a lock that others hold. What is abandoned has only read, or set what it found wanting.
  const prepared = await Promise.race([prepare({ exec: systemExec, config, log }), signals.received]);
  if (prepared === null) return 0;
  if (flags.get("init-only") === true) {
    log.info("System initialized and --init-only specified");
    return 0;
  }
  return await serve(config, {
    prepared,
    periods: selectedPeriods(config, mode),
    log,
    signals,
    master: flags.get("master") ?? "",
  });
}

interface Parts {
  readonly prepared: PreparedMode;
  readonly periods: SyncPeriods;
  readonly log: Logger;
  readonly signals: StopSignals;
  /** `--master`; empty if not given. */
  readonly master: string;
}

async function serve(
  config: KubeProxyConfiguration,
  { prepared, periods, log, signals, master }: Parts,
): Promise<number> {
  const name = nodeName(config);
  const metrics = new ProxyMetrics();
  const wallClockMs = () => performance.timeOrigin + performance.now();
  const observer = observeSyncs(log, metrics, wallClockMs);
  const runners = prepared.proxiers.map((proxier) =>
    new FamilyRunner({
      tracker: new ChangeTracker({
        family: proxier.family,
        node: { name, zone: "" },
        report: (problem) => log.warn("Object is only partly usable", { problem }),
        startedAtMs: wallClockMs(),
      }),
      proxier,
      periods,
      observer,
      log,
      onQueued: (family) => metrics.lastQueuedTimestamp.set({ ip_family: family }, wallClockMs() / 1000),
      random: Math.random,
    })
  );
  const nodeWatch = new NodeWatch({ config, runners, mode: prepared, log });
  const loop = new ProxyLoop({
    lanes: runners,
    nodeName: name,
    onNode: (node) => nodeWatch.take(node, loop.initialized),
    onRejected: ({ where, object, message }) => {
      metrics.rejectedObjects.inc();
      log.error("Object refused", message, { object, where });
    },
  });
  const source = await openSource(config, { master, nodeName: name, log });
  log.info("Watching", { source: source.name });
  for (const runner of runners) runner.start();
  try {
    const sourceEnded = source.run(loop, signals.signal);
    const begin = nodeWatch.whenReady(loop, signals.signal).then((ready) => {
      if (ready) loop.openGate();
    });
    await Promise.race([sourceEnded, begin]);
    await sourceEnded;
    return 0;
  } finally {
    signals.stop();
    await Promise.all(runners.map((runner) => runner.stop()));
  }
}
