/**
 * What a test found, for people and for programs.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import type { Verdict } from "./judge.ts";
import { wantedText } from "./judge.ts";
import { type Probe, wayOf } from "./probes.ts";

/** One line of the result. */
export interface Check extends Verdict {
  readonly name: string;
  /** Null: it is about both. */
  readonly family: IpFamily | null;
  /** `pod-a → 10.96.0.11:80/tcp`; `""` where nothing was sent. */
  readonly way: string;
  readonly wanted: string;
}

/** All of it. */
export interface SelftestReport {
  /** As asked for. */
  readonly wantedMode: string;
  /** The one that ran; null: none could. */
  readonly mode: string | null;
  readonly families: readonly IpFamily[];
  readonly checks: readonly Check[];
  /** What the test could not do or says by the way, in sentences. */
  readonly notes: readonly string[];
  readonly tookMs: number;
}

export function checkOf(probe: Probe, verdict: Verdict): Check {
  const { name, family } = probe;
  return { ...verdict, name, family, way: wayOf(probe), wanted: wantedText(probe) };
}

/** Something other than packets that went wrong. */
export function failedCheck(name: string, reason: string, family: IpFamily | null = null): Check {
  return { ok: false, name, family, reason, way: "", wanted: "", rules: null, real: "" };
}

/** Whether the node can run the mode: something was tried, and all of it went well. */
export function isPassed({ mode, checks }: SelftestReport): boolean {
  return mode !== null && checks.length > 0 && checks.every(({ ok }) => ok);
}

/** @param alignColumns rows → lines */
export function reportLines(
  report: SelftestReport,
  alignColumns: (rows: readonly (readonly string[])[]) => readonly string[],
): readonly string[] {
  const { checks, notes, mode, wantedMode, families, tookMs } = report;
  const failed = checks.filter(({ ok }) => !ok);
  const name = mode ?? wantedMode;
  const seconds = (tookMs / 1_000).toFixed(1);
  const rows = checks.map((check) => [
    check.ok ? "ok" : "failed",
    check.family ?? "",
    check.name,
    check.ok
      ? `${check.way}: ${check.real}`
      : check.way === ""
      ? check.reason
      : `${check.way}: ${check.reason}`,
  ]);
  return [
    `Mode ${name}, ${families.join(" and ")}`,
    "",
    ...alignColumns(rows),
    "",
    ...notes.map((note) => `Note: ${note}`),
    isPassed(report)
      ? `All ${checks.length} checks passed in ${seconds} s: this node can run mode ${name}.`
      : `${failed.length} of ${checks.length} checks failed in ${seconds} s: mode ${name} does not work here as it should.`,
  ];
}

/** The document of `-o json`. */
export function reportDocument(report: SelftestReport): unknown {
  const { wantedMode, mode, families, checks, notes, tookMs } = report;
  return {
    apiVersion: API_VERSION,
    kind: "Selftest",
    passed: isPassed(report),
    wantedMode,
    mode,
    families,
    tookMs: Math.round(tookMs),
    checks: checks.map(({ ok, name, family, way, wanted, rules, real, reason }) => ({
      result: ok ? "ok" : "failed",
      name,
      family,
      way,
      wanted,
      rules,
      real,
      reason,
    })),
    notes,
  };
}
