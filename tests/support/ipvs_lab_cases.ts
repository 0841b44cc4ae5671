/**
 * Which flow cases run with real packets in IPVS mode, and which packets of them cannot.
 *
 * @module
 */
import { parsePacket } from "../../lib/sim/flow.ts";
import { type FlowCase, flowOf, type FlowStep } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { SCTP_CASES } from "../flows/sctp_cases.ts";
import { isReal } from "./flow_lab_cases.ts";
import { isLoopbackFromOutside } from "./lab_flow.ts";

/** Where the packets of cases are sent that say which endpoint a client has had, and when. */
const AFFINITY =
  "which endpoint comes first is the kernel's choice, and hours are long: tests/lab/ipvs_affinity_in_uml.ts";

/** Each of these is one more start of kproxy there; tests/e2e/flows_test.ts sends their packets in the other modes. */
const RECORDED = "its configuration is a recorded world of this mode: tests/lab/recorded_in_uml.ts";
const NODE_PORTS =
  "which addresses node ports have is the model's choice; the cases with a primary address, a loopback range and IPv6 are run";
const POLICY = "the model decides it before any mode";

/** Cases that are not run here, and why. All others are. */
export const IPVS_LAB_CASE_GAPS: Readonly<Record<string, string>> = {
  "more than 1000 endpoints are still chosen evenly": "would need 1001 pods",
  "external IPs are sorted out by family, and blanks and leading zeros are forgiven":
    "manifests are held to what an API server would accept",
  "a pod that reaches itself without a Service is left alone": "such a packet never leaves the pod",
  "with affinity a client stays with its endpoint until the time is over, others choose freely": AFFINITY,
  "every new connection starts the affinity time afresh": AFFINITY,
  "affinity lasts three hours unless the Service says otherwise": AFFINITY,
  "a client keeps its endpoint across cluster IP, node port and load-balancer IP, and across policies":
    AFFINITY,
  "affinity is kept per port of a Service": AFFINITY,
  "affinity under internal policy Local chooses among the node's endpoints": AFFINITY,
  "affinity hides clients outside as anything else does": AFFINITY,
  "affinity under IPv6": AFFINITY,
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
};

/** Packets that no program of this lab can send, or whose result it cannot see; undefined for all others. */
export function ipvsLabGap(step: FlowStep): string | undefined {
  const { packet: text, wanted } = flowOf(step, "ipvs");
  const packet = parsePacket(text);
  if (packet.state === "ESTABLISHED" || packet.state === "RELATED") {
    return "part of a connection: every other flow has such packets";
  }
  if (isLoopbackFromOutside(packet)) {
    return "IPVS mode leaves localhost to the kernel, which refuses such packets";
  }
  const comesBack = wanted.includes(`${packet.source}:`);
  if (comesBack && wanted.includes("masquerade no") && !wanted.includes("masquerade yes")) {
    return "who gets its own packet back does not answer it";
  }
  if (comesBack && packet.inInterface === "") return "masquerading leaves it the address and port it has";
  return undefined;
}

/** Those of SCTP, which run in mode iptables there. */
export const SCTP_LAB_CASES: readonly FlowCase[] = [
  ...FLOW_CASES.filter(({ name }) => name.startsWith("SCTP: ")),
  ...SCTP_CASES,
];

export const IPVS_LAB_CASES: readonly FlowCase[] = FLOW_CASES.filter((flowCase) =>
  isReal("ipvs", flowCase) && IPVS_LAB_CASE_GAPS[flowCase.name] === undefined
);
