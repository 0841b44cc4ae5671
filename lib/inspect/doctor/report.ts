/**
 * Output of `kproxy doctor`: findings of one line each with their fix, and the report made of them.
 *
 * @module
 */
import { errorText } from "../../observe/log.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import { alignColumns } from "../../text/columns.ts";
import { cut, escaped } from "../../text/quote.ts";
import { counted, few } from "../../text/words.ts";
import type { Difference, Migration } from "./migration.ts";

/** Severity of a finding. A failure: kproxy, or the traffic that it serves, does not work. */
export type Level = "ok" | "warning" | "failure";

export interface Finding {
  /** Name of the check, e.g. `forwarding`. Several findings may share it. */
  readonly check: string;
  readonly level: Level;
  readonly what: string;
  /** The fix in one line: command or flag; `""`: nothing to fix. */
  readonly fix: string;
}

export function ok(check: string, what: string): Finding {
  return { check, level: "ok", what: oneLine(what), fix: "" };
}

/** A finding that impairs some traffic, or may. */
export function warning(check: string, what: string, fix: string): Finding {
  return { check, level: "warning", what: oneLine(what), fix };
}

/** A finding that keeps kproxy, or the traffic of Services, from working. */
export function failure(check: string, what: string, fix: string): Finding {
  return { check, level: "failure", what: oneLine(what), fix };
}

/** A finding about a fact that could not be read. */
export function unknown(check: string, reason: unknown): Finding {
  const why = typeof reason === "string" ? reason : errorText(reason);
  return warning(check, `could not be looked at: ${why}`, "fix that, and run kproxy doctor again");
}

/** A possible warning: what impairs some traffic, or may, and its fix; false or undefined: no warning. */
export type Doubt = readonly [what: string, fix: string] | false | undefined;

/** A warning for each doubt; without any, one finding says that all is `well`. */
export function warnings(check: string, well: string | null, doubts: readonly Doubt[]): readonly Finding[] {
  const found = doubts.flatMap((one) => one ? [warning(check, ...one)] : []);
  return found.length > 0 || well === null ? found : [ok(check, well)];
}

const MAX_LENGTH = 400;

/** Cleans text of programs and servers: it may have control characters, many lines, and no end. */
function oneLine(text: string): string {
  return escaped(cut(text.replace(/\s+/g, " ").trim(), MAX_LENGTH));
}

/** Report of one run of the checks, in the shape of `-o json`. */
export interface DoctorReport {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "DoctorReport";
  readonly node: string;
  /** The mode in use, or the one that would be used. */
  readonly mode: string;
  readonly result: Level;
  readonly findings: readonly Finding[];
  /** Null without `--migrate-to`, and where Services could not be read, which is a finding. */
  readonly migration: Migration | null;
}

/** Levels in the order of the report, failures first. */
const LEVELS: readonly Level[] = ["failure", "warning", "ok"];

export function doctorReport(
  { node, mode, findings, migration }: Pick<DoctorReport, "node" | "mode" | "findings" | "migration">,
): DoctorReport {
  const result = LEVELS.find((level) => findings.some((finding) => finding.level === level)) ?? "ok";
  return { apiVersion: API_VERSION, kind: "DoctorReport", node, mode, result, findings, migration };
}

/** Lines of the report; the fix of a finding is below it. */
export function reportLines(report: DoctorReport): readonly string[] {
  const rows = LEVELS.flatMap((level) =>
    report.findings.filter((finding) => finding.level === level).flatMap(({ check, what, fix }) => [
      [level === "failure" ? "FAILURE" : level, check, what],
      ...(fix === "" ? [] : [["", "", `-> ${fix}`]]),
    ])
  );
  const migration = report.migration === null ? [] : ["", ...migrationLines(report.migration)];
  return [...alignColumns(rows), "", reportSummary(report), ...migration];
}

function reportSummary({ node, mode, findings }: DoctorReport): string {
  const count = (level: Level): number => findings.filter((finding) => finding.level === level).length;
  const [failures, warnings] = [counted0(count("failure"), "failure"), counted0(count("warning"), "warning")];
  return `Node ${node}, mode ${mode}: ${failures}, ${warnings}, ${count("ok")} ok`;
}

/** Lines of a migration, with empty lines between its parts. */
function migrationLines(migration: Migration): readonly string[] {
  const { from, to, everyService, services, serviceCount, objectsFrom } = migration;
  const lines = [`From mode ${from} to mode ${to}`, ""];
  if (everyService.length > 0) lines.push("For every Service:", ...everyService.flatMap(differenceLines), "");
  const of = `of ${counted0(serviceCount, "Service")} (${objectsFrom})`;
  if (services.length === 0) return [...lines, `None ${of} would behave differently besides.`];
  lines.push(`${services.length} ${of} would behave differently besides:`);
  for (const { namespace, name, differences } of services) {
    lines.push("", `${namespace}/${name}`, ...differences.flatMap(differenceLines));
  }
  return lines;
}

function differenceLines({ topic, from, to }: Difference): readonly string[] {
  return [`  ${topic}`, `    now:  ${from}`, `    then: ${to}`];
}

function counted0(count: number, word: string): string {
  return count === 0 ? `no ${word}s` : counted(count, word);
}

/** Objects that could not be read, in one line. */
export function rejectedText(rejected: readonly string[]): string {
  return `${counted0(rejected.length, "object")} left out: ${few(rejected)}`;
}
