/**
 * The benchmark task: `deno task bench [--services N] [--endpoints N] [--touches N] [--added N] [--rounds N]
 * [--variant nft|legacy] [--one-transaction] [--json]`. Needs root; works in network namespaces of its own.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { quantile } from "./figures.ts";
import { type BenchResult, type ChangeFigures, measure } from "./measure.ts";
import type { Variant } from "./recording.ts";

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`;
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(1)} ms`;
}

function changeRow(name: string, { kproxy, bare, ratio, programs, bytes }: ChangeFigures): string[] {
  const times = (of: typeof kproxy): string =>
    `${of.p50.toFixed(1)} / ${of.p99.toFixed(1)} / ${of.max.toFixed(1)} ms`;
  return [name, times(kproxy), times(bare), `${ratio.toFixed(2)} ×`, `${programs} / ${bytes}`];
}

/** The result as a table for people. */
export function resultTable(result: BenchResult): string[] {
  const { firstSync, size } = result;
  const rows = [
    ["", "kproxy", "bare program", "ratio", "programs / bytes"],
    [
      `first sync, median of ${firstSync.kproxyMs.length}`,
      seconds(quantile(firstSync.kproxyMs, 0.5)),
      seconds(quantile(firstSync.bareMs, 0.5)),
      `${firstSync.ratio.toFixed(2)} ×`,
      `${firstSync.programs.length} / ${firstSync.bytes}`,
    ],
    changeRow(`one endpoint replaced, p50 / p99 / max of ${result.touch.kproxy.count}`, result.touch),
    changeRow(
      `Service added, p50 / p99 / max of ${result.serviceAdded.kproxy.count}`,
      result.serviceAdded,
    ),
    changeRow(
      `Service deleted, p50 / p99 / max of ${result.serviceDeleted.kproxy.count}`,
      result.serviceDeleted,
    ),
  ];
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const lines = rows.map((row) =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ").trimEnd()
  );
  const { memoryAfterFirstSync, memoryAtEnd } = result;
  return [
    `${size.services} Services × ${size.endpoints} endpoints, iptables (${result.variant}), load ${
      result.load.map((value) => value.toFixed(2)).join(" ")
    }`,
    ...lines,
    `first syncs: kproxy ${firstSync.kproxyMs.map(seconds).join(", ")}; bare ${
      firstSync.bareMs.map(seconds).join(", ")
    }; ${firstSync.transactions} transactions`,
    ...(firstSync.oneTransactionMs === null
      ? []
      : [`bare, one transaction per table: ${seconds(firstSync.oneTransactionMs)}`]),
    `memory: ${memoryAfterFirstSync.nowMb.toFixed(0)} MB after the first sync, ${
      memoryAtEnd.nowMb.toFixed(0)
    } MB at the end, peak ${memoryAtEnd.peakMb.toFixed(0)} MB`,
    `CPU: ${milliseconds(result.cpuMsPerTouch)} per replaced endpoint, programs included; idle ${
      result.idleCpuPercent.toFixed(2)
    } % of a core`,
    ...(result.lostEvents ? ["The kernel dropped events: the machine was too busy to be measured"] : []),
  ];
}

function positive(name: string, text: string | undefined): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new RangeError(`--${name} must be a number of 1 or more: got ${text}`);
  }
  return value;
}

function parseVariant(text: string | undefined): Variant {
  if (text !== "nft" && text !== "legacy") {
    throw new RangeError(`--variant must be nft or legacy: got ${text}`);
  }
  return text;
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    boolean: ["json", "one-transaction"],
    string: ["services", "endpoints", "touches", "added", "rounds", "variant", "idle-seconds"],
    default: {
      services: "1000",
      endpoints: "10",
      touches: "30",
      added: "10",
      rounds: "3",
      variant: "nft",
      "idle-seconds": "10",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const size = {
    services: positive("services", args.services),
    endpoints: positive("endpoints", args.endpoints),
  };
  const result = await measure({
    size,
    variant: parseVariant(args.variant),
    touches: positive("touches", args.touches),
    added: positive("added", args.added),
    rounds: positive("rounds", args.rounds),
    spacingMs: 1300,
    idleMs: 1000 * positive("idle-seconds", args["idle-seconds"]),
    oneTransaction: args["one-transaction"],
    onProgress: (message) => writeErrorLine(`${size.services} × ${size.endpoints}: ${message}`),
  });
  for (const line of args.json ? [JSON.stringify(result, null, 2)] : resultTable(result)) writeLine(line);
}
