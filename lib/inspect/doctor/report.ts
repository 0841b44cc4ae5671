/**
 * What `kproxy doctor` prints, for people and for programs.
 *
 * @module
 */
import { API_VERSION } from "../../serve/status/status_document.ts";
import { counted, few } from "../../text/words.ts";
import { type Finding, type Level, worstLevel } from "./finding.ts";
import type { Difference, Migration } from "./migrate/migration.ts";

/** The report of one look at a node: the shape of `-o json`. */
export interface DoctorReport {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "DoctorReport";
  /** Name of the Node. */
  readonly node: string;
  /** The mode that runs or would run here. */
  readonly mode: string;
  /** The worst of the findings. */
  readonly result: Level;
  readonly findings: readonly Finding[];
  /** Null without `--migrate-to`, and where the Services could not be had, which a finding tells. */
  readonly migration: Migration | null;
}

/** Puts a report together. */
export function doctorReport(
  parts: Pick<DoctorReport, "node" | "mode" | "findings" | "migration">,
): DoctorReport {
  const { node, mode, findings, migration } = parts;
  const result = worstLevel(findings);
  return { apiVersion: API_VERSION, kind: "DoctorReport", node, mode, result, findings, migration };
}

const ORDER: readonly Level[] = ["failure", "warning", "ok"];
const MARK: Readonly<Record<Level, string>> = { failure: "FAILURE", warning: "warning", ok: "ok" };

/** Rows of text in columns: failures first; a mend stands below what it mends. */
export function reportRows({ findings }: DoctorReport): readonly (readonly string[])[] {
  return ORDER.flatMap((level) =>
    findings.filter((finding) => finding.level === level).flatMap(({ check, what, mend }) => [
      [MARK[level], check, what],
      ...(mend === "" ? [] : [["", "", `-> ${mend}`]]),
    ])
  );
}

/** The last line: how many of what. */
export function reportSummary({ node, mode, findings }: DoctorReport): string {
  const count = (level: Level): number => findings.filter((finding) => finding.level === level).length;
  const [failures, warnings, fine] = [count("failure"), count("warning"), count("ok")];
  const words = [
    countedOrNone(failures, "failure"),
    countedOrNone(warnings, "warning"),
    `${fine} ok`,
  ];
  return `Node ${node}, mode ${mode}: ${words.join(", ")}`;
}

/** The text of a migration; empty lines between its parts. */
export function migrationLines(migration: Migration): readonly string[] {
  const { from, to, everyService, services, serviceCount, objectsFrom } = migration;
  const lines = [`From mode ${from} to mode ${to}`, ""];
  if (everyService.length > 0) lines.push("For every Service:", ...everyService.flatMap(differenceLines), "");
  const of = `of ${countedOrNone(serviceCount, "Service")} (${objectsFrom})`;
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

function countedOrNone(count: number, word: string): string {
  return count === 0 ? `no ${word}s` : counted(count, word);
}

/** What could not be read of objects, in one line. */
export function rejectedText(rejected: readonly string[]): string {
  return `${countedOrNone(rejected.length, "object")} left out: ${few(rejected)}`;
}
