/**
 * `kproxy write-config [FILE]`, and `--write-config-to FILE` of `kproxy run`.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { unwritableSettings, writeConfigJson } from "../../config/write.ts";
import { writeConfigYaml } from "../../config/write_yaml.ts";
import { writeFileAtomic } from "../../config/file/write_file.ts";
import { UsageError } from "../../errors.ts";
import { effectiveConfiguration } from "../flags/configuration.ts";
import type { Io } from "../io.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";

/** Prints the configuration, or writes it to the file named. */
export async function writeConfigCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const path = targetFile(flags);
  const form = flags.outputForm("yaml");
  const { config, warnings } = await effectiveConfiguration(flags);
  for (const warning of [...warnings, ...unwritableSettings(config)]) io.err(`Warning: ${warning}\n`);
  const text = form === "json" ? writeConfigJson(config) : writeConfigYaml(config);
  if (path === undefined) await io.out(text);
  else await writeFileAtomic(path, text);
  return 0;
}

/** Writes the configuration as YAML; returns the settings that the file cannot hold. */
export async function writeConfigFile(
  config: KubeProxyConfiguration,
  path: string,
): Promise<readonly string[]> {
  await writeFileAtomic(path, writeConfigYaml(config));
  return unwritableSettings(config);
}

function targetFile(flags: ParsedFlags): string | undefined {
  const [operand] = flags.operands;
  const option = flags.get("write-config-to");
  if (operand !== undefined && option !== undefined && option !== "") {
    throw new UsageError(`Two files to write to, "${operand}" and --write-config-to=${option}: name one`);
  }
  if (operand === "") throw new UsageError("The name of the file to write is empty");
  return operand ?? (option === "" ? undefined : option);
}
