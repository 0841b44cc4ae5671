/**
 * Compares rules of userspace mode with a plan, and the ports that they lead to with those on which kproxy listens.
 *
 * @module
 */
import { CHAINS } from "../../backend/userspace/plan/chains.ts";
import { planRules } from "../../backend/userspace/plan/held_rules.ts";
import type { Portal, PortalId, UserspacePlan } from "../../backend/userspace/plan/ruleset.ts";
import type { NamespacedName } from "../../model/objects.ts";
import { jumpRules } from "../../netfilter/iptables_chains.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import { portalKey } from "../../sim/portals.ts";
import type { PortalPorts } from "../desired/desired.ts";
import type { DifferenceList } from "./difference.ts";
import { chainDifference, jumpDifference } from "./rule_lists.ts";
import { chainPlace, RuleTexts } from "./rule_texts.ts";
import { compareSharedChain } from "./shared_chain.ts";

const TABLES: readonly Table[] = ["filter", "nat"];

/** What is looked at. */
export interface UserspacePair {
  readonly plan: UserspacePlan;
  /** Portal → its port, where it is known. */
  readonly ports: ReadonlyMap<PortalId, number>;
  /** What the node's iptables has. */
  readonly has: PortalPorts["has"];
  /** Why ports are not known that kproxy has; null: it was asked, and has no others. */
  readonly untold: string | null;
  /** The tables of the variant in use. */
  readonly live: IptablesRuleset;
  /** Ports, as `portalKey` says them, on which nobody listens. */
  readonly deaf: ReadonlySet<string>;
}

/** Tells `list` of everything that differs. */
export function compareUserspace(
  { plan, ports, has, untold, live, deaf }: UserspacePair,
  list: DifferenceList,
): void {
  const texts = new RuleTexts();
  const rules = planRules(plan, (id) => ports.get(id), has);
  for (const table of TABLES) {
    for (const [chain, wanted] of jumpRules(rules.base.jumps, table)) {
      const found = live.get(table)?.get(chain)?.rules ?? [];
      const place = chainPlace(table, chain);
      const lack = chainDifference({ place, wanted, found, textOf: texts.of, isShared: true });
      if (lack === null || lack.kind === "order") continue;
      list.add(null, jumpDifference(lack));
    }
  }
  for (const table of TABLES) {
    for (const chain of CHAINS[table]) {
      const found = live.get(table)?.get(chain)?.rules;
      if (found === undefined) {
        list.add(null, chainDifference({ place: chainPlace(table, chain), wanted: [`:${chain}`], found }));
      }
      compareSharedChain({ plan: rules, table, chain, found }, texts, list);
    }
  }
  for (const [name, service] of plan) {
    for (const portal of service?.portals ?? []) comparePort(name, portal, { ports, untold, deaf }, list);
  }
}

function comparePort(
  service: NamespacedName,
  { id, text, protocol, policy }: Portal,
  { ports, untold, deaf }: Pick<UserspacePair, "ports" | "untold" | "deaf">,
  list: DifferenceList,
): void {
  const port = ports.get(id);
  const what = `${text} (${protocol}${policy === "local" ? ", policy Local" : ""})`;
  if (port === undefined) {
    const cause = untold === null
      ? "kproxy has no port for it"
      : "no rule leads to a port of kproxy's, and which one there is nobody tells";
    list.add(service, { kind: "missing", place: "kproxy", cause, wanted: [`a port for ${what}`], found: [] });
  } else if (deaf.has(portalKey(protocol, port))) {
    const cause = "nobody listens on the port that the rules lead to";
    const wanted = [`${protocol.toLowerCase()} port ${port} for ${what}`];
    list.add(service, { kind: "missing", place: "kproxy", cause, wanted, found: [] });
  }
}
