/**
 * The command line of `deno task bench`.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { parseMode } from "./bench_modes.ts";
import type { BenchOptions } from "./measure.ts";

/** What a command line asks for. */
export interface BenchArgs {
  readonly options: Omit<BenchOptions, "onProgress" | "onChange" | "program" | "peer">;
  /** Paths as they were given. */
  readonly program: string | undefined;
  readonly peer: string | undefined;
  readonly isJson: boolean;
}

function positive(name: string, text: string | undefined): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new RangeError(`--${name} must be a number of 1 or more: got ${text}`);
  }
  return value;
}

/** True for `--mode userspace`, of which connections are measured, with other arguments. */
export function isUserspace(words: readonly string[]): boolean {
  return parseArgs([...words], { string: ["mode"] }).mode === "userspace";
}

/** @throws {RangeError} for an argument that is unknown, or that does not fit */
export function parseBenchArgs(words: readonly string[]): BenchArgs {
  const args = parseArgs([...words], {
    boolean: ["json", "one-transaction"],
    string: [
      "services",
      "endpoints",
      "touches",
      "added",
      "rounds",
      "mode",
      "variant",
      "program",
      "peer",
      "idle-seconds",
      "rest-seconds",
      "spacing-ms",
    ],
    default: {
      services: "1000",
      endpoints: "10",
      touches: "100",
      added: "10",
      rounds: "3",
      mode: "iptables",
      variant: "nft",
      "idle-seconds": "40",
      "rest-seconds": "0",
      "spacing-ms": "1300",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const { program, peer } = args;
  const mode = parseMode(args.mode, args.variant);
  if (peer === "") throw new RangeError("--peer must be the path of a kube-proxy");
  if (peer !== undefined && (!mode.isAnswering || mode.openWatch === null)) {
    throw new RangeError(`--peer cannot be measured in mode ${mode.title}`);
  }
  return {
    options: {
      size: {
        services: positive("services", args.services),
        endpoints: positive("endpoints", args.endpoints),
      },
      mode,
      touches: positive("touches", args.touches),
      added: positive("added", args.added),
      rounds: positive("rounds", args.rounds),
      spacingMs: positive("spacing-ms", args["spacing-ms"]),
      restMs: 1000 * Number(args["rest-seconds"]),
      idleMs: 1000 * positive("idle-seconds", args["idle-seconds"]),
      oneTransaction: args["one-transaction"],
    },
    program,
    peer,
    isJson: args.json,
  };
}
