/**
 * Thundering herds: `deno run -A tests/bench/herd_times.ts [--clients N] [--services N] [--endpoints N] [--as KIND]... [--incident NAME]...
 * [--down-seconds N] [--json]`. Wants what tests of kapi want.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import {
  type HerdKind,
  type Incident,
  type IncidentFigures,
  INCIDENTS,
  measureHerd,
} from "./herd_measure.ts";

const KINDS: readonly HerdKind[] = ["kproxy", "kproxy without jitter", "client-go"];

function chosen<T extends string>(name: string, words: readonly string[], all: readonly T[]): readonly T[] {
  if (words.length === 0) return all;
  return words.map((word) => {
    const found = all.find((one) => one === word);
    if (found === undefined) throw new RangeError(`--${name} must be one of ${all.join(", ")}: got ${word}`);
    return found;
  });
}

function rowOf(kind: HerdKind, figures: IncidentFigures): string {
  const { incident, peakPerSecond, codes, megabytes, recovered, serverCpuSeconds } = figures;
  const answers = Object.entries(codes).map(([code, count]) => `${count} × ${code}`).join(", ");
  const times = [recovered.p50, recovered.p99, recovered.all].map((seconds) => seconds.toFixed(1)).join(
    " / ",
  );
  const cells = [incident, kind, String(peakPerSecond), answers, megabytes.toFixed(1), times];
  return `| ${[...cells, serverCpuSeconds.toFixed(1)].join(" | ")} |`;
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    boolean: ["json"],
    string: ["clients", "services", "endpoints", "down-seconds", "as", "incident"],
    collect: ["as", "incident"],
    default: { clients: "500", services: "200", endpoints: "10", "down-seconds": "5" },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const kinds = chosen("as", args.as as string[], KINDS);
  const incidents: readonly Incident[] = chosen("incident", args.incident as string[], INCIDENTS);
  if (!args.json) {
    writeLine(
      "| incident | clients | most a second | answers | MB | in step, p50 / p99 / all, s | server CPU, s |",
    );
    writeLine("| --- | --- | --- | --- | --- | --- | --- |");
  }
  for (const kind of kinds) {
    await measureHerd({
      clients: Number(args.clients),
      services: Number(args.services),
      endpoints: Number(args.endpoints),
      kind,
      incidents,
      downMs: 1000 * Number(args["down-seconds"]),
      onProgress: (message) => writeErrorLine(`${kind}: ${message}`),
      onIncident: (figures) =>
        writeLine(args.json ? JSON.stringify({ kind, ...figures }) : rowOf(kind, figures)),
    });
  }
}
