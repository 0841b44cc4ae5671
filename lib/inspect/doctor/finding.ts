/**
 * What the doctor says: one line each, with the way to mend it.
 *
 * @module
 */
import { cut, escaped } from "../../text/quote.ts";

/** How bad a finding is: with a failure kproxy, or what it is for, does not work. */
export type Level = "ok" | "warning" | "failure";

/** One thing that was looked at. */
export interface Finding {
  /** What was looked at, e.g. `forwarding`. Several findings may have the same. */
  readonly check: string;
  readonly level: Level;
  /** One line. */
  readonly what: string;
  /** One line: the command or flag; `""` where there is nothing to mend. */
  readonly mend: string;
}

/** As it should be. */
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

/** The worst of them; `ok` of none. */
export function worstLevel(findings: readonly Finding[]): Level {
  if (findings.some(({ level }) => level === "failure")) return "failure";
  return findings.some(({ level }) => level === "warning") ? "warning" : "ok";
}

const MAX_LENGTH = 400;

/** What programs and servers say is not ours: no control characters, no second line, no end of it. */
function oneLine(text: string): string {
  return escaped(cut(text.replace(/\s+/g, " ").trim(), MAX_LENGTH));
}
