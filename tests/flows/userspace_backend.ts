/**
 * Userspace mode for the flow cases: objects → state → plan → rules and portals as a sync leaves them → simulated packets, which kproxy
 * takes and leads on.
 *
 * @module
 */
import { planUserspace } from "../../lib/backend/userspace/plan/plan.ts";
import { heldOfPlan, portalsOf } from "../../lib/inspect/modes/userspace.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { IptablesRuleset } from "../../lib/netfilter/iptables_save.ts";
import type { RulesetSnapshot } from "../../lib/sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import type { HostState } from "../../lib/sim/packet_walk.ts";
import type { FlowBackend, FlowOptions } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";
import { plannerOptions, stateOf } from "./planner_input.ts";
import { simulatedTable } from "./simulated_table.ts";

/** The match physdev of the mode's own rules makes the kernel show packets of a bridge by its ports. */
export const PODS_ON_A_BRIDGE: Partial<HostState> = { isBridged: (name) => name === "cni0" };
const FIRST_PORT = 40_001;

function heldOf(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): RulesetSnapshot {
  const { nodeIp, nodePortAddresses, nodePortIps, detector } = plannerOptions(
    family,
    options,
    options.nodePortAddresses,
  );
  const plan = planUserspace(stateOf(family, objects, options), "all", {
    family,
    listenIp: null,
    nodeIp,
    nodePortIps: nodePortAddresses.matchAll ? null : nodePortIps,
    detector,
    has: { dnat: true, physdev: true, firewall: true },
  });
  const ports = new Map([...portalsOf(plan).keys()].map((id, index) => [id, FIRST_PORT + index]));
  const held = heldOfPlan(plan, ports, family);
  return {
    ...held,
    iptables: held.iptables.map(({ variant, tables }) => ({ variant, tables: closed(tables, options) })),
  };
}

/** With the node's own firewall. */
function closed(tables: IptablesRuleset, { policies }: FlowOptions): IptablesRuleset {
  const filter = new Map(tables.get("filter"));
  for (const chain of ["INPUT", "FORWARD"] as const) {
    const known = filter.get(chain);
    if (known !== undefined) filter.set(chain, { ...known, policy: policies[chain] });
  }
  return new Map([...tables, ["filter", filter]]);
}

export const USERSPACE_BACKEND: FlowBackend = {
  name: "userspace",
  gaps: {},
  load(objects, options) {
    return simulatedTable(
      {
        IPv4: new RulesetSimulator(heldOf("IPv4", objects, options)),
        IPv6: new RulesetSimulator(heldOf("IPv6", objects, options)),
      },
      options,
      PODS_ON_A_BRIDGE,
    );
  },
};
