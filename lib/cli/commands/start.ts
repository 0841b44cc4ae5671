/**
 * `kproxy run`: what kube-proxy's command line may ask for instead of running, then the run itself.
 *
 * @module
 */
import { effectiveConfiguration } from "../flags/configuration.ts";
import { runDoubts } from "../flags/input_doubts.ts";
import type { Io } from "../io.ts";
import { type LogValues, openLogger } from "../../observe/log.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { StopSignals } from "../../node/stop_signals.ts";

/** Writes the configuration, cleans up, or runs: the first of these that the flags ask for, as in kube-proxy. */
export async function startCommand(flags: ParsedFlags, io: Io): Promise<number> {
  try {
    return await start(flags, io);
  } finally {
    // The next line, such as the reason of the end, must be the last one.
    await io.log.flush();
  }
}

async function start(flags: ParsedFlags, io: Io): Promise<number> {
  const writeTo = flags.get("write-config-to") ?? "";
  const cleans = flags.get("cleanup") === true || flags.get("cleanup-iptables") === true;
  // Before anything takes time: a signal that comes meanwhile ends a run in order, too.
  const signals = writeTo === "" && !cleans ? new StopSignals() : null;
  const effective = await effectiveConfiguration(flags);
  const { config, warnings } = effective;
  const logger = openLogger(config.logging, io.log);
  for (const [name, text] of flags.texts()) logger.text(`FLAG: --${name}=${JSON.stringify(text)}`, 1);
  for (const warning of warnings) logger.warn(warning);
  if (signals !== null) { for (const doubt of await runDoubts(flags, effective)) logger.warn(doubt); }
  if (signals !== null) {
    const { runCommand } = await import("./run.ts");
    return await runCommand(effective, flags, { io, signals });
  }
  if (writeTo !== "") {
    const { writeConfigFile } = await import("./write_config.ts");
    for (const sentence of await writeConfigFile(config, writeTo)) logger.warn(sentence);
    logger.info("Wrote configuration", { file: writeTo });
    return 0;
  }
  const { cleanUp } = await import("./cleanup.ts");
  // Without the terminal: lines of the log come at any time, and would be mixed with what is drawn.
  const output = { out: (text: string) => io.out(text), err: (text: string) => io.err(text) };
  const audited = async (what: LogValues): Promise<void> => {
    const { audit } = await import("./audit.ts");
    await audit("cleanup", what, config, output);
  };
  return await cleanUp({ dryRun: false, modes: flags.cleanupModes(), audited }, output);
}
