/**
 * Compares rules of userspace mode with a plan, and the ports that they lead to with those on which kproxy listens.
 *
 * @module
 */
import { CHAINS } from "../../backend/userspace/plan/chains.ts";
import { planRules } from "../../backend/userspace/plan/port_rules.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import { jumpRules } from "../../netfilter/iptables_chains.ts";
import { portalKey } from "../../sim/portals.ts";
import { few } from "../../text/words.ts";
import { ALL_ABILITIES } from "../desired/desired.ts";
import { portalsOf, portsOfPlan, userspacePlan } from "../desired/userspace.ts";
import { judgePortals } from "../live/portals.ts";
import { chainDifference, chainPlace, compareSharedChain, jumpDifference, ruleText } from "./chains.ts";
import type { Comparison, DifferenceList } from "./difference.ts";

const TABLES: readonly Table[] = ["filter", "nat"];

/** Reports to `list` what differs, and what could not be found out. */
export async function compareUserspace(
  { desired, family, tables, isKernel, portals }: Comparison,
  list: DifferenceList,
): Promise<void> {
  const plan = userspacePlan(desired, family);
  const ports = portsOfPlan(plan, desired, family);
  const { base, services } = planRules(
    plan,
    (id) => ports.get(id),
    desired.ports?.get(family)?.has ?? ALL_ABILITIES,
  );
  for (const table of TABLES) {
    for (const [chain, wanted] of jumpRules(base.jumps, table)) {
      const found = tables.get(table)?.get(chain)?.rules ?? [];
      const place = chainPlace(table, chain);
      const lack = chainDifference({ place, wanted, found, textOf: ruleText, isShared: true });
      if (lack !== null && lack.kind !== "order") list.add(null, jumpDifference(lack));
    }
  }
  for (const table of TABLES) {
    for (const chain of CHAINS[table]) {
      const found = tables.get(table)?.get(chain)?.rules;
      compareSharedChain({ services, table, chain, found }, list);
    }
  }
  const known = portals ?? "no kproxy was asked";
  const untold = typeof known === "string" ? known : null;
  const keys = [...portalsOf(plan)].flatMap(([id, { protocol }]) => {
    const port = ports.get(id);
    return port === undefined ? [] : [portalKey(protocol, port)];
  });
  const judged = await judgePortals(known, family, keys, isKernel);
  if (untold !== null && judged.unsure.length > 0) {
    const where = `${few([...new Set(keys)])} (${family})`;
    const message = `who listens on ${where}, and where it leads, is not known: ${untold}`;
    list.problems.push({ place: "kproxy", message });
  }
  const lack = { kind: "missing", place: "kproxy", found: [] } as const;
  for (const [service, of] of plan) {
    for (const { id, text, protocol, policy } of of?.portals ?? []) {
      const port = ports.get(id);
      const what = `${text} (${protocol}${policy === "local" ? ", policy Local" : ""})`;
      if (port === undefined) {
        const cause = untold === null
          ? "kproxy has no port for it"
          : "no rule leads to a port of kproxy's, and which one there is nobody tells";
        list.add(service, { ...lack, cause, wanted: [`a port for ${what}`] });
      } else if (judged.portals.get(portalKey(protocol, port)) === "nobody") {
        const cause = "nobody listens on the port that the rules lead to";
        list.add(service, { ...lack, cause, wanted: [`${protocol.toLowerCase()} port ${port} for ${what}`] });
      }
    }
  }
}
