/**
 * A check for people: a diff in which `-` is wanted and not there, and `+` is there and not wanted.
 *
 * @module
 */
import { problemLines } from "../trace/trace_text.ts";
import { counted } from "../../text/words.ts";
import { type CheckReport, differenceCount } from "./check_json.ts";
import { type Difference, type FamilyCheck, isClean } from "./difference.ts";

/** How much is told in full; the rest is counted, and JSON has it. */
const MAX_SERVICES = 50;
const MAX_LINES = 12;

/** One line each, without line ends. */
export function checkLines(
  { mode, desiredFrom, liveFrom, families, repair }: CheckReport,
): readonly string[] {
  const lines = [`Desired: ${desiredFrom} (mode ${mode}); live: ${liveFrom}`];
  if (repair !== null) {
    if (repair.note !== null) lines.push(repair.note);
    lines.push(
      repair.families.length === 0
        ? "Nothing of ours was to be mended."
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
  return [...lines, ...problemLines(uniqueProblems(families))];
}

/** Both families may tell of the same program. */
function uniqueProblems(families: readonly FamilyCheck[]): FamilyCheck["problems"] {
  const known = new Map(
    families.flatMap(({ problems }) => problems).map((one) => [`${one.place}: ${one.message}`, one]),
  );
  return [...known.values()];
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
