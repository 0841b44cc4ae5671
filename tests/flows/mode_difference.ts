/**
 * Why a packet fares differently in a mode: the reasons behind every `instead` of the flow cases.
 *
 * @module
 */
import { parsePacket } from "../../lib/sim/flow.ts";
import { type FlowCase, flowOf, type FlowStep } from "./flow_case.ts";

/** Those that do not do all as mode iptables does. */
export type DifferingMode = keyof NonNullable<FlowStep["instead"]>;

/** One reason, and which steps it explains. */
export interface ModeDifference {
  readonly reason: string;
  readonly explains: (step: ExplainedStep) => boolean;
}

/** A step with an `instead` for the mode. */
export interface ExplainedStep {
  readonly packet: ReturnType<typeof parsePacket>;
  readonly usual: string;
  readonly found: string;
  /** Words of the case's name. */
  readonly name: string;
}

/** The step as the reasons see it; null if the mode does as the others. */
function explainedStep(step: FlowStep, name: string, mode: DifferingMode): ExplainedStep | null {
  const found = step.instead?.[mode];
  if (found === undefined) return null;
  const { packet, wanted } = flowOf(step, "iptables");
  return { packet: parsePacket(packet), usual: wanted, found, name };
}

/** All steps of these cases in which the mode does something else. */
export function explainedSteps(cases: readonly FlowCase[], mode: DifferingMode): ExplainedStep[] {
  return cases.flatMap((one) =>
    one.flows.map((flow) => typeof flow === "string" ? null : explainedStep(flow, one.name, mode))
  ).filter((step) => step !== null);
}
