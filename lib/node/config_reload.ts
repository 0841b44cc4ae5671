/**
 * What becomes of a changed configuration file: in force at once, the proxy's next life, or refused.
 *
 * @module
 */
import { changedFields } from "../config/fields.ts";
import type { ConfigFile } from "../config/file/load.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError, formatProblem } from "../errors.ts";
import { configRefusedEvent } from "../observe/event_catalog.ts";
import { errorText, type Logger, type Verbosity } from "../observe/log.ts";
import type { ReloadRecord } from "../observe/metrics_reload.ts";
import type { ConfigWatch } from "./config_watch.ts";
import type { Life } from "./life.ts";
import type { OtherModesCleanup } from "./other_modes.ts";

/** The part of a life that a changed configuration may concern. */
export interface ReloadableLife extends Pick<Life, "now" | "node" | "log" | "verbosity" | "events"> {
  readonly otherModes: Pick<OtherModesCleanup, "undisturbed">;
}

/** What a {@linkcode ConfigReload} needs. */
export interface ConfigReloadOptions<Next> {
  readonly watch: Pick<ConfigWatch, "next">;
  readonly record: ReloadRecord;
  /** @throws {ConfigError} with everything that is wrong */
  readonly configurationOf: (file: ConfigFile) => Promise<{
    readonly config: KubeProxyConfiguration;
    readonly warnings: readonly string[];
  }>;
  /** Gets the next life ready while the present one serves. @throws {Error} if this configuration cannot be run here */
  readonly succeed: (config: KubeProxyConfiguration) => Promise<Next>;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
}

/** Follows the configuration file. */
export class ConfigReload<Next> {
  readonly #options: ConfigReloadOptions<Next>;

  constructor(options: ConfigReloadOptions<Next>) {
    this.#options = options;
  }

  /**
   * Takes every change that the present life can go on with and refuses every wrong one, until one needs a new life.
   *
   * @returns the new life, or null once `signal` aborts
   */
  async nextLife(life: ReloadableLife, signal: AbortSignal): Promise<Next | null> {
    for (;;) {
      const file = await this.#options.watch.next(signal);
      if (file === null) return null;
      try {
        const next = await this.#take(file, life);
        if (signal.aborted) return null;
        if (next !== null) return next;
      } catch (error) {
        if (signal.aborted) return null;
        this.refuse(life, error, file.path);
      }
    }
  }

  /** The configuration that was to be used is not; `life` goes on with the former one. */
  refuse(life: ReloadableLife, error: unknown, path: string): void {
    const { log, node, events } = life;
    const problems = error instanceof ConfigError
      ? error.problems.map((problem) => formatProblem(problem, error.file))
      : [errorText(error)];
    for (const problem of problems) log.error("Problem of the changed configuration", problem);
    log.warn("Changed configuration refused, the former one stays in force", { file: path });
    this.#options.record.refused();
    events.recorder.record(configRefusedEvent(node, problems.join("; ")));
  }

  /** The next life has begun. */
  succeeded(): void {
    this.#options.record.taken(this.#options.nowMs());
  }

  async #take(file: ConfigFile, life: ReloadableLife): Promise<Next | null> {
    const { configurationOf, succeed } = this.#options;
    const { config, warnings } = await configurationOf(file);
    const changed = changedFields(life.now.config, config);
    const fields = changed.map(({ path }) => path);
    for (const warning of warnings) life.log.warn(warning);
    if (changed.some(({ live }) => live !== true)) {
      const next = await life.otherModes.undisturbed(() => succeed(config));
      life.log.info("Configuration changed, starting anew with it", { file: file.path, fields });
      return next;
    }
    takeVerbosity(life.verbosity, life.now.config, config);
    life.now.config = config;
    this.succeeded();
    sayTaken(life.log, file.path, fields);
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

function sayTaken(log: Logger, file: string, fields: readonly string[]): void {
  if (fields.length === 0) log.info("Configuration file changed, but no setting in force", { file });
  else log.info("Configuration changed, in force now", { file, fields });
}
