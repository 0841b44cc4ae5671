/**
 * Writes a transaction with its programs, and finds the lines that these refuse.
 *
 * @module
 */
import { firstLine } from "../../../text/lines.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { runIpBatchOthers } from "../../../kernel/ip_address.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { restoreSetsOthers } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { failedLine, isRuleRefusal } from "../../../kernel/tool_errors.ts";
import { addEntryLine } from "../../../netfilter/ipset.ts";
import { addWritten, type Progress } from "../../apply/proxier.ts";
import { isolateRefused, type Refusal } from "../../quarantine.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import { isEndpoint, type RefusedLine, RefusedLinesError } from "../store/refusals.ts";
import { type Step, stepText } from "../store/transaction.ts";
import type { GracefulTermination } from "./graceful_termination.ts";

/** Kinds of objects that a report counts. */
export const WRITTEN_KINDS: readonly string[] = ["filter", "nat", "servers", "entries", "addresses"];

/** Programs that write one family's objects. */
export interface IpvsTools {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  readonly iptables: Iptables;
  readonly terminations: GracefulTermination;
}

/** Kind of object that each program's lines count as. */
const WRITTEN = { ipvsadm: "servers", ipset: "entries", ip: "addresses" } as const;
/** Prefix of the rules that Services write. */
const OUT_FILTER = `-A ${OUT_FILTER_CHAIN} `;

/**
 * Takes the steps, in their order. Where real servers are refused, everything else is written.
 *
 * @returns the real servers that are refused
 * @throws {RefusedLinesError} if something else is refused; the steps behind it depend on it, and are not taken
 * @throws {ExecError} if a program fails and none of its lines is to blame
 */
export async function writeSteps(
  steps: readonly Step[],
  tools: IpvsTools,
  progress: Progress,
): Promise<readonly RefusedLine[]> {
  const refused: RefusedLine[] = [];
  for (const step of steps) {
    refused.push(
      ...step.program === "iptables"
        ? await writeRules(step.lines, tools, progress)
        : await writeLines(step.program, step, tools, progress),
    );
    if (!refused.every(isEndpoint)) throw new RefusedLinesError(refused);
  }
  return refused;
}

async function writeLines(
  program: keyof typeof WRITTEN,
  { changes, lines: all }: Step,
  { exec, ipvs, terminations }: IpvsTools,
  progress: Progress,
): Promise<readonly RefusedLine[]> {
  // Real servers that leave get weight 0 here; their graceful termination goes on after this.
  const lines = program === "ipvsadm" ? changes.flatMap((change) => terminations.linesOf(change)) : all;
  const { refused, runs } = program === "ipvsadm"
    ? await ipvs.restoreOthers(lines)
    : program === "ipset"
    ? await restoreSetsOthers(exec, lines)
    : { refused: await runIpBatchOthers(exec, lines), runs: 1 };
  if (changes.some(({ kind }) => kind === "removeReal")) terminations.begin();
  progress.commands += runs;
  progress.bytes += lines.reduce((sum, line) => sum + line.length + 1, 0);
  addWritten(progress, { [WRITTEN[program]]: lines.length - refused.length });
  return refused.map(({ index, problem }) => {
    const line = program === "ipset" ? underFinalName(lines, index) : lines[index] ?? "";
    return { program, line, problem };
  });
}

/** The line with the final name of its set: a set that replaces a smaller one is filled under another name. */
function underFinalName(lines: readonly string[], index: number): string {
  const [command, name = "", entry = ""] = lines[index]?.split(" ") ?? [];
  const swap = lines.slice(index).find((line) => line.startsWith(`swap ${name} `));
  return command === "add" && swap !== undefined
    ? addEntryLine(swap.split(" ")[2] ?? "", entry)
    : lines[index] ?? "";
}

/**
 * Only rules that Services write can be to blame. They are in the last table; where one of them is refused, the
 * table is written without them, then as many of them as possible.
 */
async function writeRules(
  lines: readonly string[],
  { iptables }: IpvsTools,
  progress: Progress,
): Promise<readonly RefusedLine[]> {
  const restore = async (some: readonly string[]): Promise<void> => {
    const text = stepText({ lines: some });
    progress.commands++;
    await iptables.restore(text);
    progress.bytes += text.length;
    addWritten(progress, rulesByTable(some));
  };
  try {
    await restore(lines);
    return [];
  } catch (error) {
    const last = lines.slice(lines.findLastIndex((line) => line.startsWith("*")));
    const ofServices = last.filter((line) => line.startsWith(OUT_FILTER));
    if (ofServices.length === 0 || !isRuleRefusal(error)) throw error;
    await restore(last.filter((line) => !line.startsWith(OUT_FILTER)));
    const refused = await isolateRefused(ofServices, async (some): Promise<Refusal<string> | null> => {
      try {
        await restore(["*filter", ...some, "COMMIT"]);
        return null;
      } catch (error) {
        if (!isRuleRefusal(error)) throw error;
        const problem = firstLine(error.stderr);
        // The first line of the text is the name of the table; that of the last one, which writes, is no rule.
        const item = some[(failedLine(problem) ?? 0) - 2];
        return { problem, named: item === undefined ? [] : [{ item, problem }] };
      }
    });
    // Then it was another table that failed.
    if (refused.length === 0) throw error;
    return refused.map(({ item: line, problem }) => ({ program: "iptables", line, problem }));
  }
}

/** Number of rules that the lines write, by table. */
function rulesByTable(lines: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  let table = "";
  for (const line of lines) {
    if (line.startsWith("*")) table = line.slice(1);
    else if (/^-[AI] /.test(line)) counts[table] = (counts[table] ?? 0) + 1;
  }
  return counts;
}
