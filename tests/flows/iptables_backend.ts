/**
 * iptables mode for the flow cases: objects → state → plan → restore text → parsed rules → simulated packets.
 *
 * @module
 */
import { planIptables } from "../../lib/backend/iptables/plan.ts";
import { renderPlan } from "../../lib/backend/iptables/render.ts";
import type { IptablesOptions, IptablesPlan } from "../../lib/backend/iptables/ruleset.ts";
import { IptablesSimulator } from "../../lib/backend/iptables/simulate.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
} from "../../lib/netfilter/iptables_save.ts";
import { type AffinityMemory, rememberOutcome } from "../../lib/netfilter/packet_walk.ts";
import type { FlowBackend, FlowOptions, FlowTable } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";
import { plannerOptions, stateOf } from "./planner_input.ts";

const BUILTIN_CHAINS: Readonly<Record<"filter" | "nat", readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/** One family's rules as text: what a full sync leaves in an empty kernel. */
export interface RulesText {
  /** Restore text of our own chains. */
  readonly restore: string;
  /** `TABLE CHAIN` → rules of a built-in chain, in kernel order. */
  readonly builtin: ReadonlyMap<string, readonly string[]>;
}

function iptablesOptions(family: IpFamily, options: FlowOptions): IptablesOptions {
  return {
    ...plannerOptions(family, options, options.nodePortAddresses),
    localhostNodePorts: options.localhostNodePorts,
    randomFully: true,
    dropInvalid: !options.tcpBeLiberal,
  };
}

/** Each jump is inserted at the top, so the last one is met first. */
function builtinRules(plan: IptablesPlan): Map<string, string[]> {
  const builtin = new Map<string, string[]>();
  for (const jump of plan.base.jumps) {
    const key = `${jump.table} ${jump.chain}`;
    builtin.set(key, [jump.args, ...builtin.get(key) ?? []]);
  }
  return builtin;
}

/** Plans one family of a case. */
export function rulesText(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): RulesText {
  const plan = planIptables(stateOf(family, objects, options), "all", iptablesOptions(family, options));
  return { restore: renderPlan(plan), builtin: builtinRules(plan) };
}

/** The kernel's tables after the text was restored into an empty one. */
function kernelTables(text: RulesText, options: FlowOptions): IptablesRuleset {
  const written = parseIptablesSave(text.restore);
  return new Map((["filter", "nat"] as const).map((table) => {
    const chains = new Map<string, SavedChain>(written.get(table));
    for (const chain of BUILTIN_CHAINS[table]) {
      const policy = table === "filter" && chain !== "OUTPUT"
        ? options.policies[chain as "INPUT" | "FORWARD"]
        : "ACCEPT";
      chains.set(chain, { policy, packets: 0, bytes: 0, rules: text.builtin.get(`${table} ${chain}`) ?? [] });
    }
    // Owned by kubelet, so its existence is ensured by other means than the restore text.
    if (table === "filter" && !chains.has("KUBE-FIREWALL")) {
      chains.set("KUBE-FIREWALL", { policy: "-", packets: 0, bytes: 0, rules: [] });
    }
    return [table, chains];
  }));
}

/** Rules ready for packets of both families. */
export function tableOf(text: Readonly<Record<IpFamily, RulesText>>, options: FlowOptions): FlowTable {
  const simulators: Readonly<Record<IpFamily, IptablesSimulator>> = {
    IPv4: new IptablesSimulator(kernelTables(text.IPv4, options)),
    IPv6: new IptablesSimulator(kernelTables(text.IPv6, options)),
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

export const IPTABLES_BACKEND: FlowBackend = {
  name: "iptables",
  gaps: {},
  load(objects, options) {
    return tableOf({
      IPv4: rulesText("IPv4", objects, options),
      IPv6: rulesText("IPv6", objects, options),
    }, options);
  },
};
