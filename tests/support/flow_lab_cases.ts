/**
 * The flow cases as a lab runs them with real packets: which of them, in which groups, and what the node is before its proxy starts.
 *
 * @module
 */
import { parsePacket } from "../../lib/sim/flow.ts";
import { type FlowCase, flowOf, type FlowOptions, type FlowStep, optionsOf } from "../flows/flow_case.ts";
import { FLOW_CASES, MODEL_CASES } from "../flows/flow_cases.ts";
import { SCTP_CASES } from "../flows/sctp_cases.ts";
import { isLoopbackFromOutside } from "./lab_flow.ts";
import type { NodeLab } from "./node_lab.ts";

/** A mode, and the programs that it works with here. */
export interface Surface {
  readonly mode: "iptables" | "nftables" | "userspace";
  /** Which iptables the node's own firewall is written with, and the mode's rules if it writes such. */
  readonly variant: "nft" | "legacy";
}

/** Cases that are not run here, and where they are. */
export const CASE_GAPS: Readonly<Record<string, string>> = {
  "more than 1000 endpoints are still chosen evenly": "would need 1001 pods",
  "external IPs are sorted out by family, and blanks and leading zeros are forgiven":
    "manifests are held to what an API server would accept",
  "a pod that reaches itself without a Service is left alone": "such a packet never leaves the pod",
  "a slice port without a name is skipped": "in manifests it has the name that an API server would give it",
};
/** Those of one mode. */
export const MODE_GAPS: Readonly<Record<Surface["mode"], Readonly<Record<string, string>>>> = {
  iptables: {},
  nftables: {
    "a cluster IP that no Service has": "needs ServiceCIDRs: tests/e2e/service_cidrs_test.ts",
  },
  userspace: {},
};

/** Packets that no program of this lab can send, or whose result it cannot see; undefined for all others. */
export function gapOf(mode: string, step: FlowStep): string | undefined {
  const { packet: text, wanted } = flowOf(step, mode);
  const packet = parsePacket(text);
  if (packet.state === "ESTABLISHED" || packet.state === "RELATED") {
    return "part of a connection: every other flow has such packets";
  }
  if (isLoopbackFromOutside(packet) && packet.protocol !== "tcp") return "frames are made for TCP only";
  if (wanted.includes(`${packet.source}:`) && wanted.endsWith("masquerade no")) {
    return "no host answers a packet that comes back to it from itself";
  }
  return undefined;
}

/** True for what is tried with real packets in this mode, too: what the model decides is, where packets fare otherwise there. */
export function isReal(mode: string, flowCase: FlowCase): boolean {
  if (mode === "nftables" || !MODEL_CASES.includes(flowCase)) return true;
  return flowCase.flows.some((step) =>
    typeof step !== "string" &&
    (step.instead as Readonly<Record<string, string>> | undefined)?.[mode] !== undefined
  );
}

/**
 * True if this mode also compares what `kproxy trace` says of the live rules. Reading them takes as long as all packets of a case, so
 * each case has one of the modes that run it, and mode ipvs a sixth of its cases; `tests/flows/trace_test.ts` traces every case in every
 * mode through the same rules as text.
 */
export function isTraced(mode: string, flowCase: FlowCase): boolean {
  const at = Math.max(0, FLOW_CASES.indexOf(flowCase));
  if (mode === "ipvs") return at % 6 === 0;
  const modes = TRACED_MODES.filter((one) =>
    isReal(one, flowCase) && MODE_GAPS[one][flowCase.name] === undefined
  );
  return modes[at % modes.length] === mode;
}

const TRACED_MODES = ["iptables", "nftables", "userspace"] as const;

/** Which endpoint comes first is the kernel's choice and hours are long: tests/e2e/affinity_test.ts. */
function isAffinityCase(flowCase: FlowCase): boolean {
  return flowCase.flows.some((flow) =>
    typeof flow !== "string" && (flow.takes !== undefined || flow.atSeconds !== undefined)
  );
}

/** What only a start of kproxy can change. */
export type StartOptions = Omit<FlowOptions, "interfaceIps" | "nodeIps" | "nodeName" | "serviceCidrs">;

/** See {@linkcode StartOptions}. */
export function startOptions(
  { interfaceIps: _, nodeIps: _1, nodeName: _2, serviceCidrs: _3, ...options }: FlowOptions,
): StartOptions {
  return options;
}

/** Settings of the kernel before kproxy starts, and what else on the node decides about packets. */
export async function prepareNode(
  lab: NodeLab,
  options: StartOptions,
  { mode, variant }: Surface,
): Promise<void> {
  const { netns } = lab.node;
  if (mode !== "nftables") {
    // Rules stay when kproxy ends, and not all of them are its own to remove.
    for (const tool of ["iptables", "ip6tables"]) {
      const empty = ["filter", "nat", "mangle"].map((table) => `*${table}\nCOMMIT\n`).join("");
      await netns.run([`${tool}-${variant}-restore`, "-w", "5"], { stdin: empty });
    }
    // The variant is the one in which another agent has left its hint.
    await netns.run([`iptables-${variant}`, "-w", "5", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
  }
  const setting = `net.netfilter.nf_conntrack_tcp_be_liberal=${options.tcpBeLiberal ? 1 : 0}`;
  await netns.run(["sysctl", "-q", "-w", setting, "net.ipv4.conf.all.route_localnet=0"]);
  for (const tool of ["iptables", "ip6tables"]) {
    for (const chain of ["INPUT", "FORWARD"] as const) {
      await netns.run([`${tool}-${variant}`, "-w", "5", "-P", chain, options.policies[chain]]);
    }
  }
}

/** Cases that one proxy can serve, one after the other; without those that are not chosen. */
export function groupsOf(
  mode: Surface["mode"],
  isChosen: (flowCase: FlowCase, index: number) => boolean = () => true,
): readonly FlowCase[][] {
  const gaps = { ...CASE_GAPS, ...MODE_GAPS[mode] };
  const cases = [...FLOW_CASES, ...SCTP_CASES].filter((one) =>
    gaps[one.name] === undefined && !isAffinityCase(one)
  ).filter(isChosen);
  return [...Map.groupBy(cases, (one) => JSON.stringify(startOptions(optionsOf(one)))).values()];
}
