/**
 * The figures of kproxy beside kube-proxy, as `deno task bench --peer PATH --json` printed them: one file of `docs/figures/` for each run.
 *
 * @module
 */
import { ROOT } from "../project_files.ts";

/** One proxy, or the bare tool, which has no memory to tell of. */
export interface Measured {
  /** Start to Services answering, median of the rounds, in seconds; of the bare tool, its start to its end. */
  readonly firstSyncSeconds: number;
  /** One endpoint replaced, in milliseconds. */
  readonly touchMs: { readonly p50: number; readonly max: number };
}

/** Memory after all changes, in megabytes. */
export interface MeasuredMemory {
  readonly residentMb: number;
  readonly anonymousMb: number;
  readonly peakMb: number;
}

/** What one run measured. */
export interface ScaleRun {
  readonly mode: "iptables" | "nftables";
  readonly services: number;
  readonly endpoints: number;
  readonly program: "source" | "bundle";
  /** `2026-11-23`. */
  readonly measured: string;
  /** What kube-proxy says of itself. */
  readonly version: string;
  /** Of the last minute before the changes. */
  readonly load: number;
  readonly kproxy: Measured & MeasuredMemory;
  readonly peer: Measured & MeasuredMemory;
  readonly bare: Measured;
}

/** Where the runs are, relative to the project's folder. */
const FIGURES_FOLDER = "docs/figures";

/** What a run's text says at a path of keys. */
class RunText {
  readonly #file: string;
  readonly #value: unknown;

  constructor(file: string, text: string) {
    this.#file = file;
    this.#value = JSON.parse(text);
  }

  #at(path: string): unknown {
    let value = this.#value;
    for (const key of path.split(".")) {
      const isObject = typeof value === "object" && value !== null && Object.hasOwn(value, key);
      value = isObject ? (value as Record<string, unknown>)[key] : undefined;
    }
    return value;
  }

  #wrong(path: string, sort: string): SyntaxError {
    return new SyntaxError(`${this.#file}: ${path} must be ${sort}`);
  }

  number(path: string): number {
    const value = this.#at(path);
    if (typeof value !== "number" || !(value > 0)) throw this.#wrong(path, "a number above 0");
    return value;
  }

  text<T extends string>(path: string, isFit: (text: string) => text is T): T {
    const value = this.#at(path);
    if (typeof value !== "string" || !isFit(value)) throw this.#wrong(path, "a text that fits");
    return value;
  }

  /** Nearest rank, as everywhere in the benchmark. */
  median(path: string): number {
    const value = this.#at(path);
    const samples: unknown[] = Array.isArray(value) ? value : [];
    const numbers = samples.filter((sample) => typeof sample === "number").sort((a, b) => a - b);
    const median = numbers[Math.ceil(numbers.length / 2) - 1];
    if (median === undefined || numbers.length < samples.length) throw this.#wrong(path, "a list of numbers");
    return median;
  }
}

function isAnyText(text: string): text is string {
  return text !== "";
}

function isProgram(text: string): text is ScaleRun["program"] {
  return text === "source" || text === "bundle";
}

function isMode(text: string): text is "nftables" | "iptables (nft)" {
  return text === "nftables" || text === "iptables (nft)";
}

/** @throws {SyntaxError} if it is no run beside a kube-proxy */
export function parseRun(file: string, text: string): ScaleRun {
  const run = new RunText(file, text);
  const memory = (path: string): MeasuredMemory => ({
    residentMb: run.number(`${path}memoryAtEnd.nowMb`),
    anonymousMb: run.number(`${path}memoryAtEnd.anonymousMb`),
    peakMb: run.number(`${path}memoryAtEnd.peakMb`),
  });
  const measured = (firstSync: string, touch: string): Measured => ({
    firstSyncSeconds: run.median(firstSync) / 1000,
    touchMs: { p50: run.number(`${touch}.p50`), max: run.number(`${touch}.max`) },
  });
  return {
    mode: run.text("mode", isMode) === "nftables" ? "nftables" : "iptables",
    services: run.number("size.services"),
    endpoints: run.number("size.endpoints"),
    program: run.text("program", isProgram),
    measured: run.text("measured", isAnyText),
    version: run.text("peer.version", isAnyText),
    load: run.number("load.0"),
    kproxy: { ...measured("firstSync.answeredMs", "touch.kproxy"), ...memory("") },
    peer: { ...measured("peer.firstSync.answeredMs", "peer.touch"), ...memory("peer.") },
    bare: measured("firstSync.bareMs", "touch.bare"),
  };
}

/** All runs that are kept: by mode, size, and the bundle before the source. */
export function measuredRuns(): ScaleRun[] {
  const files = [...Deno.readDirSync(`${ROOT}/${FIGURES_FOLDER}`)].map(({ name }) => name);
  return files.filter((name) => name.endsWith(".json")).map((name) => {
    const file = `${FIGURES_FOLDER}/${name}`;
    return parseRun(file, Deno.readTextFileSync(`${ROOT}/${file}`));
  }).sort((a, b) =>
    b.mode.localeCompare(a.mode) || a.services - b.services || a.program.localeCompare(b.program)
  );
}
