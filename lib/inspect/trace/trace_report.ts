/**
 * Output of a trace, for people, and for programs (`{"apiVersion": "kproxy/v1", "kind": "Trace"}`).
 *
 * @module
 */
import type { EndpointUse, EndpointUses } from "../../model/endpoint_reasons.ts";
import type { IpFamily } from "../../model/objects.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import { type FlowOutcome, formatFlow, formatFraction, ONE, type RuleHit } from "../../sim/flow.ts";
import { PORTAL_TABLE } from "../../sim/portals.ts";
import { ruleWords } from "../../sim/rule_words.ts";
import { alignColumns } from "../../text/columns.ts";
import { isOwnHit, placeOf } from "./compare.ts";
import { packetText } from "./packet.ts";
import type { Trace, TracedService, TraceSide } from "./trace.ts";

/** Number of outcomes whose paths are printed; of further ones only the ends are. */
const SHOWN_OUTCOMES = 6;
/** Number of endpoints that are printed; used ones come first. */
const SHOWN_ENDPOINTS = 40;
const SHOWN_PROBLEMS = 10;

export function traceLines(trace: Trace): string[] {
  const { family, packet, service, desired, live, difference, findings, unsure, notes, problems } = trace;
  const isTwice = desired !== null && live !== null;
  return [
    packetText(packet),
    ...(service === null ? [] : serviceLines(service)),
    ...(live === null ? [] : ["", ...sideLines("live", live, family)]),
    ...(desired === null ? [] : [""]),
    ...(desired === null
      ? []
      : isTwice && difference === null
      ? [`The desired rules (${sideText(desired)}) say the same.`]
      : sideLines("desired", desired, family)),
    ...(difference === null ? [] : [
      "",
      "They part here:",
      `  desired: ${stepText(difference.desiredStep)}`,
      `  live:    ${stepText(difference.liveStep)}${
        difference.isForeign ? "  (no service proxy's rule)" : ""
      }`,
    ]),
    ...(findings.length === 0 ? [] : ["", ...findings.map((finding) => `Wrong: ${finding}`)]),
    ...(unsure.length === 0 ? [] : ["", ...unsure.map((one) => `Unsure: ${one}`)]),
    ...(notes.length === 0 ? [] : ["", ...notes.map((note) => `Note: ${note}`)]),
    ...(problems.length === 0 ? [] : ["", ...problemLines(problems)]),
  ];
}

/** The first problems of reading the rules. */
export function problemLines(problems: Trace["problems"]): string[] {
  const lines = problems.slice(0, SHOWN_PROBLEMS).map(({ place, message }) =>
    `Not read: ${place}: ${message}`
  );
  const more = problems.length - lines.length;
  return more > 0 ? [...lines, `Not read: ${more} more, see -o json`] : lines;
}

function sideText({ from, modes }: TraceSide): string {
  return [...modes, from].join(", ");
}

function stepText(step: RuleHit | null): string {
  if (step === null) return "no further rule";
  return `${step.hook === undefined ? "" : `${step.hook}, `}${placeOf(step)}`;
}

function serviceLines({ port, kind, policy, uses }: TracedService): string[] {
  const name = policy === "local" ? "Local" : "Cluster";
  const affinity = port.stickyMaxAgeSeconds > 0 ? `, clients stay for ${port.stickyMaxAgeSeconds} s` : "";
  return [
    `Service ${port.text} (${port.protocol} ${port.port}), by its ${kind}, policy ${name}${affinity}`,
    ...endpointLines(uses, policy),
  ];
}

export function endpointLines(uses: EndpointUses, policy: "cluster" | "local"): string[] {
  const rows = uses.endpoints.map((use) => ({ use, verdict: use[policy] ?? use.cluster ?? use.local }))
    .toSorted((a, b) => Number(b.verdict?.isUsed ?? false) - Number(a.verdict?.isUsed ?? false));
  if (rows.length === 0) return [];
  const shown = rows.slice(0, SHOWN_ENDPOINTS).map(({ use: { endpoint }, verdict }) => [
    `  ${endpoint.key}`,
    endpoint.isLocal ? "this node" : "other node",
    verdict?.isUsed === true ? "used" : "left out",
    verdict?.reason ?? "",
  ]);
  const more = rows.length - shown.length;
  return [...alignColumns(shown), ...(more > 0 ? [`  and ${more} more`] : [])];
}

function sideLines(name: string, side: TraceSide, family: IpFamily): string[] {
  const { outcomes } = side.flow;
  const [first] = outcomes;
  const head = `By the ${name} rules (${sideText(side)}): ${formatFlow(side.flow)}`;
  if (first === undefined) return [head];
  const hits = (some: readonly RuleHit[], before: RuleHit | undefined, indent = ""): string[] =>
    hitLines(some, before?.hook ?? "", family, indent);
  if (outcomes.length === 1) return [head, ...hits(first.hits, undefined)];
  const shared = sharedHits(outcomes.map((outcome) => outcome.hits));
  const rests = outcomes.map((outcome) => outcome.hits.slice(shared));
  const tail = sharedHits(rests.map((rest) => rest.toReversed()));
  const last = first.hits.length - tail;
  const more = outcomes.length - SHOWN_OUTCOMES;
  // Where one rule chooses among all, e.g. by a map, the outcomes' ends suffice.
  if (rests.every((rest) => rest.length === 0)) return [head, ...hits(first.hits, undefined)];
  return [
    head,
    ...hits(first.hits.slice(0, shared), undefined),
    ...rests.slice(0, SHOWN_OUTCOMES).flatMap((rest, index) => {
      const own = rest.slice(0, rest.length - tail);
      const share = `    ${formatFraction(outcomes[index]?.probability ?? ONE)} of new connections`;
      if (own.length === 0) return [`${share}: no other rule`];
      return [share, ...hits(own, first.hits[shared - 1], "  ")];
    }),
    ...(more > 0 ? [`    and ${more} more ways, see -o json`] : []),
    ...(tail === 0 ? [] : ["    then all of them", ...hits(first.hits.slice(last), first.hits[last - 1])]),
  ];
}

/** Number of leading rules that all paths share. */
function sharedHits(ways: readonly (readonly RuleHit[])[]): number {
  const [first = [], ...others] = ways;
  const at = first.findIndex((hit, index) => others.some((hits) => !isSameHit(hit, hits[index])));
  return at < 0 ? first.length : at;
}

function isSameHit(left: RuleHit, right: RuleHit | undefined): boolean {
  return right !== undefined && left.table === right.table && left.chain === right.chain &&
    left.index === right.index && left.hook === right.hook && left.rule === right.rule;
}

/** Names of pseudo tables in reports. */
const PLACES: Readonly<Record<string, string>> = { ipvs: "IPVS", [PORTAL_TABLE]: "kproxy" };

function hitLines(
  hits: readonly RuleHit[],
  hookBefore: string,
  family: IpFamily,
  indent = "",
): string[] {
  const lines: string[] = [];
  let hook = hookBefore;
  let rows: string[][] = [];
  let rules: string[] = [];
  const flush = (): void => {
    for (const [index, line] of alignColumns(rows).entries()) {
      lines.push(line);
      const rule = rules[index] ?? "";
      if (rule !== "") lines.push(`${indent}        ${rule}`);
    }
    rows = [];
    rules = [];
  };
  for (const hit of hits) {
    if (hit.hook !== undefined && hit.hook !== hook) {
      flush();
      hook = hit.hook;
      lines.push(`${indent}  ${hook}`);
    }
    const place = `${PLACES[hit.table] ?? hit.table} ${hit.chain}`;
    const number = hit.index === 0 ? "" : String(hit.index);
    const words = ruleWords(hit, family);
    const foreign = isOwnHit(hit) ? "" : "  (not a service proxy's)";
    rows.push([`${indent}    ${place}`, number, `${words === "" ? hit.rule : words}${foreign}`]);
    rules.push(words === "" ? "" : hit.rule);
  }
  flush();
  return lines;
}

export type TraceDocument = ReturnType<typeof traceDocument>;

/** Document of `-o json`. Fields that do not apply are null. */
export function traceDocument(trace: Trace) {
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

function serviceDocument({ port, kind, policy, uses }: TracedService) {
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

export function endpointDocument({ endpoint, cluster, local }: EndpointUse) {
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

function sideDocument(side: TraceSide, family: IpFamily) {
  return {
    from: side.from,
    modes: side.modes,
    end: formatFlow(side.flow),
    outcomes: side.flow.outcomes.map((outcome) => outcomeDocument(outcome, family)),
  };
}

function outcomeDocument(outcome: FlowOutcome, family: IpFamily) {
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

function stepDocument(hit: RuleHit, family: IpFamily) {
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
