/**
 * What upstream's tests said of a proxy, as it is kept in `records`: one file for each proxy, mode and order of families.
 *
 * @module
 */
import { pathExists } from "../support/path_exists.ts";

/** How a test of upstream's ended. */
export interface TestOutcome {
  readonly outcome: "passed" | "failed" | "skipped";
  readonly seconds: number;
  /** Why the test itself left out its work, or what failed; absent where it passed. */
  readonly why?: string;
}

/** How something that operators do ended. */
export interface StepOutcome {
  readonly outcome: "passed" | "failed";
  readonly seconds: number;
  /** What was seen, or what went wrong. */
  readonly told: string;
}

/** One proxy in one mode in one kind of cluster. */
export interface ConformanceRecord {
  readonly proxy: string;
  /** As it says of itself. */
  readonly version: string;
  readonly mode: string;
  /** The primary one first. */
  readonly families: string;
  /** ISO 8601, of the last run. */
  readonly date: string;
  readonly nodes: number;
  readonly kubernetes: string;
  readonly containerd: string;
  readonly kernel: string;
  /** By the test's name: those that were run. */
  readonly tests: Readonly<Record<string, TestOutcome>>;
  /** Other tests of [sig-network], which were not run. */
  readonly notRun: readonly string[];
  /** By the step's name. */
  readonly steps: Readonly<Record<string, StepOutcome>>;
}

/** The tests of `[sig-network]` in a JUnit file of ginkgo's: how those that were run ended, and which others there are. */
export function readJunit(text: string): Pick<ConformanceRecord, "tests" | "notRun"> {
  const tests: Record<string, TestOutcome> = {};
  const notRun: string[] = [];
  for (
    const [, head = "", short, body = ""] of text.matchAll(/<testcase ([^>]*?)(?:(\/)|>(.*?)<\/testcase)>/gs)
  ) {
    const name = attribute(head, "name").replace(/^\[It\] /, "");
    // What was under way when the time was over did not end in any way.
    if (!name.startsWith("[sig-network]") || attribute(head, "status") === "interrupted") continue;
    const seconds = Math.round(Number(attribute(head, "time")) * 10) / 10;
    const skipped = short === undefined ? /<skipped([^>]*)>/.exec(body) : null;
    const failed = short === undefined ? /<(?:failure|error)([^>]*)>([^<]*)/.exec(body) : null;
    const message = attribute(skipped?.[1] ?? failed?.[1] ?? "", "message").replace(/^skipped - /, "");
    const why = message || unescaped(failed?.[2] ?? "").replace("[FAILED] ", "");
    // What was not asked for is skipped without a reason.
    if (skipped !== null && (why === "" || why === "skipped")) notRun.push(name);
    else if (skipped !== null) tests[name] = { outcome: "skipped", seconds, why: firstLine(why) };
    else if (failed !== null) tests[name] = { outcome: "failed", seconds, why: firstLine(why) };
    else tests[name] = { outcome: "passed", seconds };
  }
  return { tests, notRun };
}

function attribute(head: string, name: string): string {
  return unescaped(new RegExp(`(?:^|\\s)${name}="([^"]*)"`).exec(head)?.[1] ?? "");
}

function unescaped(text: string): string {
  const entities: Readonly<Record<string, string>> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };
  return text.replace(/&(?:#(x?[0-9a-fA-F]+)|(\w+));/g, (all, code: string | undefined, word: string) => {
    if (code !== undefined) return String.fromCodePoint(Number(code.startsWith("x") ? `0${code}` : code));
    return entities[word] ?? all;
  });
}

function firstLine(text: string): string {
  const [line = ""] = text.trim().split("\n");
  return line.length > 200 ? `${line.slice(0, 199)}…` : line;
}

/** Writes what a run brought over what is kept of an earlier one of the same proxy, version and Kubernetes; else in its place. */
export async function keepRecord(path: string, fresh: ConformanceRecord): Promise<ConformanceRecord> {
  const before = await pathExists(path)
    ? JSON.parse(await Deno.readTextFile(path)) as ConformanceRecord
    : null;
  const goesOn = before !== null && before.version === fresh.version &&
    before.kubernetes === fresh.kubernetes;
  const [tests, steps] = (["tests", "steps"] as const).map((part) =>
    sorted({ ...(goesOn ? before[part] : {}), ...fresh[part] })
  );
  const known = new Set([...(goesOn ? before.notRun : []), ...fresh.notRun]);
  const notRun = [...known].filter((name) => tests?.[name] === undefined).sort();
  const all = { ...fresh, tests, steps, notRun } as ConformanceRecord;
  await Deno.writeTextFile(path, `${JSON.stringify(all, null, 2)}\n`);
  return all;
}

function sorted<T>(values: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(values).sort(([a], [b]) => a < b ? -1 : 1));
}
