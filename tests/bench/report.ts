/**
 * The result of a benchmark as text.
 *
 * @module
 */
import { alignColumns } from "../../lib/cli/terminal/columns.ts";
import { quantile } from "./figures.ts";
import type { BenchResult, ChangeFigures } from "./measure.ts";

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
  const lines = alignColumns(rows);
  const { memoryAfterFirstSync, memoryAtEnd } = result;
  return [
    `${size.services} Services × ${size.endpoints} endpoints, ${result.mode}, load ${
      result.load.map((value) => value.toFixed(2)).join(" ")
    }`,
    ...lines,
    `first syncs: kproxy ${firstSync.kproxyMs.map(seconds).join(", ")}; bare ${
      firstSync.bareMs.map(seconds).join(", ")
    }; ${firstSync.transactions} transactions`,
    `an empty program of the same runtime: ${
      firstSync.runtimeMs.map(seconds).join(", ")
    }; without it the first sync is ${firstSync.ratioWithoutRuntime.toFixed(2)} ×`,
    ...(firstSync.oneTransactionMs === null
      ? []
      : [`bare, all in one transaction: ${seconds(firstSync.oneTransactionMs)}`]),
    `memory: ${memoryAfterFirstSync.nowMb.toFixed(0)} MB after the first sync, ${
      memoryAtEnd.nowMb.toFixed(0)
    } MB at the end, peak ${memoryAtEnd.peakMb.toFixed(0)} MB; over the changes ${
      result.memoryByTenth.map((mb) => mb.toFixed(0)).join(" ")
    } MB`,
    `CPU: ${seconds(result.startCpuMs)} for the start, ${
      milliseconds(result.cpuMsPerTouch)
    } per replaced endpoint, programs included; idle ${
      result.idleCpuPercent.toFixed(2)
    } % of a core, programs ${result.idleProgramsPercent.toFixed(2)} % of it`,
    ...(result.lostEvents ? ["The kernel dropped events: the machine was too busy to be measured"] : []),
  ];
}
