/**
 * `kproxy doctor`: what of this node keeps Services from working, and how to fix it.
 *
 * @module
 */
import { configForMode } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { ExecError, UsageError } from "../../errors.ts";
import { RENDERED_MODES, type RenderedMode } from "../../inspect/desired/desired.ts";
import { examine, type ExamineOptions } from "../../inspect/doctor/doctor.ts";
import { reportLines } from "../../inspect/doctor/report.ts";
import { runningSettings } from "../../inspect/running/running.ts";
import { parseBaseChains } from "../../netfilter/nft_listing.ts";
import { systemExec } from "../../kernel/exec.ts";
import { nodeName } from "../../kernel/machine.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { namesMode, namesSource } from "./look_options.ts";
import { runDoubts } from "../flags/input_doubts.ts";
import { configurationWithWarnings, printFound } from "./output.ts";

/** Runs the checks and reports; 1 if there is a failure. */
export async function doctorCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  const migrateTo = migrationMode(flags);
  const { config, ...given } = await configurationWithWarnings(flags, io);
  const doubts = await runDoubts(flags, { config, ...given });
  const report = await examine({
    exec: systemExec,
    config,
    master: flags.get("master") ?? "",
    nodeName: nodeName(config),
    ...await settingsHere(flags, config),
    migrateTo,
    isSourceNamed: namesSource(flags),
    doubts,
  });
  await printFound(form, { document: () => report, lines: () => reportLines(report) }, io);
  return report.result === "failure" ? 1 : 0;
}

/**
 * Settings of the kproxy that runs here: by the defaults, its own rules would count as another mode's. Empty where the
 * flags say which mode to check for, or none runs.
 */
async function settingsHere(
  flags: ParsedFlags,
  given: KubeProxyConfiguration,
): Promise<
  Partial<
    Pick<
      ExamineOptions,
      "config" | "master" | "nodeName" | "runsHere" | "unserved" | "servicesBy" | "apiUnasked"
    >
  >
> {
  if (namesMode(flags)) return {};
  const running = await runningSettings(given);
  if (running === null) return await settingsLeft(given);
  const { where, config: { kproxy, ...config }, nodeName, isTrusted, master, unserved } = running;
  const { manifests } = given.kproxy;
  // A flag that names an API server asks whether that one can be reached. Files and programs that give credentials are read and started with
  // the rights of this user, so that only this user, or root, may name them.
  const isNamed = namesSource(flags);
  const { clientConnection } = isNamed || !isTrusted ? given : config;
  const apiUnasked =
    `${where} runs as another user, who may name neither credentials nor manifests for this one`;
  return {
    ...(isNamed || !isTrusted ? {} : { master }),
    ...(isNamed || isTrusted ? {} : { apiUnasked }),
    config: {
      ...config,
      clientConnection,
      kproxy: isTrusted && manifests.length === 0 ? kproxy : { ...kproxy, manifests },
    },
    nodeName: given.hostnameOverride === "" ? nodeName : given.hostnameOverride,
    servicesBy: given,
    ...(unserved === null ? {} : { unserved }),
    runsHere: `${where} runs in mode ${config.mode}: this node is judged by its configuration`,
  };
}

const TABLES_LIMIT_MS = 1_500;

/** Settings of the mode whose rules an ended kproxy left in force: by the default they would be another mode's. */
async function settingsLeft(
  given: KubeProxyConfiguration,
): Promise<Partial<Pick<ExamineOptions, "config" | "runsHere">>> {
  try {
    const { stdout } = await systemExec.run(["nft", "-y", "list", "chains"], { timeoutMs: TABLES_LIMIT_MS });
    if (!parseBaseChains(stdout).some(({ table }) => table === "kproxy")) return {};
  } catch (error) {
    // A failure of nft is a finding of its own.
    if (error instanceof ExecError) return {};
    throw error;
  }
  return {
    config: configForMode(given, "nftables"),
    runsHere: "none answers, and rules of its mode nftables are in force: this node is judged by that mode",
  };
}

function migrationMode(flags: ParsedFlags): RenderedMode | null {
  const text = flags.get("migrate-to");
  if (text === undefined) return null;
  const mode = RENDERED_MODES.find((one) => one === text);
  // The list of flags lets nothing else through but a blank, as of a variable that is not set.
  if (mode === undefined) throw new UsageError(`Name a mode: --migrate-to=${RENDERED_MODES.join("|")}`);
  return mode;
}
