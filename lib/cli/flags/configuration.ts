/**
 * From the command line to the configuration in force: defaults, over them the file of `--config`, over it the flags
 * that count beside a file.
 *
 * @module
 */
import { defaultConfig } from "../../config/defaults.ts";
import { applyFlagValues } from "../../config/flags_overlay.ts";
import type { ConfigFile } from "../../config/file/load.ts";
import type { ParsedConfig } from "../../config/parse.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { FLAGS } from "./flags.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** A configuration with its warnings and its file. */
export interface EffectiveConfiguration {
  /** Complete and valid. */
  readonly config: KubeProxyConfiguration;
  /** One sentence each, without the warnings that the flags' own names gave. */
  readonly warnings: readonly string[];
  /** The file that `--config` names, as it was read; null without it. */
  readonly file: ConfigFile | null;
}

/**
 * The configuration that these flags describe.
 *
 * @throws {ConfigError} with everything that is wrong with the file, or with the flags
 */
export async function effectiveConfiguration(flags: ParsedFlags): Promise<EffectiveConfiguration> {
  const path = flags.get("config") ?? "";
  if (path === "") return await configurationOf(flags, null);
  const { readConfigFile } = await import("../../config/file/load.ts");
  return await configurationOf(flags, await readConfigFile(path));
}

/**
 * The configuration that these flags and this content of the file describe.
 *
 * @throws {ConfigError} with everything that is wrong with the file, or with the flags
 */
export async function configurationOf(
  flags: ParsedFlags,
  file: ConfigFile | null,
): Promise<EffectiveConfiguration> {
  const base = file === null ? { config: defaultConfig(), warnings: [] } : await parseFile(file, flags);
  const { config, warnings } = applyFlagValues(base.config, flags.values, { fromFile: file !== null });
  // An obsolete flag has been reported by its name already.
  const obsolete = FLAGS.filter((flag) => flag.note?.state === "obsolete").map((flag) => `--${flag.name}: `);
  const remaining = warnings.filter((warning) => !obsolete.some((prefix) => warning.startsWith(prefix)));
  return { config, warnings: [...base.warnings, ...remaining], file };
}

/** Parses a file with the flags that decide which of its problems are errors. */
async function parseFile(file: ConfigFile, flags: ParsedFlags): Promise<ParsedConfig> {
  // The reader of YAML takes a quarter of the time to start: only a file needs it.
  const { parseConfigFile } = await import("../../config/file/load.ts");
  const proxyModeFallback = flags.get("proxy-mode-fallback");
  return parseConfigFile(file, {
    lenient: flags.get("config-lenient") ?? false,
    ...(proxyModeFallback === undefined ? {} : { proxyModeFallback }),
  });
}
