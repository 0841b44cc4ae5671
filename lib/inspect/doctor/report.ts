/**
 * What `kproxy doctor` says: findings of one line each with the way to mend them, and the report made of them.
 *
 * @module
 */
import { errorText } from "../../observe/log.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import { alignColumns } from "../../text/columns.ts";
import { cut, escaped } from "../../text/quote.ts";
import { counted, few } from "../../text/words.ts";
import type { Difference, Migration } from "./migration.ts";

/** How bad a finding is: with a failure kproxy, or what it is for, does not work. */
export type Level = "ok" | "warning" | "failure";

export interface Finding {
  /** What was looked at, e.g. `forwarding`. Several findings may have the same. */
  readonly check: string;
  readonly level: Level;
  readonly what: string;
  /** One line: the command or flag; `""` where there is nothing to mend. */
  readonly mend: string;
}

export function ok(check: string, what: string): Finding {
  return { check, level: "ok", what: oneLine(what), mend: "" };
}

/** Hurts some traffic, or may. */
export function warning(check: string, what: string, mend: string): Finding {
  return { check, level: "warning", what: oneLine(what), mend };
}

/** Keeps kproxy, or the traffic of Services, from working. */
export function failure(check: string, what: string, mend: string): Finding {
  return { check, level: "failure", what: oneLine(what), mend };
}

/** Something could not be looked at: whether it is well is not known. */
export function unknown(check: string, reason: unknown): Finding {
  const why = typeof reason === "string" ? reason : errorText(reason);
  return warning(check, `could not be looked at: ${why}`, "mend that, and run kproxy doctor again");
}

/** What hurts some traffic, or may, and how to fix it; false or undefined: it does not. */
export type Doubt = readonly [what: string, mend: string] | false | undefined;

/** A warning for each; where there is none, `well` says what is as it should be. */
export function warnings(check: string, well: string | null, doubts: readonly Doubt[]): readonly Finding[] {
  const found = doubts.flatMap((one) => one ? [warning(check, ...one)] : []);
  return found.length > 0 || well === null ? found : [ok(check, well)];
}

const MAX_LENGTH = 400;

/** What programs and servers print may have control characters, many lines, and no end. */
function oneLine(text: string): string {
  return escaped(cut(text.replace(/\s+/g, " ").trim(), MAX_LENGTH));
}

/** The report of one look at a node: the shape of `-o json`. */
export interface DoctorReport {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "DoctorReport";
  readonly node: string;
  /** The mode that runs or would run here. */
  readonly mode: string;
  readonly result: Level;
  readonly findings: readonly Finding[];
  /** Null without `--migrate-to`, and where the Services could not be had, which is a finding. */
  readonly migration: Migration | null;
}

/** Failures first, as the report prints them. */
const LEVELS: readonly Level[] = ["failure", "warning", "ok"];

export function doctorReport(
  { node, mode, findings, migration }: Pick<DoctorReport, "node" | "mode" | "findings" | "migration">,
): DoctorReport {
  const result = LEVELS.find((level) => findings.some((finding) => finding.level === level)) ?? "ok";
  return { apiVersion: API_VERSION, kind: "DoctorReport", node, mode, result, findings, migration };
}

/** The fix of a finding stands below it. */
export function reportLines(report: DoctorReport): readonly string[] {
  const rows = LEVELS.flatMap((level) =>
    report.findings.filter((finding) => finding.level === level).flatMap(({ check, what, mend }) => [
      [level === "failure" ? "FAILURE" : level, check, what],
      ...(mend === "" ? [] : [["", "", `-> ${mend}`]]),
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

/** The text of a migration; empty lines between its parts. */
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

/** What could not be read of objects, in one line. */
export function rejectedText(rejected: readonly string[]): string {
  return `${counted0(rejected.length, "object")} left out: ${few(rejected)}`;
}
