/**
 * Finds the Services whose rules iptables or the kernel refuses. The nft variant and the programs' parsers name the lines; of the legacy
 * variant's kernel nobody learns more than that the whole was refused, so there halves are tried.
 *
 * @module
 */
import { firstLine } from "../../../text/lines.ts";
import type { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isRuleRefusal } from "../../../kernel/iptables_refusal.ts";
import { failedLines } from "../../../kernel/restore_failure.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import { chainLine, type Table } from "../../../netfilter/iptables_jumps.ts";
import { isolateRefused, type Refusal, type Refused } from "../../isolate.ts";
import type { ServiceRules } from "../plan/ruleset.ts";

/** Rules for shared chains are tried in it, where no packet comes. */
const TRIAL_CHAIN = "KUBE-PROXY-TRIAL";

/** True if the refused line, where one is named, adds something: what cannot be taken away was not as we thought. */
export function isRefusedAddition(error: unknown): boolean {
  return isRuleRefusal(error) && !/^> \d+: -[DX] /m.test(error.stderr);
}

/** What the program said, without numbers of lines, which differ from try to try. */
export function describeRefusal({ stderr, message }: ExecError): string {
  const words = firstLine(stderr);
  const problem = words.replace(/^\S+( v[\d.]+ \(\w+\))?: */, "").replace(
    / *(Error occurred at )?line:? \d+:?/g,
    " ",
  )
    .trim();
  const rule = /^> \d+: (.*)$/m.exec(stderr)?.[1] ?? "COMMIT";
  return (problem === "" ? message : problem) + (rule === "COMMIT" ? "" : `: ${rule}`);
}

type Candidate = readonly [name: NamespacedName, rules: ServiceRules];

/**
 * Tries the rules of Services: their own chains are written as they are to be, those for shared chains in a chain of their own.
 *
 * @param together how many are tried at once
 * @returns those that are refused, each tried alone; the chains of all others are in the kernel
 * @throws {ExecError} if a program failed in another way
 */
export async function refusedServices(
  iptables: Iptables,
  services: readonly Candidate[],
  together: number,
): Promise<readonly Refused<NamespacedName>[]> {
  const attempt = (group: readonly Candidate[]): Promise<Refusal<Candidate> | null> =>
    tryRules(iptables, group);
  const refused: Refused<NamespacedName>[] = [];
  try {
    for (let at = 0; at < services.length; at += together) {
      for (const { item } of await isolateRefused(services.slice(at, at + together), attempt)) {
        // Alone, because the line that was named may only have been next to the one that was refused.
        const refusal = await attempt([item]);
        if (refusal !== null) refused.push({ item: item[0], problem: refusal.problem });
      }
    }
  } finally {
    await removeTrialChains(iptables);
  }
  return refused;
}

/**
 * True if nothing that leads to any endpoint is taken: not the Services are to blame then, but what each of them needs, such as an
 * extension that this kernel lacks.
 */
export function isWhatAllNeed(
  services: readonly Candidate[],
  refused: readonly Refused<NamespacedName>[],
): boolean {
  const names = new Set(refused.map(({ item }) => item));
  const withChains = services.filter(([, { chains }]) => chains.length > 0);
  return withChains.length > 1 && withChains.every(([name]) => names.has(name));
}

async function tryRules(
  iptables: Iptables,
  group: readonly Candidate[],
): Promise<Refusal<Candidate> | null> {
  const lines: string[] = [];
  const owners: (Candidate | null)[] = [];
  const add = (line: string, owner: Candidate | null = null): void => {
    lines.push(line);
    owners.push(owner);
  };
  for (const table of ["filter", "nat"] as const) {
    add(`*${table}`);
    add(chainLine(TRIAL_CHAIN));
    for (const candidate of table === "nat" ? group : []) {
      for (const chain of candidate[1].chains) add(chainLine(chain), candidate);
    }
    for (const candidate of group) {
      for (const line of rulesOf(candidate[1], table)) add(line, candidate);
    }
    add("COMMIT");
  }
  try {
    await iptables.restore(lines.join("\n") + "\n");
    return null;
  } catch (error) {
    if (!isRuleRefusal(error)) throw error;
    const named = new Set(failedLines(error.stderr).map((line) => owners[line - 1] ?? null));
    const problem = describeRefusal(error);
    return {
      problem,
      named: [...named].filter((owner) => owner !== null).map((item) => ({ item, problem })),
    };
  }
}

function rulesOf({ dispatch, rules }: ServiceRules, table: Table): readonly string[] {
  const shared = dispatch.filter((rule) => rule.table === table).map(({ rule }) =>
    `-A ${TRIAL_CHAIN} ${rule}`
  );
  return table === "nat" ? [...rules, ...shared] : shared;
}

async function removeTrialChains(iptables: Iptables): Promise<void> {
  const blocks = ["filter", "nat"].map((
    table,
  ) => [`*${table}`, chainLine(TRIAL_CHAIN), `-X ${TRIAL_CHAIN}`, "COMMIT", ""]);
  await iptables.restore(blocks.flat().join("\n"));
}
