/**
 * A trace for programs: `{"apiVersion": "kproxy/v1", "kind": "Trace"}`.
 *
 * @module
 */
import type { EndpointUse } from "../../model/endpoint_reasons.ts";
import type { IpFamily } from "../../model/objects.ts";
import { type FlowOutcome, formatFlow, type RuleHit } from "../../sim/flow.ts";
import { formatFraction } from "../../sim/fraction.ts";
import { ruleWords } from "../../sim/rule_words.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import { isOwnHit } from "./compare.ts";
import type { Trace, TracedService, TraceSide } from "./trace.ts";

/** The value whose JSON is printed. Fields that do not apply are null. */
export function traceDocument(trace: Trace): unknown {
  const { family, packet, service, desired, live, difference, findings, unsure, notes, problems } = trace;
  return {
    apiVersion: API_VERSION,
    kind: "Trace",
    packet: {
      family,
      source: packet.source,
      interface: packet.inInterface,
      destination: packet.destination,
      port: packet.port,
      protocol: packet.protocol,
    },
    service: service === null ? null : serviceDocument(service),
    desired: desired === null ? null : sideDocument(desired, family),
    live: live === null ? null : sideDocument(live, family),
    difference: difference === null ? null : {
      desired: difference.desired,
      live: difference.live,
      desiredStep: difference.desiredStep === null ? null : stepDocument(difference.desiredStep, family),
      liveStep: difference.liveStep === null ? null : stepDocument(difference.liveStep, family),
    },
    findings,
    unsure,
    notes,
    problems,
  };
}

function serviceDocument({ port, kind, policy, uses }: TracedService): unknown {
  return {
    name: port.namespacedName,
    portName: port.portName,
    port: port.port,
    protocol: port.protocol,
    reachedBy: kind,
    policy,
    endpoints: uses.endpoints.map((use) => endpointDocument(use)),
  };
}

export function endpointDocument({ endpoint, cluster, local }: EndpointUse): unknown {
  const { key, isLocal, ready, serving, terminating } = endpoint;
  return {
    address: key,
    onThisNode: isLocal,
    ready,
    serving,
    terminating,
    cluster: cluster === null ? null : { used: cluster.isUsed, reason: cluster.reason },
    local: local === null ? null : { used: local.isUsed, reason: local.reason },
  };
}

function sideDocument(side: TraceSide, family: IpFamily): unknown {
  return {
    from: side.from,
    modes: side.modes,
    end: formatFlow(side.flow),
    outcomes: side.flow.outcomes.map((outcome) => outcomeDocument(outcome, family)),
  };
}

function outcomeDocument(outcome: FlowOutcome, family: IpFamily): unknown {
  const { probability, verdict, rejectWith, translatedTo, toNode, masquerade, hits } = outcome;
  return {
    probability: formatFraction(probability),
    verdict,
    rejectWith,
    translatedTo,
    toNode,
    masquerade,
    steps: hits.map((hit) => stepDocument(hit, family)),
  };
}

function stepDocument(hit: RuleHit, family: IpFamily): unknown {
  const { hook, table, chain, index, rule } = hit;
  return {
    hook: hook ?? "",
    table,
    chain,
    number: index,
    rule,
    words: ruleWords(hit, family),
    own: isOwnHit(hit),
  };
}
