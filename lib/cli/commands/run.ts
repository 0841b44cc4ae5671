/**
 * `kproxy run`: prepares the node, then serves until a signal comes, one proxy server after the other.
 *
 * @module
 */
import { ProcessWide } from "../../backend/node/process_wide.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { wallClockMs } from "../../kernel/clock.ts";
import { Runner } from "../../kernel/runner.ts";
import { systemExec } from "../../kernel/exec.ts";
import { guardStackTraces } from "../../kernel/descriptors.ts";
import { AUDIT, RecentProblems } from "../../observe/log.ts";
import { ReloadRecord } from "../../observe/metrics_kproxy.ts";
import { ConfigReload, ConfigWatch, takeVerbosity, untilIpv6IsOn } from "../../node/config_reload.ts";
import { configurationOf, type EffectiveConfiguration } from "../flags/configuration.ts";
import { runDoubts } from "../flags/input_doubts.ts";
import type { Io } from "../io.ts";
import {
  nextProxyServer,
  planProxyServer,
  prepareNode,
  type ProcessResources,
  type ProxyServer,
  startProxyServer,
} from "../../node/proxy_server.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { runProxyServer } from "../../node/run_proxy_server.ts";
import type { StopSignals } from "../../node/stop_signals.ts";
import { versionLine } from "../../node/version.ts";

/** Streams and signals of the process for a run. */
export interface RunContext {
  readonly io: Io;
  readonly signals: StopSignals;
}

/**
 * Runs the proxy until SIGTERM or SIGINT; the rules stay in place, but for mode userspace, where nothing is behind them then.
 *
 * @returns 0 after a signal or `--init-only`
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {UnsupportedError} if the node cannot run the mode
 * @throws {Error} if the source gives up, or the configuration file changed with `--config-reload=exit`
 */
export async function runCommand(
  effective: EffectiveConfiguration,
  flags: ParsedFlags,
  { io, signals }: RunContext,
): Promise<number> {
  // A run goes on where descriptors run out; commands that end soon need no such care.
  guardStackTraces();
  // Ends commands that still run at the end, such as those of a node's abandoned preparation.
  using exec = new Runner(systemExec);
  const isFollowed = effective.file !== null && flags.get("config-reload") !== "exit";
  const resources: ProcessResources = {
    commandLine: {
      master: flags.get("master") ?? "",
      allowsInsecureFiles: flags.get("allow-insecure-files") ?? false,
      cleanupModes: flags.cleanupModes(),
      flagTexts: flags.texts(),
    },
    logStreams: io.log,
    exec,
    verbosity: { level: effective.config.logging.verbosity },
    problems: new RecentProblems(wallClockMs),
    reloads: isFollowed ? new ReloadRecord(wallClockMs()) : null,
    processWide: new ProcessWide(exec),
  };
  const run = runProxyServers(effective, flags, { resources, signals }).finally(() =>
    resources.processWide.end(new AbortController().signal)
  );
  // A second signal waits for nothing.
  return await Promise.race([run, signals.again.then(() => 0)]);
}

async function runProxyServers(
  { config, file }: EffectiveConfiguration,
  flags: ParsedFlags,
  { resources, signals }: { readonly resources: ProcessResources; readonly signals: StopSignals },
): Promise<number> {
  const planned = planProxyServer(config, resources);
  const { log, node } = planned;
  log.info("Starting", { version: versionLine(), mode: config.mode, node });
  await using watch = file === null ? null : new ConfigWatch({ file, log });
  const onHangUp = (): void => {
    log.info("Reading the configuration file again", { signal: "SIGHUP" });
    watch?.look();
  };
  signals.handle({
    onStop: (signal) => {
      const { takesRulesAway } = resources.processWide;
      log.info(takesRulesAway ? "Stopping, rules go with this process" : "Stopping, rules stay in place", {
        signal,
      });
    },
    ...(resources.reloads === null ? {} : { onHangUp }),
  });
  if (signals.signal.aborted) return 0;
  if (flags.get("init-only") === true) {
    // The tools may wait long for others' lock. An abandoned preparation only read, or set what it found wanting.
    const prepared = await Promise.race([prepareNode(planned, null), signals.received]);
    if (prepared !== null) log.info("System initialized and --init-only specified");
    return 0;
  }
  const proxy = await startProxyServer(planned, signals.received);
  if (proxy === null) return 0;
  const { reloads } = resources;
  if (watch !== null && reloads === null) await serveUntilChange(proxy, watch, signals);
  else {
    const { signal } = signals;
    const reload = watch === null || reloads === null
      ? null
      : makeReload(watch, flags, { resources, record: reloads, signal });
    await runInTurn(proxy, reload, { signals, path: file?.path ?? "" });
  }
  return 0;
}

function makeReload(
  watch: ConfigWatch,
  flags: ParsedFlags,
  { resources, record, signal }: {
    readonly resources: ProcessResources;
    readonly record: ReloadRecord;
    readonly signal: AbortSignal;
  },
): ConfigReload<ProxyServer> {
  return new ConfigReload({
    watch,
    record,
    configurationOf: async (file) => {
      const changed = await configurationOf(flags, file);
      return { ...changed, warnings: [...changed.warnings, ...await runDoubts(flags, changed)] };
    },
    succeed: (config) => nextProxyServer(config, resources, signal),
    nowMs: wallClockMs,
  });
}

/** @throws {Error} when the file has other content, as kube-proxy ends */
async function serveUntilChange(proxy: ProxyServer, watch: ConfigWatch, signals: StopSignals): Promise<void> {
  const end = new AbortController();
  const signal = AbortSignal.any([signals.signal, end.signal]);
  const serving = runProxyServer(proxy, { signal, onStarted: () => {} }).finally(() => end.abort());
  const changed = await Promise.race([watch.next(signal), serving.then(() => null)]);
  end.abort();
  await serving;
  if (changed !== null) throw new Error("content of the proxy server's configuration file was updated");
}

interface Course {
  readonly signals: StopSignals;
  /** Path of the configuration file; `""` without one. */
  readonly path: string;
}

/**
 * One proxy server after the other. Each is ready to serve before the former one ends, and the rules stay in between; one that cannot
 * begin gives way to the former configuration.
 *
 * @param reload null if no configuration is followed
 */
async function runInTurn(
  first: ProxyServer,
  reload: ConfigReload<ProxyServer> | null,
  course: Course,
): Promise<void> {
  let former: KubeProxyConfiguration | null = null;
  let mode = first.mode;
  for (let proxy: ProxyServer | null = first; proxy !== null;) {
    const present: ProxyServer = proxy;
    let hasStarted = false;
    const onStarted = (): void => {
      hasStarted = true;
      if (former !== null && present.config !== former) reload?.succeeded();
      if (present.mode !== mode) {
        const { mode: to, log } = present;
        log.info(AUDIT, { action: "mode switch", uid: Deno.uid(), from: mode, to, file: course.path });
      }
      mode = present.mode;
    };
    try {
      proxy = await runOne(present, reload, onStarted, course.signals);
      former = present.now.config;
    } catch (error) {
      if (hasStarted || former === null || reload === null || present.config === former) throw error;
      takeVerbosity(present.verbosity, present.config, former);
      const { signals: { signal, received } } = course;
      proxy = await Promise.race([nextProxyServer(former, present, signal), received]);
      if (proxy === null) return;
      reload.refuse(proxy, error, course.path);
      former = null;
    }
  }
}

/** Serves one proxy server; resolves to the next one when this one has ended, to null after a signal. */
async function runOne(
  proxy: ProxyServer,
  reload: ConfigReload<ProxyServer> | null,
  onStarted: () => void,
  { signal: stop }: StopSignals,
): Promise<ProxyServer | null> {
  const end = new AbortController();
  const signal = AbortSignal.any([stop, end.signal]);
  const serving = runProxyServer(proxy, { signal, onStarted }).finally(() => end.abort());
  // A proxy server that is being made ready is not waited for when this one ends by itself or by a signal.
  const next = await Promise.race([
    ...(reload === null ? [] : [reload.nextProxyServer(proxy, signal)]),
    proxyWithIpv6(proxy, signal),
    serving.then(() => null),
  ]);
  end.abort();
  await serving;
  if (next === null || stop.aborted) return null;
  takeVerbosity(proxy.verbosity, proxy.now.config, next.config);
  return next;
}

/** The next proxy server where the present one is without IPv6, which was off when it began; null once `signal` aborts. */
async function proxyWithIpv6(proxy: ProxyServer, signal: AbortSignal): Promise<ProxyServer | null> {
  const { prepared: { refused }, programs: exec, periods, log, otherModes } = proxy;
  while (await untilIpv6IsOn({ refused, exec, periodMs: periods.syncPeriod }, signal)) {
    log.info("IPv6 is no longer off, starting anew with it");
    try {
      return await otherModes.undisturbed(() => nextProxyServer(proxy.now.config, proxy, signal));
    } catch (error) {
      if (!signal.aborted) log.error("Cannot start anew, going on without IPv6", error);
    }
  }
  return null;
}
