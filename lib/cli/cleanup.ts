/**
 * `kproxy cleanup`, and `--cleanup` of `kproxy run`.
 *
 * @module
 */
import { cleanupIptables, type CleanupReport, cleanupTargets } from "../backend/iptables/cleanup.ts";
import { type Exec, systemExec } from "../kernel/exec.ts";
import { errorText } from "../observe/log.ts";
import { effectiveConfiguration } from "./configuration.ts";
import type { Io } from "./io.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** Removes the rules of iptables mode, or with `--dry-run` lists them. */
export async function cleanupCommand(flags: ParsedFlags, io: Io): Promise<number> {
  // A broken configuration is told even though little of it matters here, as in kube-proxy.
  const { warnings } = await effectiveConfiguration(flags);
  for (const warning of warnings) io.err(`Warning: ${warning}\n`);
  return await cleanUp({ dryRun: flags.get("dry-run") ?? false }, io);
}

/**
 * Removes what proxies left on this node and says what it was.
 *
 * @returns 0, or 1 if something could not be removed
 */
export async function cleanUp(
  options: { readonly dryRun: boolean },
  io: Io,
  exec: Exec = systemExec,
): Promise<number> {
  const targets = await cleanupTargets(exec);
  const report = await cleanupIptables(targets, options);
  await io.out(options.dryRun ? cleanupListing(report) : cleanupSummary(report));
  for (const { family, variant, table, command, usedBy } of report.kept) {
    io.err(`Warning: ${family} ${variant} ${table}: ${command} left out: chain ${usedBy} leads there\n`);
  }
  for (const { family, variant, table, error } of report.failed) {
    io.err(
      `Error: Cannot clean up ${[family, variant, table ?? ""].join(" ").trim()}: ${errorText(error)}\n`,
    );
  }
  return report.failed.length > 0 ? 1 : 0;
}

/** One line for each chain or rule that would go. */
function cleanupListing({ removed, failed }: CleanupReport): string {
  if (removed.length === 0) return failed.length > 0 ? "" : "Nothing to remove\n";
  return removed.map(({ family, variant, table, command }) => `${family} ${variant} ${table}: ${command}\n`)
    .join("");
}

/** How much went, by IP family and variant of iptables. */
function cleanupSummary({ removed, failed }: CleanupReport): string {
  if (removed.length === 0) return failed.length > 0 ? "" : "Nothing to remove\n";
  const counts = new Map<string, number>();
  for (const { family, variant } of removed) {
    const place = `${family} ${variant}`;
    counts.set(place, (counts.get(place) ?? 0) + 1);
  }
  return [...counts].map(([place, count]) => `Removed ${count} chains and jumps of ${place}\n`).join("");
}
