/**
 * Which flow cases run with real packets in IPVS mode, and which packets of them cannot.
 *
 * @module
 */
import { parsePacket } from "../../lib/netfilter/flow.ts";
import { type FlowCase, flowOf, type FlowStep } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { isLoopbackFromOutside } from "./lab_flow.ts";

/** Cases that are not run here, and why. */
export const IPVS_LAB_CASE_GAPS: Readonly<Record<string, string>> = {
  "more than 1000 endpoints are still chosen evenly": "would need 1001 pods",
  "external IPs are sorted out by family, and blanks and leading zeros are forgiven":
    "manifests are held to what an API server would accept",
  "a pod that reaches itself without a Service is left alone": "such a packet never leaves the pod",
  "a slice port without a name is skipped": "in manifests it has the name that an API server would give it",
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

/** Cases about nothing but the choice of endpoints: the model's, which other modes' tests send real packets to. */
function isModelCase({ guards }: FlowCase): boolean {
  return guards.every((guard) => guard.startsWith("vector "));
}

function isAffinityCase(flowCase: FlowCase): boolean {
  return flowCase.flows.some((flow) =>
    typeof flow !== "string" && (flow.takes !== undefined || flow.atSeconds !== undefined)
  );
}

export const IPVS_LAB_CASES: readonly FlowCase[] = FLOW_CASES.filter((one) =>
  IPVS_LAB_CASE_GAPS[one.name] === undefined && !isAffinityCase(one) && !isModelCase(one)
);
