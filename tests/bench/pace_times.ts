/**
 * How kproxy fares while changes come at a pace: `deno run -A tests/bench/pace_times.ts [--mode iptables|nftables|ipvs]
 * [--services N] [--endpoints N] [--per-second N] [--minutes N] [--part-seconds N] [--bursts N] [--burst-size N] [--burst-spacing-ms N]
 * [--rest-seconds N] [--idle-seconds N] [--min-sync-period-ms N] [--program PATH] [--json]`. Needs root; works in a network namespace of its own, that
 * of mode ipvs in a user-mode Linux that it boots.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { alignColumns } from "../../lib/cli/terminal/columns.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { parseMode } from "./bench_modes.ts";
import type { Distribution } from "./figures.ts";
import { isUserModeLinux, runInLab } from "./lab.ts";
import { measurePace, type PaceResult } from "./pace_measure.ts";

function times({ p50, p99, max, count }: Distribution): string {
  return `${[p50, p99, max].map((ms) => ms.toFixed(1)).join(" / ")} ms of ${count}`;
}

function tableOf(result: PaceResult): readonly string[] {
  const { size, mode, load, idle, burst, parts, changes, syncs, cpuPercent, lost } = result;
  const lines = [
    `${mode}, ${size.services} × ${size.endpoints}, load ${load.map((one) => one.toFixed(1)).join(" ")}`,
  ];
  if (idle !== null) {
    const { ownPercent, programsPercent } = idle;
    const all = (ownPercent + programsPercent).toFixed(2);
    lines.push(`at rest: ${all} % of a core, programs ${programsPercent.toFixed(2)} % of it`);
  }
  if (burst !== null) {
    lines.push(`bursts, p50 / p99 / max: ${times(burst.all)}; the first of each ${times(burst.first)}`);
  }
  const rows = parts.map(({ change, nowMb, anonymousMb }, part) => [
    String(part + 1),
    times(change),
    `${nowMb.toFixed(1)} / ${anonymousMb.toFixed(1)} MB`,
  ]);
  lines.push(
    ...alignColumns([["part", "change, p50 / p99 / max", "resident / anonymous"], ...rows]),
    `${changes} changes in ${syncs} syncs, ${cpuPercent.toFixed(1)} % of a core`,
    `in the kernel at the end: ${lost.missing} endpoints missing, ${lost.extra} too many`,
  );
  if (result.lostEvents) lines.push("The kernel dropped events: the machine was too busy to be measured");
  return lines;
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    boolean: ["json"],
    string: [
      ...["mode", "variant", "services", "endpoints", "per-second", "minutes", "part-seconds", "bursts"],
      ...["burst-size", "burst-spacing-ms", "rest-seconds", "idle-seconds", "min-sync-period-ms", "program"],
    ],
    default: {
      mode: "nftables",
      variant: "nft",
      services: "1000",
      endpoints: "10",
      "per-second": "200",
      minutes: "10",
      "part-seconds": "60",
      bursts: "20",
      "burst-size": "50",
      "burst-spacing-ms": "10",
      "rest-seconds": "0",
      "idle-seconds": "0",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const mode = parseMode(args.mode, args.variant);
  if (mode.proxyMode === "ipvs" && !isUserModeLinux()) {
    writeErrorLine("In a user-mode Linux, which prints its output when it ends");
    Deno.exit(await runInLab(import.meta.filename ?? "", Deno.args));
  }
  const minSyncPeriod = args["min-sync-period-ms"];
  await inBenchFolder(async (folder) => {
    const result = await measurePace({
      size: { services: Number(args.services), endpoints: Number(args.endpoints) },
      mode,
      perSecond: Number(args["per-second"]),
      steadyMs: 60_000 * Number(args.minutes),
      partMs: 1000 * Number(args["part-seconds"]),
      bursts: Number(args.bursts),
      burstSize: Number(args["burst-size"]),
      burstSpacingMs: Number(args["burst-spacing-ms"]),
      restMs: 1000 * Number(args["rest-seconds"]),
      idleMs: 1000 * Number(args["idle-seconds"]),
      minSyncPeriodMs: minSyncPeriod === undefined ? undefined : Number(minSyncPeriod),
      program: args.program === undefined ? undefined : await Deno.realPath(args.program),
      onProgress: writeErrorLine,
    }, folder);
    for (const line of args.json ? [JSON.stringify(result, null, 2)] : tableOf(result)) writeLine(line);
  });
}
