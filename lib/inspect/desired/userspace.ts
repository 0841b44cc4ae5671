/**
 * What one family should hold in userspace mode, where the ports are known that its rules lead to.
 *
 * @module
 */
import { adoptedPorts } from "../../backend/userspace/diff/held_rules.ts";
import { rulesOf, TABLES, tableText } from "../../backend/userspace/diff/rules.ts";
import { jumpsOf, LAST_JUMPS } from "../../backend/userspace/plan/chains.ts";
import { planUserspace } from "../../backend/userspace/plan/plan.ts";
import type { Doorway, Portal, PortalId, UserspacePlan } from "../../backend/userspace/plan/ruleset.ts";
import { configuredUserspace } from "../../backend/userspace/plan/settings.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { JumpRule } from "../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import {
  type BuiltinRules,
  builtinRules,
  type HeldRules,
  kernelTables,
  nothingHeld,
} from "../../sim/held_rules.ts";
import { type HeldPortal, portalKey } from "../../sim/portals.ts";
import {
  ALL_ABILITIES,
  type DesiredInput,
  hostAddresses,
  portalName,
  type PortalPorts,
  stateOf,
  warned,
} from "./desired.ts";

/** The plan of all Services of one family. */
export function userspacePlan(input: DesiredInput, family: IpFamily): UserspacePlan {
  const { config, node, machine, ports } = input;
  const interfaceIps = machine.addresses?.map(({ address }) => address) ?? [];
  const options = warned(configuredUserspace(config, family, node, interfaceIps), input, family);
  const { nodePortAddresses, ...settings } = options;
  return planUserspace(stateOf(input, family), "all", {
    ...settings,
    family,
    nodePortIps: nodePortAddresses.matchAll
      ? null
      : matchingNodeIps(nodePortAddresses, hostAddresses(input, options.nodeIp)),
    has: ports?.get(family)?.has ?? ALL_ABILITIES,
  });
}

/** All portals of a plan, by their ids. */
export function portalsOf(plan: UserspacePlan): ReadonlyMap<PortalId, Portal> {
  const portals = [...plan.values()].flatMap((service) => service?.portals ?? []);
  return new Map(portals.map((portal) => [portal.id, portal]));
}

/** The port of each portal of a plan, where it is known. */
export function portsOfPlan(
  plan: UserspacePlan,
  { ports }: Pick<DesiredInput, "ports">,
  family: IpFamily,
): ReadonlyMap<PortalId, number> {
  const known = ports?.get(family)?.portOf;
  return new Map(
    [...portalsOf(plan)].flatMap(([id, portal]): [PortalId, number][] => {
      const port = known?.get(nameOf(portal));
      return port === undefined ? [] : [[id, port]];
    }),
  );
}

function nameOf({ text, protocol, policy }: Portal): string {
  return portalName(text, protocol, policy);
}

/** The ports that rules lead to which are there, for who cannot ask a running kproxy. */
export function portsOfRules(plan: UserspacePlan, tables: readonly IptablesRuleset[]): PortalPorts {
  const doorways = doorwaysOf(plan);
  const portals = portalsOf(plan);
  const portOf = new Map<string, number>();
  for (const saved of tables) {
    for (const [id, port] of adoptedPorts(doorways, saved)) {
      const portal = portals.get(id);
      if (portal !== undefined) portOf.set(nameOf(portal), port);
    }
  }
  return { portOf, has: ALL_ABILITIES };
}

function doorwaysOf(plan: UserspacePlan): readonly Doorway[] {
  return [...plan.values()].flatMap((service) => service?.doorways ?? []);
}

/** What an empty kernel, and kproxy beside it, hold after a sync of the plan. */
export function userspaceRules(
  plan: UserspacePlan,
  input: Pick<DesiredInput, "ports">,
  family: IpFamily,
): HeldRules {
  return heldOfPlan(plan, portsOfPlan(plan, input, family), family, input.ports?.get(family)?.has);
}

/** Likewise with these ports; what leads to a portal without one is left out. */
export function heldOfPlan(
  plan: UserspacePlan,
  ports: ReadonlyMap<PortalId, number>,
  family: IpFamily,
  has: PortalPorts["has"] = ALL_ABILITIES,
): HeldRules {
  const jumps = jumpsOf(has);
  const services = new Map(
    [...plan].map(([name, service]) => [name, rulesOf(service?.doorways ?? [], (id) => ports.get(id))]),
  );
  const held = new Map<string, HeldPortal>();
  for (const [id, { text, protocol, policy, endpoints, stickyMaxAgeSeconds }] of portalsOf(plan)) {
    const port = ports.get(id);
    if (port === undefined) continue;
    const portal = { servicePort: text, policy, endpoints, stickySeconds: stickyMaxAgeSeconds };
    held.set(portalKey(protocol, port), portal);
  }
  const there = { filter: new Map(), nat: new Map() };
  const written = TABLES.map((table) => tableText(table, services, there, jumps)).join("");
  // The jumps are told by their places, which the text for a kernel says otherwise.
  const own = written.split("\n").filter((line) =>
    !/^-[ID] (?!KUBE-)/.test(line) && !/^-A (?!KUBE-)/.test(line)
  );
  return {
    ...nothingHeld(family),
    iptables: [{ variant: "", tables: kernelTables(own.join("\n"), jumpsInPlace(jumps)) }],
    portals: held,
  };
}

/** Those to node ports stand at the end. */
function jumpsInPlace(jumps: readonly JumpRule[]): BuiltinRules {
  const isLast = ({ args }: { readonly args: string }): boolean => LAST_JUMPS.has(args);
  const first = jumps.filter((jump) => !isLast(jump));
  return builtinRules([...jumps.filter(isLast), ...first]);
}
