/**
 * Flow cases that a lab runs with real packets: which cases run in which mode, and which packets cannot be sent.
 *
 * @module
 */
import { parsePacket } from "../../lib/sim/flow.ts";
import { type FlowCase, flowOf, type FlowStep } from "../flows/flow_case.ts";
import { FLOW_CASES, MODEL_CASES } from "../flows/flow_cases.ts";
import { SCTP_CASES } from "../flows/sctp_cases.ts";
import { isLoopbackFromOutside } from "./lab_flow.ts";

/** Modes that run on any kernel, and the one that runs in a user-mode Linux. */
export type FlowMode = "iptables" | "nftables" | "userspace" | "ipvs";

/** Gap: each of these cases needs another start of kproxy in UML; its packets are sent in the other modes. */
const RECORDED = "its configuration is a recorded world of this mode: tests/lab/recorded_in_uml.ts";
const NODE_PORTS =
  "which addresses node ports have is the model's choice; the cases with a primary address, a loopback range and IPv6 are run";
const POLICY = "the model decides it before any mode";

/** Cases that run in no mode here, with the reason. */
const CASE_GAPS: Readonly<Record<string, string>> = {
  "more than 1000 endpoints are still chosen evenly": "would need 1001 pods",
  "external IPs are sorted out by family, and blanks and leading zeros are forgiven":
    "manifests are held to what an API server would accept",
  "a pod that reaches itself without a Service is left alone": "such a packet never leaves the pod",
  "a slice port without a name is skipped": "in manifests it has the name that an API server would give it",
};
/** Gaps of single modes: case → reason. */
const MODE_GAPS: Readonly<Record<FlowMode, Readonly<Record<string, string>>>> = {
  iptables: {},
  nftables: {
    "a cluster IP that no Service has": "needs ServiceCIDRs: tests/e2e/service_cidrs_test.ts",
  },
  userspace: {},
  ipvs: {
    "masqueradeAll needs no way to tell pods": RECORDED,
    "the masquerade bit is the one configured": RECORDED,
    "the masquerade bit is the one configured, behind an open firewall": RECORDED,
    "a bridge tells pods by their interface, not by their address": RECORDED,
    "nodePortAddresses limits node ports to the node's addresses in it": RECORDED,
    "nodePortAddresses of the other family only means every address": NODE_PORTS,
    "a zero CIDR in nodePortAddresses overrides the others": NODE_PORTS,
    "IPv6 node ports on every address of the node leave localhost out": NODE_PORTS,
    "a cluster CIDR with host bits is taken as its network": POLICY,
    "external IPs outside of the policy's networks are not taken, nor is the node's own address": POLICY,
    "load-balancer IPs outside of the policy's networks are not taken, nor is the node's own address": POLICY,
    "the node's own address is served where the policy allows it, as k3s' load balancer needs": POLICY,
  },
};

/** Names of all cases that do not run in some mode. */
export const GAPS: readonly string[] = [CASE_GAPS, ...Object.values(MODE_GAPS)].flatMap((gaps) =>
  Object.keys(gaps)
);

/**
 * True for affinity cases: the kernel chooses the first endpoint, and hours are long: tests/e2e/affinity_test.ts, and for ipvs
 * tests/lab/ipvs_affinity_in_uml.ts.
 */
function isAffinityCase({ objects, flows }: FlowCase): boolean {
  return JSON.stringify(objects).includes("ClientIP") &&
    flows.some((flow) =>
      typeof flow !== "string" && (flow.takes !== undefined || flow.atSeconds !== undefined)
    );
}

/** True if a case also runs with real packets in this mode: the model's decisions do so only where packets fare differently. */
function isReal(mode: FlowMode, flowCase: FlowCase): boolean {
  if (mode === "nftables" || !MODEL_CASES.includes(flowCase)) return true;
  return flowCase.flows.some((step) =>
    typeof step !== "string" &&
    (step.instead as Readonly<Record<string, string>> | undefined)?.[mode] !== undefined
  );
}

function isRun(mode: FlowMode, flowCase: FlowCase): boolean {
  return isReal(mode, flowCase) && CASE_GAPS[flowCase.name] === undefined &&
    MODE_GAPS[mode][flowCase.name] === undefined && !isAffinityCase(flowCase);
}

/** All cases that run in a mode. */
export function labCases(mode: FlowMode): readonly FlowCase[] {
  return [...FLOW_CASES, ...(mode === "ipvs" ? [] : SCTP_CASES)].filter((one) => isRun(mode, one));
}

/** SCTP cases, which run in mode iptables in UML, whose kernel has SCTP sockets. */
export const SCTP_LAB_CASES: readonly FlowCase[] = [
  ...FLOW_CASES.filter(({ name }) => name.startsWith("SCTP: ")),
  ...SCTP_CASES,
];

const TRACED_MODES = ["iptables", "nftables", "userspace"] as const;

/**
 * True if this mode also compares `kproxy trace` on the live rules. Reading them takes as long as all packets of a case, so
 * each case is compared in one of its modes, and a sixth of them in mode ipvs; `tests/flows/trace_test.ts` traces every case in every
 * mode through the same rules as text.
 */
export function isTraced(mode: FlowMode, flowCase: FlowCase): boolean {
  const at = Math.max(0, FLOW_CASES.indexOf(flowCase));
  if (mode === "ipvs") return at % 6 === 0;
  const modes = TRACED_MODES.filter((one) => isRun(one, flowCase));
  return modes[at % modes.length] === mode;
}

/** Why the lab cannot send a packet, or cannot see its result; undefined if it can. */
export function gapOf(mode: string, step: FlowStep): string | undefined {
  const { packet: text, wanted } = flowOf(step, mode);
  const packet = parsePacket(text);
  if (packet.state === "ESTABLISHED" || packet.state === "RELATED") {
    return "part of a connection: every other flow has such packets";
  }
  if (isLoopbackFromOutside(packet)) {
    if (mode === "ipvs") return "IPVS mode leaves localhost to the kernel, which refuses such packets";
    if (packet.protocol !== "tcp") return "frames are made for TCP only";
  }
  if (!wanted.includes(`${packet.source}:`)) return undefined;
  const isLeft = mode === "ipvs"
    ? wanted.includes("masquerade no") && !wanted.includes("masquerade yes")
    : wanted.endsWith("masquerade no");
  if (isLeft) return "no host answers a packet that comes back to it from itself";
  return mode === "ipvs" && packet.inInterface === ""
    ? "masquerading leaves it the address and port it has"
    : undefined;
}
