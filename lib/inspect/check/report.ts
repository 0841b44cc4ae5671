/**
 * Output of a check for programs (`{"apiVersion": "kproxy/v1", "kind": "Check"}`), and for people: a diff in which `-` is missing, and
 * `+` is surplus.
 *
 * @module
 */
import { API_VERSION } from "../../serve/status/status_document.ts";
import { counted } from "../../text/words.ts";
import { uniqueProblems } from "../live/live.ts";
import { problemLines } from "../trace/trace_report.ts";
import { type Difference, type FamilyCheck, isClean } from "./check.ts";

export interface CheckReport {
  /** Mode of the desired rules. */
  readonly mode: string;
  /** Source of the objects, e.g. `files a.yaml`. */
  readonly desiredFrom: string;
  /** Source of the live rules, e.g. `the kernel`. */
  readonly liveFrom: string;
  readonly families: readonly FamilyCheck[];
  /** The repair before this check; null: none was asked for. */
  readonly repair: RepairReport | null;
}

export interface RepairReport {
  readonly families: readonly string[];
  /** Why it was allowed although a kproxy runs here; null: none runs. */
  readonly note: string | null;
  readonly before: number;
  /** Services whose rules the kernel refuses, and why. */
  readonly refused: readonly { readonly service: string; readonly problem: string }[];
}

export function differenceCount({ base, services, leftovers }: FamilyCheck): number {
  let count = base.length + leftovers.length;
  for (const differences of services.values()) count += differences.length;
  return count;
}

export function checkDocument({ mode, desiredFrom, liveFrom, families, repair }: CheckReport): unknown {
  return {
    apiVersion: API_VERSION,
    kind: "Check",
    mode,
    desired: desiredFrom,
    live: liveFrom,
    clean: families.every(isClean),
    repair,
    families: families.map((check) => ({
      family: check.family,
      read: check.isRead,
      servicesCompared: check.compared,
      differences: differenceCount(check),
      base: check.base.map(document),
      services: [...check.services].map(([name, differences]) => ({
        name,
        differences: differences.map(document),
      })),
      leftovers: check.leftovers.map(document),
      notes: check.notes,
      problems: check.problems,
    })),
  };
}

function document({ kind, place, cause, wanted, found }: Difference): unknown {
  return { kind, place, cause, wanted, found };
}

/** Limits of what is printed in full; the rest is counted, and JSON has it. */
const MAX_SERVICES = 50;
const MAX_LINES = 12;

/** Lines of the report, without line ends. */
export function checkLines(
  { mode, desiredFrom, liveFrom, families, repair }: CheckReport,
): readonly string[] {
  const lines = [`Desired: ${desiredFrom} (mode ${mode}); live: ${liveFrom}`];
  if (repair !== null) {
    if (repair.note !== null) lines.push(repair.note);
    lines.push(
      repair.families.length === 0
        ? "Nothing of ours was to be fixed."
        : `Written anew: the rules of ${
          repair.families.join(" and ")
        } (${repair.before} differences before).`,
      ...repair.refused.map(({ service, problem }) => `Refused by the kernel: ${service}: ${problem}`),
    );
  }
  for (const check of families) lines.push(...familyLines(check));
  if (families.length === 0) {
    lines.push("No Service wants rules here, and no service proxy's rules are there.");
  }
  return [...lines, ...problemLines(uniqueProblems(families.flatMap(({ problems }) => problems)))];
}

function familyLines(check: FamilyCheck): readonly string[] {
  const { family, compared, base, services, leftovers, notes } = check;
  const lines = ["", ...notes.map((note) => `${family}: ${note}.`)];
  const what = counted(compared, "Service");
  if (isClean(check)) return [...lines, `${family}: ${what}, nothing differs.`];
  if (!check.isRead) return lines;
  const count = differenceCount(check);
  const differing = services.size === 0 ? "" : `, in ${counted(services.size, "Service")}`;
  lines.push(`${family}: ${what}, ${counted(count, "difference")}${differing}:`);
  if (base.length > 0) lines.push("", "Base chains and jumps", ...base.flatMap(differenceLines));
  for (const [name, differences] of [...services].slice(0, MAX_SERVICES)) {
    lines.push("", `Service ${name}`, ...differences.flatMap(differenceLines));
  }
  if (services.size > MAX_SERVICES) {
    lines.push("", `… and ${services.size - MAX_SERVICES} Services more: -o json tells all`);
  }
  if (leftovers.length > 0) {
    lines.push("", "Leftovers", ...leftovers.slice(0, MAX_SERVICES).flatMap(differenceLines));
    if (leftovers.length > MAX_SERVICES) lines.push(`… and ${leftovers.length - MAX_SERVICES} more`);
  }
  return lines;
}

function differenceLines({ place, cause, wanted, found }: Difference): readonly string[] {
  return [`  ${place}: ${cause}`, ...marked("-", wanted), ...marked("+", found)];
}

function marked(mark: string, texts: readonly string[]): readonly string[] {
  const lines = texts.slice(0, MAX_LINES).map((text) => `    ${mark} ${text}`);
  return texts.length > MAX_LINES ? [...lines, `    ${mark} … ${texts.length - MAX_LINES} more`] : lines;
}
