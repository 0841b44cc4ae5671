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
import { type Step, stepText, type TableChange } from "../store/transaction.ts";
import type { GracefulTermination } from "./graceful_termination.ts";

/** Kinds of objects that a report counts. */
export const WRITTEN_KINDS: readonly string[] = ["filter", "nat", "servers", "entries", "addresses"];

/** Dependencies of an {@linkcode IpvsWriter}. */
export interface IpvsWriterOptions {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  readonly terminations: GracefulTermination;
  readonly iptables: Iptables;
  readonly progress: Progress;
}

/** Kind of object that each program's lines count as. */
const WRITTEN = { ipvsadm: "servers", ipset: "entries", ip: "addresses" } as const;
/** Prefix of the rules that Services write. */
const OUT_FILTER = `-A ${OUT_FILTER_CHAIN} `;

/** Writer of one family. */
export class IpvsWriter {
  readonly #options: IpvsWriterOptions;

  constructor(options: IpvsWriterOptions) {
    this.#options = options;
  }

  /**
   * Takes the steps, in their order. Where real servers are refused, everything else is written.
   *
   * @returns the real servers that are refused
   * @throws {RefusedLinesError} if something else is refused; the steps behind it depend on it, and are not taken
   * @throws {ExecError} if a program fails and none of its lines is to blame
   */
  async write(steps: readonly Step[]): Promise<readonly RefusedLine[]> {
    const refused: RefusedLine[] = [];
    for (const step of steps) {
      refused.push(...await this.#take(step));
      if (!refused.every(isEndpoint)) throw new RefusedLinesError(refused);
    }
    return refused;
  }

  async #take(step: Step): Promise<readonly RefusedLine[]> {
    if (step.program === "iptables") return await this.#writeRules(step.tables);
    const { exec, ipvs, terminations, progress } = this.#options;
    // Real servers that leave get weight 0 here; their graceful termination goes on after this.
    const lines = step.program === "ipvsadm"
      ? step.changes.flatMap((change) => terminations.linesOf(change))
      : step.lines;
    const { refused, runs } = step.program === "ipvsadm"
      ? await ipvs.restoreOthers(lines)
      : step.program === "ipset"
      ? await restoreSetsOthers(exec, lines)
      : { refused: await runIpBatchOthers(exec, lines), runs: 1 };
    if (step.program === "ipvsadm" && step.changes.some(({ kind }) => kind === "removeReal")) {
      terminations.begin();
    }
    progress.commands += runs;
    progress.bytes += lines.reduce((sum, line) => sum + line.length + 1, 0);
    addWritten(progress, { [WRITTEN[step.program]]: lines.length - refused.length });
    return refused.map(({ index, problem }) => {
      const line = step.program === "ipset" ? underFinalName(lines, index) : lines[index] ?? "";
      return { program: step.program, line, problem };
    });
  }

  /**
   * Only rules that Services write can be to blame. They are in the last table; where one of them is refused, the
   * table is written without them, then as many of them as possible.
   */
  async #writeRules(tables: readonly TableChange[]): Promise<readonly RefusedLine[]> {
    try {
      await this.#restore(tables);
      return [];
    } catch (error) {
      const last = tables.at(-1);
      const ofServices = last?.lines.filter((line) => line.startsWith(OUT_FILTER)) ?? [];
      if (last === undefined || ofServices.length === 0 || !isRuleRefusal(error)) throw error;
      await this.#restore([{ ...last, lines: last.lines.filter((line) => !line.startsWith(OUT_FILTER)) }]);
      const refused = await isolateRefused(ofServices, (lines) => this.#tryRules(lines));
      // Then it was another table that failed.
      if (refused.length === 0) throw error;
      return refused.map(({ item: line, problem }) => ({ program: "iptables", line, problem }));
    }
  }

  async #tryRules(lines: readonly string[]): Promise<Refusal<string> | null> {
    try {
      await this.#restore([{ table: "filter", lines }]);
      return null;
    } catch (error) {
      if (!isRuleRefusal(error)) throw error;
      const problem = firstLine(error.stderr);
      // The first line of the text is the name of the table; that of the last one, which writes, is no rule.
      const item = lines[(failedLine(problem) ?? 0) - 2];
      return { problem, named: item === undefined ? [] : [{ item, problem }] };
    }
  }

  async #restore(tables: readonly TableChange[]): Promise<void> {
    const { iptables, progress } = this.#options;
    const text = stepText({ program: "iptables", tables });
    progress.commands++;
    await iptables.restore(text);
    progress.bytes += text.length;
    for (const { table, lines } of tables) {
      addWritten(progress, { [table]: lines.filter((line) => /^-[AI] /.test(line)).length });
    }
  }
}

/** The line with the final name of its set: a set that replaces a smaller one is filled under another name. */
function underFinalName(lines: readonly string[], index: number): string {
  const [command, name = "", entry = ""] = lines[index]?.split(" ") ?? [];
  const swap = lines.slice(index).find((line) => line.startsWith(`swap ${name} `));
  return command === "add" && swap !== undefined
    ? addEntryLine(swap.split(" ")[2] ?? "", entry)
    : lines[index] ?? "";
}
