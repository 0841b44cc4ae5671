/**
 * The path of a packet as a drawing: client, address, rules, ends with their probabilities.
 *
 * @module
 */
import { counted, percent, percentOf } from "./format.js";
import { html } from "./parts.js";
import { endOf, unusedEndpoints } from "./path_steps.js";

/** @typedef {import("../../../inspect/trace/trace_report.ts").TraceDocument} TraceDocument */
/** @typedef {NonNullable<TraceDocument["desired"]>["outcomes"][number]} OutcomeDocument */
/** @typedef {{ readonly title: string, readonly main: string, readonly sub: string, readonly tone?: string, readonly share?: string }} Node */

const MOST_ENDS = 8;
const MOST_LEFT_OUT = 3;

/** @param {TraceDocument} trace */
export function pathDrawing(trace) {
  return html`
    <div class="path" role="img" aria-label=${wordsOf(trace)}>
      ${chainOf(trace).map(nodeBox)}
      <div class="ends">${endsOf(trace).map(nodeBox)}</div>
    </div>
  `;
}

/**
 * Boxes before the ends: client, address, rules.
 *
 * @param {TraceDocument} trace
 * @returns {readonly Node[]}
 */
function chainOf({ packet, service, desired }) {
  const { source, destination, port, protocol } = packet;
  const outcomes = desired?.outcomes ?? [];
  const steps = outcomes.flatMap((outcome) => outcome.steps);
  const rules = new Set(steps.map(({ table, chain, number }) => `${table} ${chain} ${number}`));
  const passing = outcomes.filter(({ verdict }) => verdict === "accept");
  const [isMasqueraded, ...others] = new Set(passing.map(({ masquerade }) => masquerade));
  const host = destination.includes(":") ? `[${destination}]` : destination;
  return [
    {
      title: "Client",
      main: source,
      sub: packet.interface === "" ? "process on this node" : `through ${packet.interface}`,
    },
    {
      title: service === null
        ? "Address"
        : service.reachedBy.slice(0, 1).toUpperCase() + service.reachedBy.slice(1),
      main: `${protocol === "icmp" ? destination : `${host}:${port}`}/${protocol}`,
      sub: service === null
        ? "of no Service"
        : `${service.name}${service.portName === "" ? "" : `:${service.portName}`}`,
    },
    {
      title: `Rules, ${desired?.modes.join(", ") ?? ""}`,
      main: `${counted(rules.size, "rule")} match`,
      sub: isMasqueraded === undefined || others.length > 0
        ? ""
        : isMasqueraded
        ? "source becomes the node's"
        : "source stays",
    },
  ];
}

/**
 * Boxes of the outcomes, and of the first endpoints that are left out.
 *
 * @param {TraceDocument} trace
 * @returns {readonly Node[]}
 */
function endsOf({ service, desired }) {
  const outcomes = desired?.outcomes ?? [];
  const shown = outcomes.length > MOST_ENDS ? outcomes.slice(0, MOST_ENDS - 1) : outcomes;
  const endpoints = service?.endpoints ?? [];
  const here = new Set(endpoints.filter(({ onThisNode }) => onThisNode).map(({ address }) => address));
  const ends = shown.map((outcome) => endNode(outcome, here));
  const rest = outcomes.slice(shown.length);
  if (rest.length > 0) {
    const share = Math.round(rest.reduce((sum, { probability }) => sum + percentOf(probability), 0));
    ends.push({
      title: `${rest.length} more`,
      main: "each much like these",
      sub: "",
      tone: "good",
      share: `${share} %`,
    });
  }
  const policy = service?.policy ?? "cluster";
  const out = service === null ? [] : unusedEndpoints(service);
  for (const { address, [policy]: use } of out.slice(0, MOST_LEFT_OUT)) {
    ends.push({ title: "Not used", main: address, sub: use?.reason ?? "", tone: "out" });
  }
  if (out.length > MOST_LEFT_OUT) {
    ends.push({
      title: "Not used",
      main: `${out.length - MOST_LEFT_OUT} more`,
      sub: "see below",
      tone: "out",
    });
  }
  return ends;
}

/**
 * @param {OutcomeDocument} outcome
 * @param {ReadonlySet<string>} here
 * @returns {Node}
 */
function endNode(outcome, here) {
  const { verdict, translatedTo, probability, rejectWith } = outcome;
  const share = percent(probability);
  if (verdict === "drop") return { title: "Dropped", main: "no answer", sub: "", tone: "bad", share };
  if (verdict === "reject") return { title: "Refused", main: rejectWith, sub: "", tone: "bad", share };
  if (translatedTo === "") return { title: "End", main: endOf(outcome), sub: "", tone: "good", share };
  const sub = here.has(translatedTo) ? "on this node" : "on another node";
  return { title: "Endpoint", main: translatedTo, sub, tone: "good", share };
}

/** @param {Node} node */
function nodeBox({ title, main, sub, tone = "plain", share = "" }) {
  return html`
    <div class="node-box ${tone}">
      <div class="node-title"><span>${title}</span>${share !== "" && html`<strong>${share}</strong>`}</div>
      <div class="mono wrap">${main}</div>
      <small>${sub}</small>
    </div>
  `;
}

/**
 * The drawing in words, for screen readers.
 *
 * @param {TraceDocument} trace
 */
function wordsOf({ packet, service, desired }) {
  const ends = (desired?.outcomes ?? []).slice(0, MOST_ENDS).map((outcome) =>
    `${percent(outcome.probability)} ${endOf(outcome)}`
  );
  const to = service === null ? "no Service" : `Service ${service.name}, by its ${service.reachedBy}`;
  return `From ${packet.source} to ${packet.destination} port ${packet.port}: ${to}, then ${ends.join(", ")}`;
}
