/**
 * From the command line to the configuration in force: defaults, over them the file of `--config`, over it the flags
 * that count beside a file.
 *
 * @module
 */
import { defaultConfig } from "../config/defaults.ts";
import { applyFlagValues } from "../config/flags_overlay.ts";
import { type ConfigFile, parseConfigFile, readConfigFile } from "../config/load.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { FLAGS } from "./flags.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** A configuration and what there is to say about it. */
export interface EffectiveConfiguration {
  /** Complete and valid. */
  readonly config: KubeProxyConfiguration;
  /** One sentence each, without the warnings that the flags' own names gave. */
  readonly warnings: readonly string[];
  /** What `--config` named, as it was read; null without it. */
  readonly file: ConfigFile | null;
}

/**
 * The configuration these flags stand for.
 *
 * @throws {ConfigError} with everything that is wrong with the file, or with the flags
 */
export async function effectiveConfiguration(flags: ParsedFlags): Promise<EffectiveConfiguration> {
  const path = flags.get("config") ?? "";
  return configurationOf(flags, path === "" ? null : await readConfigFile(path));
}

/**
 * The configuration that these flags and this content of the file stand for.
 *
 * @throws {ConfigError} with everything that is wrong with the file, or with the flags
 */
export function configurationOf(flags: ParsedFlags, file: ConfigFile | null): EffectiveConfiguration {
  const base = file === null
    ? { config: defaultConfig(), warnings: [] }
    : parseConfigFile(file, parseOptions(flags));
  const { config, warnings } = applyFlagValues(base.config, flags.values, { fromFile: file !== null });
  // An obsolete flag has been reported by its name already.
  const obsolete = FLAGS.filter((flag) => flag.note?.state === "obsolete").map((flag) => `--${flag.name}: `);
  const remaining = warnings.filter((warning) => !obsolete.some((prefix) => warning.startsWith(prefix)));
  return { config, warnings: [...base.warnings, ...remaining], file };
}

/** The flags that decide what is wrong with a file. */
function parseOptions(flags: ParsedFlags): Parameters<typeof parseConfigFile>[1] {
  const proxyModeFallback = flags.get("proxy-mode-fallback");
  return {
    lenient: flags.get("config-lenient") ?? false,
    ...(proxyModeFallback === undefined ? {} : { proxyModeFallback }),
  };
}
