/**
 * How long the commands that look take beside a running kproxy, and whether it feels them: `deno run -A tests/bench/look_times.ts
 * [--services N] [--endpoints N] [--asks N] [--touches N] [--mode iptables|nftables] [--variant nft|legacy] [--json]`. Needs root; works in
 * a network namespace of its own.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { alignColumns } from "../../lib/cli/terminal/columns.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { type LookResult, measureLooks, type PhaseFigures } from "./look_measure.ts";
import type { BenchMode } from "./mode.ts";
import { iptablesMode } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";

function parseMode(mode: string | undefined, variant: string | undefined): BenchMode {
  if (mode === "nftables") return NFTABLES_MODE;
  if (mode !== "iptables") throw new RangeError(`--mode must be iptables or nftables: got ${mode}`);
  // Nothing tells of the changes of the other variant.
  if (variant !== "nft") throw new RangeError(`--variant must be nft: got ${variant}`);
  return iptablesMode(variant);
}

function tableOf({ size, mode, load, answers, atRest, lookedAt }: LookResult): readonly string[] {
  const seconds = (ms: number): string => `${(ms / 1000).toFixed(2)} s`;
  const commands = [...answers].map(([command, { times: { p50, max, count }, cpuMs }]) => [
    `kproxy ${command}`,
    `${seconds(p50)} / ${seconds(max)} of ${count}`,
    seconds(cpuMs),
  ]);
  const times = ({ p50, p99, max, count }: PhaseFigures["change"]): string =>
    `${[p50, p99, max].map((ms) => ms.toFixed(1)).join(" / ")} ms of ${count}`;
  const row = (name: string, value: (of: PhaseFigures) => string): string[] => [
    name,
    value(atRest),
    value(lookedAt),
  ];
  return [
    `${mode}, ${size.services} × ${size.endpoints}, load ${load.map((one) => one.toFixed(1)).join(" ")}`,
    ...alignColumns([["", "p50 / max", "CPU time"], ...commands]),
    "",
    ...alignColumns([
      ["", "at rest", `looked at ${lookedAt.looks} times`],
      row(
        "memory at most / at the end",
        ({ peakMb, nowMb }) => `${peakMb.toFixed(0)} / ${nowMb.toFixed(0)} MB`,
      ),
      row("endpoint replaced, p50 / p99 / max", ({ change }) => times(change)),
      row("new connection, p50 / p99 / max", ({ connect }) => times(connect)),
    ]),
  ];
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    boolean: ["json"],
    string: ["services", "endpoints", "asks", "touches", "mode", "variant"],
    default: {
      services: "10000",
      endpoints: "10",
      asks: "10",
      touches: "20",
      mode: "nftables",
      variant: "nft",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  await inBenchFolder(async (folder) => {
    const result = await measureLooks({
      size: { services: Number(args.services), endpoints: Number(args.endpoints) },
      mode: parseMode(args.mode, args.variant),
      asks: Number(args.asks),
      touches: Number(args.touches),
      onProgress: writeErrorLine,
    }, folder);
    const plain = { ...result, answers: Object.fromEntries(result.answers) };
    for (const line of args.json ? [JSON.stringify(plain, null, 2)] : tableOf(result)) writeLine(line);
  });
}
