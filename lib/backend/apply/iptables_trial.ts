/**
 * Finds the Services whose rules iptables or the kernel refuses. The nft variant and the programs' parsers name
 * the lines; the kernel of the legacy variant only says that the whole was refused, so there halves are tried.
 *
 * @module
 */
import type { ExecError } from "../../errors.ts";
import type { Iptables } from "../../kernel/iptables.ts";
import { failedLines, isRuleRefusal } from "../../kernel/tool_errors.ts";
import type { NamespacedName } from "../../model/objects.ts";
import { chainLine, type Table, tableBlock } from "../../netfilter/iptables_jumps.ts";
import type { ServiceRules } from "../iptables/plan/ruleset.ts";
import { firstLine } from "../../text/lines.ts";
import { isolateRefused, type Refusal, type RefusedService } from "../quarantine.ts";

/** Rules of chains that carry traffic are tried in this chain, where no packet comes. */
const TRIAL_CHAIN = "KUBE-PROXY-TRIAL";
const TABLES: readonly Table[] = ["filter", "nat"];

/** A Service with its rules: those of its own chains are written to these chains themselves. */
export type Candidate = readonly [NamespacedName, Pick<ServiceRules, "chains" | "rules" | "dispatch">];

/** The program's error without line numbers, which differ from try to try. */
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

/**
 * Tries the rules of Services.
 *
 * @param together how many are tried at once
 * @returns those that are refused, each tried alone; the chains of all others are in the kernel
 * @throws {ExecError} if a program failed in another way
 */
export async function refusedServices(
  iptables: Iptables,
  services: readonly Candidate[],
  together: number,
): Promise<readonly RefusedService[]> {
  const attempt = (group: readonly Candidate[]): Promise<Refusal<Candidate> | null> =>
    tryRules(iptables, group);
  const refused: RefusedService[] = [];
  try {
    for (let at = 0; at < services.length; at += together) {
      for (const { item } of await isolateRefused(services.slice(at, at + together), attempt)) {
        // Alone, because the line that was named may only have been next to the one that was refused.
        const refusal = await attempt([item]);
        if (refusal !== null) refused.push({ service: item[0], problem: refusal.problem });
      }
    }
  } finally {
    await iptables.restore(TABLES.map((table) => trial(table, [`-X ${TRIAL_CHAIN}`])).join(""));
  }
  return refused;
}

/**
 * True if no Service with chains of its own is accepted: the Services are not to blame then, but a common
 * need, such as an extension that this kernel lacks.
 */
export function isWhatAllNeed(
  services: readonly Candidate[],
  refused: readonly RefusedService[],
): boolean {
  const names = new Set(refused.map(({ service }) => service));
  const withChains = services.filter(([, { chains }]) => chains.length > 0);
  return withChains.length > 1 && withChains.every(([name]) => names.has(name));
}

/** True if the node's iptables and kernel take a rule. */
export async function takesRule(iptables: Iptables, rule: string, table: Table = "nat"): Promise<boolean> {
  const text = trial(table, [`-A ${TRIAL_CHAIN} ${rule}`, `-F ${TRIAL_CHAIN}`, `-X ${TRIAL_CHAIN}`]);
  try {
    await iptables.restore(text);
    return true;
  } catch (error) {
    if (!isRuleRefusal(error)) throw error;
    return false;
  }
}

async function tryRules(
  iptables: Iptables,
  group: readonly Candidate[],
): Promise<Refusal<Candidate> | null> {
  let text = "";
  /** Owners of the lines, in their order. */
  const owners: (Candidate | null)[] = [];
  for (const table of TABLES) {
    const lines: string[] = [];
    // The table's name and the trial chain come first.
    owners.push(null, null);
    const add = (line: string, owner: Candidate): void => {
      lines.push(line);
      owners.push(owner);
    };
    for (const one of table === "nat" ? group : []) {
      for (const chain of one[1].chains) add(chainLine(chain), one);
    }
    for (const one of group) {
      const [, { rules, dispatch }] = one;
      for (const line of table === "nat" ? rules : []) add(line, one);
      for (const { table: of, rule } of dispatch) if (of === table) add(`-A ${TRIAL_CHAIN} ${rule}`, one);
    }
    text += trial(table, lines);
    owners.push(null);
  }
  try {
    await iptables.restore(text);
    return null;
  } catch (error) {
    if (!isRuleRefusal(error)) throw error;
    const problem = describeRefusal(error);
    const named = new Set(failedLines(error.stderr).map((line) => owners[line - 1] ?? null));
    return {
      problem,
      named: [...named].filter((owner) => owner !== null).map((item) => ({ item, problem })),
    };
  }
}

function trial(table: Table, lines: readonly string[]): string {
  return tableBlock(table, [chainLine(TRIAL_CHAIN), ...lines]);
}
