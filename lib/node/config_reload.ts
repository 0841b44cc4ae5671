/**
 * When a proxy server gives way to the next one: a changed configuration file, which is in force at once, needs a new proxy server, or is
 * refused; and IPv6 that is switched on again.
 *
 * @module
 */
import { changedFields } from "../config/fields.ts";
import type { ConfigFile } from "../config/file/load.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError, ExecError, formatProblem } from "../errors.ts";
import { configRefusedEvent } from "../observe/events.ts";
import { errorText, type Logger, type Verbosity } from "../observe/log.ts";
import type { ReloadRecord } from "../observe/metrics_kproxy.ts";
import type { ProxyServer } from "./proxy_server.ts";
import type { OtherModesCleanup } from "./other_modes.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import type { Exec } from "../kernel/exec.ts";
import { DISABLE_IPV6, readSysctls } from "../kernel/sysctl.ts";
import type { IpFamily } from "../model/objects.ts";
import { whenAborted } from "./run_proxy_server.ts";

/** The part of a proxy server that a changed configuration may concern. */
export interface ReloadableProxy extends Pick<ProxyServer, "now" | "node" | "log" | "verbosity" | "events"> {
  readonly otherModes: Pick<OtherModesCleanup, "undisturbed">;
}

export interface ConfigReloadOptions<Next> {
  readonly watch: Pick<ConfigWatch, "next">;
  readonly record: ReloadRecord;
  /** @throws {ConfigError} with everything that is wrong */
  readonly configurationOf: (file: ConfigFile) => Promise<{
    readonly config: KubeProxyConfiguration;
    readonly warnings: readonly string[];
  }>;
  /** Gets the next proxy server ready while the present one serves. @throws {Error} if this configuration cannot be run here */
  readonly succeed: (config: KubeProxyConfiguration) => Promise<Next>;
  readonly nowMs: () => number;
}

export class ConfigReload<Next> {
  readonly #options: ConfigReloadOptions<Next>;

  constructor(options: ConfigReloadOptions<Next>) {
    this.#options = options;
  }

  /**
   * Takes every change that the present proxy server can go on with and refuses every wrong one, until one needs a new proxy.
   *
   * @returns the new proxy, or null once `signal` aborts
   */
  async nextProxyServer(proxy: ReloadableProxy, signal: AbortSignal): Promise<Next | null> {
    for (;;) {
      const file = await this.#options.watch.next(signal);
      if (file === null) return null;
      try {
        const next = await this.#take(file, proxy);
        if (signal.aborted) return null;
        if (next !== null) return next;
      } catch (error) {
        if (signal.aborted) return null;
        this.refuse(proxy, error, file.path);
      }
    }
  }

  /** Refuses a configuration; the proxy server goes on with the former one. */
  refuse(proxy: ReloadableProxy, error: unknown, path: string): void {
    const { log, node, events } = proxy;
    const problems = error instanceof ConfigError
      ? error.problems.map((problem) => formatProblem(problem, error.file))
      : [errorText(error)];
    for (const problem of problems) log.error("Problem of the changed configuration", problem);
    log.warn("Changed configuration refused, the former one stays in force", { file: path });
    this.#options.record.refused();
    events.recorder.record(configRefusedEvent(node, problems.join("; ")));
  }

  succeeded(): void {
    this.#options.record.taken(this.#options.nowMs());
  }

  async #take(file: ConfigFile, proxy: ReloadableProxy): Promise<Next | null> {
    const { configurationOf, succeed } = this.#options;
    const { config, warnings } = await configurationOf(file);
    const changed = changedFields(proxy.now.config, config);
    const fields = changed.map(({ path }) => path);
    for (const warning of warnings) proxy.log.warn(warning);
    if (changed.some(({ live }) => live !== true)) {
      const next = await proxy.otherModes.undisturbed(() => succeed(config));
      proxy.log.info("Configuration changed, starting anew with it", { file: file.path, fields });
      return next;
    }
    takeVerbosity(proxy.verbosity, proxy.now.config, config);
    proxy.now.config = config;
    this.succeeded();
    logTaken(proxy.log, file.path, fields);
    return null;
  }
}

/** The verbosity follows the configuration only where that changed it: an operator may have set another one by hand. */
export function takeVerbosity(
  verbosity: Verbosity,
  from: KubeProxyConfiguration,
  to: KubeProxyConfiguration,
): void {
  if (from.logging.verbosity !== to.logging.verbosity) verbosity.level = to.logging.verbosity;
}

function logTaken(log: Logger, file: string, fields: readonly string[]): void {
  if (fields.length === 0) log.info("Configuration file changed, but no setting in force", { file });
  else log.info("Configuration changed, in force now", { file, fields });
}

export interface ConfigWatchOptions {
  readonly file: ConfigFile;
  readonly log: Logger;
  /** How long the file must be quiet before it is read. @default {300} */
  readonly debounceMs?: number;
  /** Interval between checks of the file. @default {500} */
  readonly pollMs?: number;
}

/** Reads the file regularly, also behind a link, and compares its bytes: only other content is a change. */
export class ConfigWatch {
  readonly #options: ConfigWatchOptions;
  #bytes: Uint8Array;
  #problem = "";
  /** Aborted when an operator requests a check (SIGHUP), whose outcome is logged. */
  #asked = new AbortController();

  constructor(options: ConfigWatchOptions) {
    this.#options = options;
    this.#bytes = options.file.bytes;
  }

  /**
   * Resolves to the file with other content than before, to null once `signal` aborts. A file that is gone, cannot be read or
   * is none (a pipe) is no other content.
   */
  async next(signal: AbortSignal): Promise<ConfigFile | null> {
    const { file: { path }, pollMs = 500 } = this.#options;
    for (;; await systemClock.sleep(pollMs, AbortSignal.any([signal, this.#asked.signal]))) {
      const isAsked = this.#asked.signal.aborted;
      const bytes = await this.#read(isAsked);
      // What this read found is for the next call.
      if (signal.aborted) return null;
      if (isAsked) this.#asked = new AbortController();
      if (bytes !== null && !sameBytes(bytes, this.#bytes)) {
        this.#bytes = bytes;
        return { path, bytes };
      }
      if (isAsked && bytes !== null) this.#logUnchanged();
    }
  }

  /** Has the file read at once; the log says if it is unchanged. */
  look(): void {
    this.#asked.abort();
  }

  #logUnchanged(): void {
    const { file, log } = this.#options;
    log.info("Configuration file has not changed", { file: file.path });
  }

  /** Content of the file; null if it cannot be read, or is being written. */
  async #read(isAsked: boolean): Promise<Uint8Array | null> {
    const { file: { path }, log, debounceMs = 300 } = this.#options;
    try {
      // Reading a pipe would wait for a writer.
      const { isFile, mtime } = await Deno.stat(path);
      const isQuiet = Math.abs(Date.now() - (mtime?.getTime() ?? 0)) >= debounceMs;
      const bytes = isFile && (isQuiet || isAsked) ? await Deno.readFile(path) : null;
      this.#problem = "";
      return bytes;
    } catch (error) {
      const problem = errorText(error);
      if (problem !== this.#problem) {
        log.warn("Configuration file cannot be read, the configuration in force stays", {
          file: path,
          problem,
        });
      }
      this.#problem = problem;
      return null;
    }
  }
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export interface FamilyReturnOptions {
  readonly refused: readonly { readonly family: IpFamily }[];
  readonly exec: Exec;
  readonly periodMs: number;
  readonly clock?: Clock;
}

/**
 * Resolves to true once IPv6, which is not served because the kernel's setting was against it, is no longer off; to false once `signal`
 * aborts. Other obstacles to a family, such as missing programs, are found by a new start.
 */
export async function untilIpv6IsOn(
  { refused, exec, periodMs, clock = systemClock }: FamilyReturnOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const isRefused = refused.some(({ family }) => family === "IPv6");
  if (!isRefused || !await isIpv6Off(exec, signal)) {
    await whenAborted(signal);
    return false;
  }
  while (!signal.aborted) {
    await clock.sleep(periodMs, signal);
    if (!signal.aborted && !await isIpv6Off(exec, signal)) return !signal.aborted;
  }
  return false;
}

/** True if the sysctl switches IPv6 off, or cannot be read now: it did so before. */
async function isIpv6Off(exec: Exec, signal: AbortSignal): Promise<boolean> {
  try {
    return (await readSysctls(exec, [DISABLE_IPV6])).get(DISABLE_IPV6) !== "0";
  } catch (error) {
    if (!(error instanceof ExecError) && !signal.aborted) throw error;
    return true;
  }
}
