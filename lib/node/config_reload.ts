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
import { FolderWatch, parentOf } from "../source/files/folder_watch.ts";
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
  /** How long the folder must be quiet before the file is read. @default {300} */
  readonly debounceMs?: number;
  /** The file is read this often even if no change is seen: a link may lead to another folder. @default {5000} */
  readonly pollMs?: number;
}

/**
 * Watches the file's folder, so that edits, renames into place and a ConfigMap's `..data` link are all seen, and compares bytes,
 * so that nothing else is.
 */
export class ConfigWatch implements AsyncDisposable {
  readonly #options: ConfigWatchOptions;
  readonly #watch: FolderWatch;
  #bytes: Uint8Array;
  #problem = "";
  #hasLooked = false;
  /** An operator asked for a read (SIGHUP), and the outcome is logged. */
  #isAsked = false;

  constructor(options: ConfigWatchOptions) {
    const { file, log, debounceMs = 300, pollMs = 5_000 } = options;
    this.#options = options;
    this.#bytes = file.bytes;
    this.#watch = new FolderWatch({ folders: [parentOf(file.path)], debounceMs, pollMs, log });
  }

  /**
   * Resolves to the file with other content than before, to null once `signal` aborts. A file that is gone, cannot be read or
   * is none (a pipe) is no other content.
   */
  async next(signal: AbortSignal): Promise<ConfigFile | null> {
    for (;;) {
      // What was written before the watch began is only seen by reading.
      if (this.#hasLooked && await this.#watch.next(signal) === null) return null;
      this.#hasLooked = true;
      const bytes = await this.#read();
      if (signal.aborted) {
        // What this read found is for the next call.
        this.#hasLooked = false;
        return null;
      }
      const isAsked = this.#isAsked;
      this.#isAsked = false;
      if (bytes === null || sameBytes(bytes, this.#bytes)) {
        if (isAsked && bytes !== null) this.#logUnchanged();
        continue;
      }
      this.#bytes = bytes;
      return { path: this.#options.file.path, bytes };
    }
  }

  /** Has the file read soon, whether the folder has changed or not; the log says if it is as it was. */
  look(): void {
    this.#isAsked = true;
    this.#watch.touch(this.#options.file.path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#watch[Symbol.asyncDispose]();
  }

  #logUnchanged(): void {
    const { file, log } = this.#options;
    log.info("Configuration file has not changed", { file: file.path });
  }

  async #read(): Promise<Uint8Array | null> {
    const { file: { path }, log } = this.#options;
    try {
      await this.#watch.refresh();
      // Reading a pipe would wait for a writer.
      const { isFile } = await Deno.stat(path);
      const bytes = isFile ? await Deno.readFile(path) : null;
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

/** True if the sysctl says so, or cannot be read now: it said so before. */
async function isIpv6Off(exec: Exec, signal: AbortSignal): Promise<boolean> {
  try {
    return (await readSysctls(exec, [DISABLE_IPV6])).get(DISABLE_IPV6) !== "0";
  } catch (error) {
    if (!(error instanceof ExecError) && !signal.aborted) throw error;
    return true;
  }
}
