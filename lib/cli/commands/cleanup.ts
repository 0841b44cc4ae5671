/**
 * `kproxy cleanup`, and `--cleanup` of `kproxy run`.
 *
 * @module
 */
import { type CleanupContext, countLeftovers, type LeftoverReport } from "../../backend/node/cleanup.ts";
import { CLEANUP_MODES, CLEANUP_PROXIES, type CleanupMode } from "../../config/types.ts";
import { indistinctModes, removeLeftovers } from "../../backend/node/leftovers.ts";
import { isPermissionProblem } from "../../kernel/tool_errors.ts";
import { type Exec, systemExec } from "../../kernel/exec.ts";
import { FAMILIES } from "../../model/objects.ts";
import { errorText, type LogValues } from "../../observe/log.ts";
import { runningSettings } from "../../inspect/running/running.ts";
import type { Io, Terminal } from "../io.ts";
import { escaped } from "../../text/quote.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { audit } from "./audit.ts";
import { configurationWithWarnings } from "./output.ts";

/** Removes what proxies left, or with `--dry-run` lists it. */
export async function cleanupCommand(flags: ParsedFlags, io: Io): Promise<number> {
  // A broken configuration is reported even though little of it matters here, as in kube-proxy.
  const { config, warn } = await configurationWithWarnings(flags, io);
  const dryRun = flags.get("dry-run") ?? false;
  const modes = flags.cleanupModes();
  const of = CLEANUP_PROXIES.find((proxy) => proxy === flags.get("of"));
  if (!dryRun && of !== "kube-proxy") {
    const running = await runningSettings(config);
    if (running !== null && modes.some((mode) => mode === running.config.mode)) {
      warn(`${running.where} runs in mode ${running.config.mode} and writes its rules again: end it first`);
    }
  }
  const audited = (what: LogValues): Promise<void> => audit("cleanup", what, config, io);
  return await cleanUp({
    dryRun,
    modes,
    of,
    flushIpvs: flags.get("flush-ipvs") ?? false,
    excludeCidrs: config.ipvs.excludeCIDRs ?? [],
    audited,
  }, io);
}

/**
 * Removes what proxies left on this node, and prints what it was.
 *
 * @returns 0, or 1 if something could not be removed
 */
export async function cleanUp(
  { dryRun, modes = CLEANUP_MODES, of, flushIpvs = false, excludeCidrs = [], audited }:
    & Pick<CleanupContext, "dryRun" | "flushIpvs" | "excludeCidrs">
    & {
      readonly modes?: readonly CleanupMode[];
      readonly of?: CleanupContext["of"] | undefined;
      /** Called with what was removed, if anything was. */
      readonly audited?: (what: LogValues) => Promise<void>;
    },
  io: Pick<Io, "out" | "err" | "terminal">,
  exec: Exec = systemExec,
): Promise<number> {
  const report = await showing(
    dryRun ? "Looking for what proxies left" : "Removing what proxies left",
    io.terminal ?? null,
    () =>
      removeLeftovers(modes, {
        exec,
        families: FAMILIES,
        dryRun,
        flushIpvs,
        excludeCidrs,
        ...(of === undefined ? {} : { of }),
      }),
  );
  await io.out(dryRun ? cleanupListing(report) : cleanupSummary(report));
  const indistinct = of === undefined ? [] : indistinctModes(modes);
  if (indistinct.length > 0) {
    io.err(
      `Warning: --of=${of} leaves what there is of ${indistinct.length === 1 ? "mode" : "modes"} ${
        indistinct.join(", ").replace(/, ([^,]*)$/, " and $1")
      }: ` +
        "kproxy and kube-proxy use the same names there, and whichever starts takes it over; " +
        "cleanup without --of removes it\n",
    );
  }
  for (const { place, command, reason } of report.kept) {
    io.err(`Warning: ${place}: ${command} left out: ${reason}\n`);
  }
  if (lacksRights(report)) {
    io.err("Error: cleanup needs root or CAP_NET_ADMIN: nothing could be looked at\n");
    return 1;
  }
  if (!dryRun && report.removed.length > 0) {
    const removed = countLeftovers(report).map(([kind, count]) => `${count} ${kind}`).join(", ");
    await audited?.({ modes: modes.join(","), ...(of === undefined ? {} : { of }), removed });
  }
  for (const { place, error } of report.failed) {
    io.err(`Error: Cannot clean up ${place}: ${errorText(error)}\n`);
  }
  return report.failed.length > 0 ? 1 : 0;
}

/** Does the work while a terminal shows which: with the rules of many Services it takes long. */
async function showing<T>(text: string, terminal: Terminal | null, work: () => Promise<T>): Promise<T> {
  if (terminal === null) return await work();
  const { Activity } = await import("../terminal/drawing.ts");
  using activity = new Activity(terminal);
  activity.say(text);
  return await work();
}

/** True if the report has missing permissions only. */
function lacksRights({ removed, kept, failed }: LeftoverReport): boolean {
  return failed.length > 0 && removed.length === 0 && kept.length === 0 &&
    failed.every(({ error }) => isPermissionProblem(errorText(error)));
}

/** One line for each leftover that would be removed. */
function cleanupListing({ removed, failed }: LeftoverReport): string {
  if (removed.length === 0) return failed.length > 0 ? "" : "Nothing to remove\n";
  return removed.map(({ place, command }) => `${escaped(`${place}: ${command}`)}\n`).join("");
}

/** Counts of removed leftovers, by kind. */
function cleanupSummary(report: LeftoverReport): string {
  if (report.removed.length === 0) return report.failed.length > 0 ? "" : "Nothing to remove\n";
  return countLeftovers(report).map(([kind, count]) => `Removed ${count} ${kind}\n`).join("");
}
