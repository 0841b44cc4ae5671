/**
 * What one node costs the API server, beside kube-proxy: `deno task bench:api [--peer PATH] [--services N,N] [--endpoints N] [--rounds N]
 * [--minutes N] [--per-second N] [--part compression|start|changes]... [--program PATH] [--json]`. Wants what tests of the real API
 * server want, and makes network namespaces. `--program` is `kproxy.js` of a bundle instead of the source.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { API_PARTS, type ApiFigures, type ApiPart, measureApi } from "./api_measure.ts";
import { changesPerSecond, compressionTable, costTable, requestLines } from "./api_report.ts";
import { findPeer } from "./peer_process.ts";

/** What a command line asks for. */
export interface ApiArgs {
  readonly services: readonly number[];
  readonly endpoints: number;
  readonly rounds: number;
  readonly minutes: number;
  /** Null for what a cluster of that size has. */
  readonly perSecond: number | null;
  readonly parts: readonly ApiPart[];
  readonly peer: string | undefined;
  readonly program: string | undefined;
  readonly isJson: boolean;
}

function positive(name: string, text: string | undefined): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0) {
    throw new RangeError(`--${name} must be more than 0: got ${text}`);
  }
  return value;
}

/** @throws {RangeError} for an argument that is unknown, or that does not fit */
export function parseApiArgs(words: readonly string[]): ApiArgs {
  const args = parseArgs([...words], {
    boolean: ["json"],
    collect: ["part"],
    string: ["services", "endpoints", "rounds", "minutes", "per-second", "part", "peer", "program"],
    default: { services: "1000,5000", endpoints: "10", rounds: "5", minutes: "10" },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const parts = args.part.map((word) => {
    const part = API_PARTS.find((one) => one === word);
    if (part === undefined) {
      throw new RangeError(`--part must be one of ${API_PARTS.join(", ")}: got ${word}`);
    }
    return part;
  });
  const perSecond = args["per-second"];
  return {
    services: (args.services ?? "").split(",").map((text) => positive("services", text)),
    endpoints: positive("endpoints", args.endpoints),
    rounds: positive("rounds", args.rounds),
    minutes: positive("minutes", args.minutes),
    perSecond: perSecond === undefined ? null : positive("per-second", perSecond),
    parts: parts.length === 0 ? API_PARTS : parts,
    peer: args.peer,
    program: args.program,
    isJson: args.json,
  };
}

function asJson(figures: ApiFigures): string {
  return JSON.stringify(figures, (_, value) => value instanceof Map ? Object.fromEntries(value) : value);
}

async function measureAll({ services, endpoints, perSecond, isJson, peer: path, program, ...rest }: ApiArgs) {
  const peer = path === undefined ? null : await findPeer(path);
  const title = peer?.version ?? "";
  for (const count of services) {
    const size = { services: count, endpoints };
    const figures = await measureApi({
      ...rest,
      size,
      peer,
      program: program === undefined ? undefined : await Deno.realPath(program),
      perSecond: perSecond ?? changesPerSecond(size),
      onProgress: (message) => writeErrorLine(`${count} × ${endpoints}: ${message}`),
    });
    if (isJson) writeLine(asJson({ ...figures }));
    else {
      writeLine(`${count} Services and slices of ${endpoints} endpoints`);
      for (const table of [compressionTable(figures.lists), costTable(size, figures, title)]) {
        if (table.length > 0) { for (const line of ["", ...table]) writeLine(line); }
      }
      for (const line of ["", ...requestLines(figures, title), ""]) writeLine(line);
    }
  }
}

if (import.meta.main) {
  try {
    await measureAll(parseApiArgs(Deno.args));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    writeErrorLine(error.message);
    Deno.exit(2);
  }
  // Connections of clients would keep the process alive.
  Deno.exit(0);
}
