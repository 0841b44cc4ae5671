/**
 * iptables mode for the flow cases: objects → state → plan → restore text → parsed rules → simulated packets.
 *
 * @module
 */
import { planIptables } from "../../lib/backend/iptables/plan.ts";
import { renderPlan } from "../../lib/backend/iptables/render.ts";
import type { IptablesOptions, IptablesPlan } from "../../lib/backend/iptables/ruleset.ts";
import { IptablesSimulator } from "../../lib/backend/iptables/simulate.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { matchingNodeIps, nodePortAddresses, selectLocalDetector } from "../../lib/model/node.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { ProxyState } from "../../lib/model/state.ts";
import {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
} from "../../lib/netfilter/iptables_save.ts";
import { type AffinityMemory, rememberOutcome } from "../../lib/netfilter/packet_walk.ts";
import { decodeObject } from "../../lib/source/decode.ts";
import type { FlowBackend, FlowOptions, FlowTable } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";

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

/** The state that the objects of a case make. */
export function stateOf(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): ProxyState {
  const tracker = new ChangeTracker({ family, node: { name: options.nodeName, zone: options.zone } });
  for (const json of objects) {
    const decoded = decodeObject(json, "flow case");
    const [rejection] = decoded.rejections;
    if (rejection !== undefined) {
      throw new TypeError(`Object of a flow case is refused: ${JSON.stringify(rejection)}`);
    }
    for (const object of decoded.objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
  }
  return tracker.checkout().state;
}

function iptablesOptions(family: IpFamily, options: FlowOptions): IptablesOptions {
  const primaryFamily: IpFamily = "IPv4";
  const ownIps = { primaryFamily, ...options.nodeIps, primaryIsLoopback: false };
  const addresses = nodePortAddresses(family, options.nodePortAddresses, ownIps);
  return {
    family,
    masqueradeMark: (1 << options.masqueradeBit) >>> 0,
    masqueradeAll: options.masqueradeAll,
    detector:
      selectLocalDetector(family, { ...options, mode: options.detectLocalMode, podCIDRs: [] }).detector,
    localhostNodePorts: options.localhostNodePorts,
    nodePortAddresses: addresses,
    nodePortIps: matchingNodeIps(addresses, options.interfaceIps),
    nodeIp: options.nodeIps[family],
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
