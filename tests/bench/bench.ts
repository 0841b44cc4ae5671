/**
 * The benchmark task: `deno task bench [--services N] [--endpoints N] [--touches N] [--added N] [--rounds N]
 * [--idle-seconds N] [--variant nft|legacy] [--one-transaction] [--json]`. Needs root; works in network namespaces of its own.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { removeOpenNetns, type Variant } from "./bench_netns.ts";
import { type BenchOptions, measure } from "./measure.ts";
import { resultTable } from "./report.ts";

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

async function stop(folder: string): Promise<void> {
  await removeOpenNetns();
  await Deno.remove(folder, { recursive: true });
  Deno.exit(130);
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    boolean: ["json", "one-transaction"],
    string: ["services", "endpoints", "touches", "added", "rounds", "variant", "idle-seconds"],
    default: {
      services: "1000",
      endpoints: "10",
      touches: "100",
      added: "10",
      rounds: "3",
      variant: "nft",
      "idle-seconds": "40",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const size = {
    services: positive("services", args.services),
    endpoints: positive("endpoints", args.endpoints),
  };
  const options: BenchOptions = {
    size,
    variant: parseVariant(args.variant),
    touches: positive("touches", args.touches),
    added: positive("added", args.added),
    rounds: positive("rounds", args.rounds),
    spacingMs: 1300,
    idleMs: 1000 * positive("idle-seconds", args["idle-seconds"]),
    oneTransaction: args["one-transaction"],
    onProgress: (message) => writeErrorLine(`${size.services} × ${size.endpoints}: ${message}`),
  };
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-" });
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => void stop(folder));
  }
  try {
    const result = await measure(options, folder);
    for (const line of args.json ? [JSON.stringify(result, null, 2)] : resultTable(result)) writeLine(line);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  // The listeners would keep the process alive.
  Deno.exit(0);
}
