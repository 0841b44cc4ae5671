/**
 * Finds the Services whose rules iptables or the kernel refuses, in a chain where no packet comes.
 *
 * @module
 */
import { firstLine } from "../../../text/lines.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isRuleRefusal } from "../../../kernel/iptables_refusal.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import { chainLine, type Table, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { isolateRefused, type Refusal, type Refused } from "../../isolate.ts";
import type { PortalRule } from "../plan/ruleset.ts";

const TRIAL_CHAIN = "KUBE-PROXY-TRIAL";
const TABLES: readonly Table[] = ["filter", "nat"];

type Candidate = readonly [name: NamespacedName, rules: readonly PortalRule[]];

/**
 * Tries the rules of Services.
 *
 * @throws {ExecError} if a program failed in another way
 */
export async function refusedServices(
  iptables: Iptables,
  services: readonly Candidate[],
): Promise<readonly Refused<NamespacedName>[]> {
  try {
    const refused = await isolateRefused(services, (group) => attempt(iptables, group));
    return refused.map(({ item: [name], problem }) => ({ item: name, problem }));
  } finally {
    await iptables.restore(
      TABLES.map((table) => trial(table, [`-X ${TRIAL_CHAIN}`])).join(""),
    );
  }
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

async function attempt(
  iptables: Iptables,
  group: readonly Candidate[],
): Promise<Refusal<Candidate> | null> {
  const text = TABLES.map((table) =>
    trial(
      table,
      group.flatMap(([, rules]) =>
        rules.filter((rule) => rule.table === table).map(({ rule }) => `-A ${TRIAL_CHAIN} ${rule}`)
      ),
    )
  ).join("");
  try {
    await iptables.restore(text);
    return null;
  } catch (error) {
    if (!isRuleRefusal(error)) throw error;
    return { problem: firstLine(error.stderr), named: [] };
  }
}

function trial(table: Table, lines: readonly string[]): string {
  return tableBlock(table, [chainLine(TRIAL_CHAIN), ...lines]);
}
