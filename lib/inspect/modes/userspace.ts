/**
 * Mode userspace: desired rules of a family, where the proxy ports are known, and differences of the live ones.
 *
 * @module
 */
import { renderPlan } from "../../backend/iptables/plan/plan.ts";
import { portalFacts } from "../../backend/userspace/apply/portals.ts";
import {
  configuredUserspace,
  planUserspace,
  type Portal,
  type PortalId,
  type UserspacePlan,
} from "../../backend/userspace/plan/plan.ts";
import { adoptedPorts, planRules } from "../../backend/userspace/plan/port_rules.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { PortalFacts } from "../../model/portals.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import { type HeldPortal, portalKey } from "../../sim/portals.ts";
import { emptySnapshot, kernelTables, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { few } from "../../text/words.ts";
import { compareIptables } from "../check/chains.ts";
import type { Comparison, DifferenceList } from "../check/check.ts";
import {
  type DesiredInput,
  hostAddresses,
  portalName,
  portsByName,
  stateOf,
  warned,
} from "../desired/desired.ts";
import { judgePortals } from "../live/portals.ts";

/** The plan of all Services of one family. */
export function userspacePlan(input: DesiredInput, family: IpFamily): UserspacePlan {
  const { config, node, machine } = input;
  const interfaceIps = machine.addresses?.map(({ address }) => address) ?? [];
  const options = warned(configuredUserspace(config, family, node, interfaceIps), input, family);
  const { nodePortAddresses, ...settings } = options;
  return planUserspace(stateOf(input, family), "all", {
    ...settings,
    family,
    nodePortIps: nodePortAddresses.matchAll
      ? null
      : matchingNodeIps(nodePortAddresses, hostAddresses(input, options.nodeIp)),
    has: abilitiesOf(input, family),
  });
}

/** Abilities of an iptables of which nothing is known. */
const ALL_ABILITIES = { dnat: true, physdev: true, firewall: true };

function abilitiesOf({ portals }: DesiredInput, family: IpFamily): typeof ALL_ABILITIES {
  return portals?.iptables[family] ?? ALL_ABILITIES;
}

/** All portals of a plan, by id. */
export function portalsOf(plan: UserspacePlan): ReadonlyMap<PortalId, Portal> {
  const portals = [...plan.values()].flatMap((service) => service?.portals ?? []);
  return new Map(portals.map((portal) => [portal.id, portal]));
}

/** The known port of each portal of a plan. */
function portsOfPlan(
  plan: UserspacePlan,
  { portals }: DesiredInput,
  family: IpFamily,
): ReadonlyMap<PortalId, number> {
  const known = portsByName(portals, family);
  return new Map(
    [...portalsOf(plan)].flatMap(([id, { text, protocol, policy }]): [PortalId, number][] => {
      const port = known.get(portalName(text, protocol, policy));
      return port === undefined ? [] : [[id, port]];
    }),
  );
}

/** Portals with the ports that live rules lead to, where no running kproxy can be asked. */
export function portalsOfRules(
  input: DesiredInput,
  family: IpFamily,
  tables: readonly IptablesRuleset[],
): readonly PortalFacts[] {
  const plan = userspacePlan(input, family);
  const rules = [...plan.values()].flatMap((service) => service?.rules ?? []);
  const portals = portalsOf(plan);
  return tables.flatMap((saved) => [...adoptedPorts(rules, saved)]).flatMap(([id, port]) => {
    const portal = portals.get(id);
    return portal === undefined ? [] : [portalFacts(portal, { family, address: "", port })];
  });
}

/** Rules in an empty kernel, and kproxy's portals beside it, after a full sync. */
export function rules(input: DesiredInput, family: IpFamily): RulesetSnapshot {
  const plan = userspacePlan(input, family);
  return heldOfPlan(plan, portsOfPlan(plan, input, family), family, abilitiesOf(input, family));
}

/** As {@linkcode rules}, with these ports; rules to a portal without one are left out. */
export function heldOfPlan(
  plan: UserspacePlan,
  ports: ReadonlyMap<PortalId, number>,
  family: IpFamily,
  has = ALL_ABILITIES,
): RulesetSnapshot {
  const rules = planRules(plan, (id) => ports.get(id), has);
  const held = new Map<string, HeldPortal>();
  for (const [id, { text, protocol, policy, endpoints, stickyMaxAgeSeconds }] of portalsOf(plan)) {
    const port = ports.get(id);
    if (port === undefined) continue;
    const portal = { servicePort: text, policy, endpoints, stickySeconds: stickyMaxAgeSeconds };
    held.set(portalKey(protocol, port), portal);
  }
  // Each jump is inserted before the earlier ones, so the last one comes first.
  const jumps = rules.base.jumps.toSorted((a, b) => Number(b.isLast ?? false) - Number(a.isLast ?? false));
  const tables = kernelTables(renderPlan({ ...rules, all: true }), jumps);
  return { ...emptySnapshot(family), iptables: [{ variant: "", tables }], portals: held };
}

/** Reports differences, and what could not be found out, to `list`. */
export async function compare(
  { desired, family, tables, isKernel, portals }: Comparison,
  list: DifferenceList,
): Promise<void> {
  const plan = userspacePlan(desired, family);
  const ports = portsOfPlan(plan, desired, family);
  const rules = planRules(plan, (id) => ports.get(id), abilitiesOf(desired, family));
  compareIptables(rules, tables, family, list);
  const known = portals ?? "no kproxy was asked";
  const whyUnknown = typeof known === "string" ? known : null;
  const keys = [...portalsOf(plan)].flatMap(([id, { protocol }]) => {
    const port = ports.get(id);
    return port === undefined ? [] : [portalKey(protocol, port)];
  });
  const judged = await judgePortals(known, family, keys, isKernel);
  if (whyUnknown !== null && judged.unsure.length > 0) {
    const where = `${few([...new Set(keys)])} (${family})`;
    const message = `who listens on ${where}, and where it leads, is not known: ${whyUnknown}`;
    list.problems.push({ place: "kproxy", message });
  }
  const lack = { kind: "missing", place: "kproxy", found: [] } as const;
  for (const [service, of] of plan) {
    for (const { id, text, protocol, policy } of of?.portals ?? []) {
      const port = ports.get(id);
      const what = `${text} (${protocol}${policy === "local" ? ", policy Local" : ""})`;
      if (port === undefined) {
        const cause = whyUnknown === null
          ? "kproxy has no port for it"
          : "no rule leads to a port of kproxy's, and which one there is is not known";
        list.add(service, { ...lack, cause, wanted: [`a port for ${what}`] });
      } else if (judged.portals.get(portalKey(protocol, port)) === "nothing") {
        const cause = "no process listens on the port that the rules lead to";
        list.add(service, { ...lack, cause, wanted: [`${protocol.toLowerCase()} port ${port} for ${what}`] });
      }
    }
  }
}
