/**
 * The result of a benchmark as text.
 *
 * @module
 */
import { alignColumns } from "../../lib/cli/terminal/columns.ts";
import { type Distribution, quantile } from "./figures.ts";
import type { BenchResult, ChangeFigures } from "./measure.ts";
import type { PeerResult } from "./peer_bench.ts";
import type { ProxyCosts } from "./proxy_costs.ts";

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`;
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(1)} ms`;
}

function times({ p50, p99, max }: Distribution): string {
  return `${p50.toFixed(1)} / ${p99.toFixed(1)} / ${max.toFixed(1)} ms`;
}

function changeRow(name: string, { kproxy, bare, ratio, programs, bytes }: ChangeFigures): string[] {
  return [name, times(kproxy), times(bare), `${ratio.toFixed(2)} ×`, `${programs} / ${bytes}`];
}

/** Memory and processor, a line each. */
function costLines(name: string, costs: ProxyCosts): string[] {
  const { memoryAfterFirstSync, memoryAtEnd } = costs;
  return [
    `${name}, memory: ${memoryAfterFirstSync.nowMb.toFixed(0)} MB after the first sync, ${
      memoryAtEnd.nowMb.toFixed(0)
    } MB at the end (${memoryAtEnd.anonymousMb.toFixed(0)} MB of it anonymous), peak ${
      memoryAtEnd.peakMb.toFixed(0)
    } MB; over the changes ${costs.memoryByTenth.map((mb) => mb.toFixed(0)).join(" ")} MB`,
    `${name}, CPU: ${seconds(costs.startCpuMs)} for the start, ${
      milliseconds(costs.cpuMsPerTouch)
    } per replaced endpoint, programs included; idle ${
      costs.idleCpuPercent.toFixed(2)
    } % of a core, programs ${costs.idleProgramsPercent.toFixed(2)} % of it`,
  ];
}

/** kproxy beside its peer, both asked in the same way. */
function peerLines(result: BenchResult, peer: PeerResult): string[] {
  const median = (samples: readonly number[]): string => seconds(quantile(samples, 0.5));
  const count = peer.touch.count;
  return [
    "",
    ...alignColumns([
      ["", "kproxy", peer.version],
      [
        "first sync, until Services answered",
        median(result.firstSync.answeredMs),
        median(peer.firstSync.answeredMs),
      ],
      [
        `one endpoint replaced, p50 / p99 / max of ${count}`,
        times(result.touch.kproxy),
        times(peer.touch),
      ],
      ["Service added", times(result.serviceAdded.kproxy), times(peer.serviceAdded)],
      ["Service deleted", times(result.serviceDeleted.kproxy), times(peer.serviceDeleted)],
    ]),
    ...costLines(peer.version, peer),
    ...lostLine(peer.lostEvents),
  ];
}

function lostLine(isLost: boolean): string[] {
  return isLost ? ["The kernel dropped events: the machine was too busy to be measured"] : [];
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
    ...(firstSync.answeredMs.length === 0
      ? []
      : [`until sample Services answered connections: ${firstSync.answeredMs.map(seconds).join(", ")}`]),
    ...costLines("kproxy", result),
    ...lostLine(result.lostEvents),
    ...(result.peer === null ? [] : peerLines(result, result.peer)),
  ];
}
