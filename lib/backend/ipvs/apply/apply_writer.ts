/**
 * Writes operations with their programs, and finds the lines that these refuse.
 *
 * @module
 */
import { firstLine } from "../../../text/lines.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { runIpBatchOthers } from "../../../kernel/ip_address.ts";
import { restoreSetsOthers } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isRuleRefusal } from "../../../kernel/iptables_refusal.ts";
import type { RefusedLine } from "../../../kernel/refused_line.ts";
import { failedLine } from "../../../kernel/restore_failure.ts";
import { addEntryLine } from "../../../netfilter/ipset.ts";
import { isolateRefused, type Refusal } from "../../isolate.ts";
import type { IpvsNode } from "./apply_terminations.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import { isRealServer, type RefusedWork } from "../diff/refusals.ts";
import { stepText } from "../diff/render.ts";
import type { Operations, Step, Transaction } from "../plan/ruleset.ts";

/** What was written, per kind. */
export type Written = Record<"filter" | "nat" | "servers" | "entries" | "addresses", number>;

/** What one sync did, as it goes on. */
export interface Progress {
  commands: number;
  bytes: number;
  readonly written: Written;
}

/** A sync that has not begun. */
export function newProgress(): Progress {
  return { commands: 0, bytes: 0, written: { filter: 0, nat: 0, servers: 0, entries: 0, addresses: 0 } };
}

/** What an {@linkcode IpvsWriter} needs. */
export interface IpvsWriterOptions {
  readonly exec: Exec;
  readonly node: IpvsNode;
  readonly iptables: Iptables;
  readonly progress: Progress;
}

const GUARD = `-A ${OUT_FILTER_CHAIN} `;

/** Writes for one family. */
export class IpvsWriter {
  readonly #options: IpvsWriterOptions;

  constructor(options: IpvsWriterOptions) {
    this.#options = options;
  }

  /**
   * Takes the steps, in their order. Where real servers are refused, all the rest goes in; behind a step of which something else is
   * refused the writing ends, because other steps count on it.
   *
   * @throws {ExecError} if a program fails and none of its lines is to blame
   */
  async write({ steps }: Operations): Promise<readonly RefusedWork[]> {
    const refused: RefusedWork[] = [];
    for (const step of steps) {
      refused.push(...await this.#take(step));
      if (!refused.every(isRealServer)) break;
    }
    return refused;
  }

  async #take(step: Step): Promise<readonly RefusedWork[]> {
    switch (step.program) {
      case "ipvsadm":
        return await this.#writeServers(step);
      case "ipset":
        return await this.#writeSets(step);
      case "ip":
        return await this.#writeAddresses(step);
      case "iptables":
        return await this.#writeRules(step.transactions);
    }
  }

  async #writeServers({ changes }: Step & { readonly program: "ipvsadm" }): Promise<readonly RefusedWork[]> {
    const { node, progress } = this.#options;
    const { lines, bytes, refused, runs } = await node.write(changes);
    progress.commands += runs;
    progress.bytes += bytes;
    progress.written.servers += lines - refused.length;
    return refused.map((one) => ({ program: "ipvsadm", ...one }));
  }

  async #writeSets({ lines }: Step & { readonly program: "ipset" }): Promise<readonly RefusedWork[]> {
    const { exec, progress } = this.#options;
    const { refused, runs } = await restoreSetsOthers(exec, lines);
    progress.commands += runs;
    progress.bytes += textLength(lines);
    progress.written.entries += lines.length - refused.length;
    return refused.map(({ index, problem }) => ({
      program: "ipset",
      line: underFinalName(lines, index),
      problem,
    }));
  }

  async #writeAddresses({ lines }: Step & { readonly program: "ip" }): Promise<readonly RefusedWork[]> {
    const { exec, progress } = this.#options;
    const refused = await runIpBatchOthers(exec, lines);
    progress.commands++;
    progress.bytes += textLength(lines);
    progress.written.addresses += lines.length - refused.length;
    return refused.map(({ index, problem }) => ({ program: "ip", line: lines[index] ?? "", problem }));
  }

  /**
   * Of the rules only those that Services write can be to blame. They are in the last transaction; where one of them is refused, the
   * transaction is carried out without them, then as many of them as possible.
   */
  async #writeRules(transactions: readonly Transaction[]): Promise<readonly RefusedWork[]> {
    try {
      await this.#restore(transactions);
      return [];
    } catch (error) {
      const last = transactions.at(-1);
      const guards = last?.lines.filter((line) => line.startsWith(GUARD)) ?? [];
      if (last === undefined || guards.length === 0 || !isRuleRefusal(error)) throw error;
      await this.#restore([{ ...last, lines: last.lines.filter((line) => !line.startsWith(GUARD)) }]);
      const refused = await isolateRefused(guards, (lines) => this.#tryGuards(lines));
      // Then it was another transaction that failed.
      if (refused.length === 0) throw error;
      return refused.map(({ item: line, problem }) => ({ program: "iptables", line, problem }));
    }
  }

  async #tryGuards(lines: readonly string[]): Promise<Refusal<string> | null> {
    try {
      await this.#restore([{ table: "filter", lines }]);
      return null;
    } catch (error) {
      if (!isRuleRefusal(error)) throw error;
      const problem = firstLine(error.stderr);
      // The first line of the text is the name of the table; that of the last one, which writes, is nobody's.
      const item = lines[(failedLine(problem) ?? 0) - 2];
      return { problem, named: item === undefined ? [] : [{ item, problem }] };
    }
  }

  async #restore(transactions: readonly Transaction[]): Promise<void> {
    const { iptables, progress } = this.#options;
    const text = stepText({ program: "iptables", transactions });
    progress.commands++;
    await iptables.restore(text);
    progress.bytes += text.length;
    for (const { table, lines } of transactions) {
      progress.written[table] += lines.filter((line) => /^-[AI] /.test(line)).length;
    }
  }
}

function textLength(lines: readonly string[]): number {
  return lines.reduce((sum, line) => sum + line.length + 1, 0);
}

/** The line as it were if its set were not filled under another name, under which it takes the place of a smaller one. */
function underFinalName(lines: readonly string[], index: RefusedLine["index"]): string {
  const [command, name = "", entry = ""] = lines[index]?.split(" ") ?? [];
  const swap = lines.slice(index).find((line) => line.startsWith(`swap ${name} `));
  return command === "add" && swap !== undefined
    ? addEntryLine(swap.split(" ")[2] ?? "", entry)
    : lines[index] ?? "";
}
