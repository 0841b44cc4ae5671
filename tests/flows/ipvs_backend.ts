/**
 * IPVS mode for the flow cases: objects → state → plan → texts for the tools → what those would make of an empty kernel →
 * simulated packets.
 *
 * @module
 */
import { planIpvs } from "../../lib/backend/ipvs/plan.ts";
import { type PlanTexts, planTexts } from "../../lib/backend/ipvs/render.ts";
import type { IpvsOptions, IpvsPlan } from "../../lib/backend/ipvs/ruleset.ts";
import { hostIps, nodePortIps } from "../../lib/backend/ipvs/settings.ts";
import { type IpvsKernel, IpvsSimulator } from "../../lib/backend/ipvs/simulate.ts";
import { nodePortAddresses, selectLocalDetector } from "../../lib/model/node.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
} from "../../lib/netfilter/iptables_save.ts";
import { parseSets } from "../../lib/netfilter/ipset.ts";
import { parseIpvsTable } from "../../lib/netfilter/ipvs.ts";
import { type AffinityMemory, rememberOutcome } from "../../lib/netfilter/packet_walk.ts";
import type { FlowBackend, FlowOptions, FlowTable } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";
import { stateOf } from "./planner_input.ts";

const BUILTIN_CHAINS: Readonly<Record<"filter" | "nat", readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/** One family as texts: what a full sync leaves in an empty kernel. */
export interface IpvsTexts extends PlanTexts {
  /** `TABLE CHAIN` → rules of a built-in chain, in kernel order. */
  readonly builtin: ReadonlyMap<string, readonly string[]>;
}

function ipvsOptions(family: IpFamily, options: FlowOptions): IpvsOptions {
  const primaryFamily: IpFamily = "IPv4";
  const ownIps = { primaryFamily, ...options.nodeIps, primaryIsLoopback: false };
  const devices = options.interfaceIps.map((address): Parameters<typeof hostIps>[1][number] => ({
    device: "eth0",
    family: address.includes(":") ? "IPv6" : "IPv4",
    address,
    prefixLength: 24,
    scope: "global",
  }));
  const own = hostIps(family, devices);
  return {
    family,
    masqueradeMark: (1 << options.masqueradeBit) >>> 0,
    masqueradeAll: options.masqueradeAll,
    detector:
      selectLocalDetector(family, { ...options, mode: options.detectLocalMode, podCIDRs: [] }).detector,
    randomFully: true,
    nodeIp: options.nodeIps[family],
    nodePortIps: nodePortIps(nodePortAddresses(family, options.nodePortAddresses, ownIps), own),
    hostIps: own,
    scheduler: "rr",
    schedulers: [],
    excludeCIDRs: [],
  };
}

/** Each jump is inserted at the top, so the last one is met first. */
function builtinRules(plan: IpvsPlan): Map<string, string[]> {
  const builtin = new Map<string, string[]>();
  for (const jump of plan.base.jumps) {
    const key = `${jump.table} ${jump.chain}`;
    builtin.set(key, [jump.args, ...builtin.get(key) ?? []]);
  }
  return builtin;
}

/** Plans one family of a case. */
export function ipvsTexts(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): IpvsTexts {
  const plan = planIpvs(stateOf(family, objects, options), "all", ipvsOptions(family, options));
  return { ...planTexts(plan), builtin: builtinRules(plan) };
}

function kernelTables(texts: IpvsTexts, options: FlowOptions): IptablesRuleset {
  const written = parseIptablesSave(texts.iptables);
  return new Map((["filter", "nat"] as const).map((table) => {
    const chains = new Map<string, SavedChain>(written.get(table));
    for (const chain of BUILTIN_CHAINS[table]) {
      const policy = table === "filter" && chain !== "OUTPUT"
        ? options.policies[chain as "INPUT" | "FORWARD"]
        : "ACCEPT";
      const rules = texts.builtin.get(`${table} ${chain}`) ?? [];
      chains.set(chain, { policy, packets: 0, bytes: 0, rules });
    }
    return [table, chains];
  }));
}

function kernelOf(texts: IpvsTexts, options: FlowOptions): IpvsKernel {
  const bound = texts.ip.split("\n").map((line) => /^address add (\S+)\/\d+ dev kube-ipvs0$/.exec(line)?.[1])
    .filter((address) => address !== undefined);
  return {
    tables: kernelTables(texts, options),
    sets: parseSets(texts.ipset),
    ipvs: parseIpvsTable(texts.ipvsadm),
    bound,
  };
}

/** Everything ready for packets of both families. */
export function ipvsTableOf(texts: Readonly<Record<IpFamily, IpvsTexts>>, options: FlowOptions): FlowTable {
  const simulators: Readonly<Record<IpFamily, IpvsSimulator>> = {
    IPv4: new IpvsSimulator(kernelOf(texts.IPv4, options)),
    IPv6: new IpvsSimulator(kernelOf(texts.IPv6, options)),
  };
  let affinity: AffinityMemory = new Map();
  return {
    send(packet, nowSeconds) {
      const simulator = simulators[packet.source.includes(":") ? "IPv6" : "IPv4"];
      return simulator.send(packet, { nodeAddresses: options.interfaceIps, affinity, nowSeconds });
    },
    take(packet, outcome, atSeconds) {
      affinity = rememberOutcome(affinity, packet, outcome, atSeconds);
    },
  };
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
