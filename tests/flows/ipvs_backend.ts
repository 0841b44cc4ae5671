/**
 * IPVS mode for the flow cases: objects → state → plan → texts for the tools → what those would make of an empty kernel →
 * simulated packets.
 *
 * @module
 */
import { hostIps, nodePortIps, planIpvs } from "../../lib/backend/ipvs/plan/plan.ts";
import { type PlanTexts, planTexts } from "../../lib/backend/ipvs/store/store.ts";
import type { IpvsOptions } from "../../lib/backend/ipvs/plan/ruleset.ts";
import { emptySnapshot, kernelTables, type RulesetSnapshot } from "../../lib/sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { parseSets } from "../../lib/netfilter/ipset.ts";
import { parseIpvsTable } from "../../lib/netfilter/ipvs.ts";
import type { FlowBackend, FlowOptions, FlowTable } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";
import { plannerOptions, stateOf } from "./planner_input.ts";
import { simulatedTable } from "./simulated_table.ts";

/** One family as texts: what a full sync leaves in an empty kernel. */
export interface IpvsTexts extends PlanTexts {
  readonly jumps: Parameters<typeof kernelTables>[1];
}

function ipvsOptions(family: IpFamily, options: FlowOptions): IpvsOptions {
  const devices = options.interfaceIps.map((address): Parameters<typeof hostIps>[1][number] => ({
    device: "eth0",
    family: address.includes(":") ? "IPv6" : "IPv4",
    address,
    prefixLength: 24,
    scope: "global",
  }));
  const own = hostIps(family, devices);
  const { nodePortAddresses, ...common } = plannerOptions(family, options, options.nodePortAddresses);
  return {
    ...common,
    nodePortIps: nodePortIps(nodePortAddresses, own),
    hostIps: own,
    scheduler: "rr",
    schedulers: [],
    excludeCIDRs: [],
  };
}

/** Plans one family of a case. */
function ipvsTexts(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): IpvsTexts {
  const plan = planIpvs(stateOf(family, objects, options), "all", ipvsOptions(family, options));
  return { ...planTexts(plan), jumps: plan.base.jumps };
}

function heldOf(family: IpFamily, texts: IpvsTexts, options: FlowOptions): RulesetSnapshot {
  const bound = texts.ip.split("\n").map((line) => /^address add (\S+)\/\d+ dev kube-ipvs0$/.exec(line)?.[1])
    .filter((address) => address !== undefined);
  return {
    ...emptySnapshot(family),
    iptables: [{ variant: "", tables: kernelTables(texts.iptables, texts.jumps, options.policies) }],
    sets: parseSets(texts.ipset),
    ipvs: { servers: parseIpvsTable(texts.ipvsadm), bound },
  };
}

/** Everything ready for packets of both families. */
function ipvsTableOf(texts: Readonly<Record<IpFamily, IpvsTexts>>, options: FlowOptions): FlowTable {
  const simulator = (family: IpFamily): RulesetSimulator =>
    new RulesetSimulator(heldOf(family, texts[family], options));
  return simulatedTable({ IPv4: simulator("IPv4"), IPv6: simulator("IPv6") }, options);
}

export const IPVS_BACKEND: FlowBackend = {
  name: "ipvs",
  gaps: {},
  load(objects, options) {
    return ipvsTableOf({
      IPv4: ipvsTexts("IPv4", objects, options),
      IPv6: ipvsTexts("IPv6", objects, options),
    }, options);
  },
};
