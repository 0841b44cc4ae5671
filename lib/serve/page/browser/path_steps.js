/**
 * The path of a packet in words: possible ends, each with its rules, and the endpoints that it cannot reach.
 *
 * @module
 */
import { counted, percent } from "./format.js";
import { badge, html, mono, section, table } from "./parts.js";

/** @typedef {import("../../../inspect/trace/trace_report.ts").TraceDocument} TraceDocument */
/** @typedef {NonNullable<TraceDocument["desired"]>["outcomes"][number]} OutcomeDocument */

/** Outcomes that are listed; further ones are much like these. */
const SHOWN = 20;

/**
 * Outcome of a packet, in a few words.
 *
 * @param {OutcomeDocument} outcome
 */
export function endOf({ verdict, rejectWith, translatedTo, toNode }) {
  if (verdict === "drop") return "dropped";
  if (verdict === "reject") return `refused${rejectWith === "" ? "" : ` (${rejectWith})`}`;
  if (translatedTo !== "") return translatedTo;
  return toNode ? "this node, as it is" : "passed on as it is";
}

/** @param {readonly OutcomeDocument[]} outcomes */
export function outcomeList(outcomes) {
  const more = outcomes.length - SHOWN;
  return html`
    <div class="outcomes">
      ${outcomes.slice(0, SHOWN).map((outcome, index) =>
        html`
          <details key="${index} ${endOf(outcome)}" open=${index === 0}>
            <summary>
              <span class="probability">${percent(outcome.probability)}</span>
              ${outcome.verdict === "accept" ? badge("good", "to") : badge("bad", "not passed")}
              ${mono(endOf(outcome))}
              ${outcome.masquerade && html`<span class="muted">source becomes the node's</span>`}
            </summary>
            ${stepList(outcome.steps)}
          </details>
        `
      )}
      ${more > 0 && html`<p class="note">and ${counted(more, "more path")} like these</p>`}
    </div>
  `;
}

/** @param {OutcomeDocument["steps"]} steps */
function stepList(steps) {
  if (steps.length === 0) return html`<p class="note">No rule matches it.</p>`;
  return html`
    <ol class="steps">
      ${steps.map(({ hook, table, chain, number, words, rule }) =>
        html`
          <li>
            <span class="step-words">${words}</span>
            <span class="step-place">
              ${hook === "" ? "" : `${hook} · `}${table} ${chain}${number === 0 ? "" : ` #${number}`}
            </span>
            <code class="rule">${rule}</code>
          </li>
        `
      )}
    </ol>
  `;
}

/** @param {NonNullable<TraceDocument["service"]>} service the endpoints that its policy leaves out */
export function unusedEndpoints({ endpoints, policy }) {
  return endpoints.filter((endpoint) => endpoint[policy]?.used === false);
}

/** @param {NonNullable<TraceDocument["service"]>} service */
export function leftOut(service) {
  const out = unusedEndpoints(service);
  const { policy } = service;
  const note = `by policy ${policy === "local" ? "Local" : "Cluster"}`;
  return out.length > 0 && section(
    { id: "left-out", title: "Endpoints left out", note },
    table(
      "Endpoints left out",
      ["Address", "Where", "Why"],
      out.map((
        one,
      ) => [mono(one.address), one.onThisNode ? "this node" : "other node", one[policy]?.reason ?? ""]),
    ),
  );
}
