/**
 * `kproxy run`: what kube-proxy's command line may ask for instead of running, then the run itself.
 *
 * @module
 */
import { cleanupModes } from "./cleanup_modes.ts";
import { effectiveConfiguration } from "./configuration.ts";
import { flagLines } from "./flag_lines.ts";
import type { Io } from "./io.ts";
import { openLogger } from "./logger.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** Writes the configuration, cleans up, or runs: the first of these that the flags ask for, as in kube-proxy. */
export async function startCommand(flags: ParsedFlags, io: Io): Promise<number> {
  try {
    return await start(flags, io);
  } finally {
    // What is said next, such as why it ends, is the last word.
    await io.log.flush();
  }
}

async function start(flags: ParsedFlags, io: Io): Promise<number> {
  const effective = await effectiveConfiguration(flags);
  const { config, warnings } = effective;
  const logger = openLogger(config.logging, io.log);
  for (const line of flagLines(flags)) logger.text(line, 1);
  for (const warning of warnings) logger.warn(warning);
  const file = flags.get("write-config-to") ?? "";
  if (file !== "") {
    const { writeConfigFile } = await import("./write_config.ts");
    for (const sentence of await writeConfigFile(config, file)) logger.warn(sentence);
    logger.info("Wrote configuration", { file });
    return 0;
  }
  if (flags.get("cleanup") === true || flags.get("cleanup-iptables") === true) {
    const { cleanUp } = await import("./cleanup.ts");
    return await cleanUp({ dryRun: false, modes: cleanupModes(flags) }, io);
  }
  const { runCommand } = await import("./run.ts");
  return await runCommand(effective, flags, io);
}
