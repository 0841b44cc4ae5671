/**
 * From the command line to the configuration in force: defaults, over them the file of `--config`, over it the flags
 * that count beside a file.
 *
 * @module
 */
import { defaultConfig } from "../config/defaults.ts";
import { applyFlagValues } from "../config/flags_overlay.ts";
import { loadConfig } from "../config/load.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { FLAGS } from "./flags.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** A configuration and what there is to say about it. */
export interface EffectiveConfiguration {
  /** Complete and valid. */
  readonly config: KubeProxyConfiguration;
  /** One sentence each, without the warnings that the flags' own names gave. */
  readonly warnings: readonly string[];
}

/**
 * The configuration these flags stand for.
 *
 * @throws {ConfigError} with everything that is wrong with the file, or with the flags
 */
export async function effectiveConfiguration(flags: ParsedFlags): Promise<EffectiveConfiguration> {
  const path = flags.get("config") ?? "";
  const fromFile = path !== "";
  const base = fromFile
    ? await loadConfig(path, { lenient: flags.get("config-lenient") ?? false })
    : { config: defaultConfig(), warnings: [] };
  const { config, warnings } = applyFlagValues(base.config, flags.values, { fromFile });
  // An obsolete flag has been reported by its name already.
  const obsolete = FLAGS.filter((flag) => flag.note?.state === "obsolete").map((flag) => `--${flag.name}: `);
  const remaining = warnings.filter((warning) => !obsolete.some((prefix) => warning.startsWith(prefix)));
  return { config, warnings: [...base.warnings, ...remaining] };
}
