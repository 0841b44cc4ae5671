/**
 * The command line of `deno task bench`.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import type { BenchMode } from "./mode.ts";
import { IPTABLES_MODE } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";

/** What is measured: proxies at several sizes, or the way of packets. */
export type Subject = "proxies" | "packets";

/** What a command line asks for. */
export interface BenchArgs {
  readonly subject: Subject;
  readonly modes: readonly BenchMode[];
  /** Numbers of Services. */
  readonly sizes: readonly number[];
  readonly endpoints: number;
  readonly rounds: number;
  /** Replaced endpoints in each round. */
  readonly changes: number;
  /** `kproxy.js` of a bundle to measure instead of that of these sources, of which records are. */
  readonly program: string | undefined;
  /** Path of a kube-proxy, as it was given. */
  readonly peer: string | undefined;
  readonly peerLimitMs: number;
  /** Whether the record is written into the project. */
  readonly isRecorded: boolean;
}

const MODES: readonly BenchMode[] = [NFTABLES_MODE, IPTABLES_MODE];
/** Of one run whose figures are shown. */
const SIZES: Readonly<Record<Subject, readonly string[]>> = {
  proxies: ["100", "1000", "5000", "10000"],
  packets: ["1000"],
};

function positive(name: string, text: string | undefined): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new RangeError(`--${name} must be a number of 1 or more: got ${text}`);
  }
  return value;
}

function modeOf(name: string): BenchMode {
  const mode = MODES.find(({ proxyMode }) => proxyMode === name);
  if (mode === undefined) throw new RangeError(`--mode must be nftables or iptables: got ${name}`);
  return mode;
}

/** @throws {RangeError} for an argument that is unknown, or that does not fit */
export function parseBenchArgs(words: readonly string[]): BenchArgs {
  const args = parseArgs([...words], {
    boolean: ["record"],
    string: ["mode", "services", "endpoints", "rounds", "changes", "program", "peer", "peer-seconds", "_"],
    collect: ["mode", "services"],
    default: { endpoints: "10", rounds: "5", changes: "3", "peer-seconds": "45" },
    unknown: (arg, key) => {
      if (key !== undefined) throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const [subject = "", ...more] = args._.map(String);
  if (subject !== "proxies" && subject !== "packets" || more.length > 0) {
    throw new RangeError(`One of proxies and packets can be measured: got ${args._.join(" ") || "nothing"}`);
  }
  if (args.peer === "") throw new RangeError("--peer must be the path of a kube-proxy");
  if (args.record && args.program !== undefined) throw new RangeError("--record measures no other --program");
  if (args.record && !(Number(args.rounds) >= 5)) {
    throw new RangeError("--record needs --rounds of 5 or more");
  }
  const services = args.services as readonly string[];
  const modes = args.mode as readonly string[];
  return {
    subject,
    modes: modes.length > 0 ? modes.map(modeOf) : MODES,
    sizes: (services.length > 0 ? services : SIZES[subject]).map((text) => positive("services", text)),
    endpoints: positive("endpoints", args.endpoints),
    rounds: positive("rounds", args.rounds),
    changes: positive("changes", args.changes),
    program: args.program,
    peer: args.peer,
    peerLimitMs: 1000 * positive("peer-seconds", args["peer-seconds"]),
    isRecorded: args.record,
  };
}
