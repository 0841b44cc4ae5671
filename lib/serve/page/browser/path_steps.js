/**
 * The path of a packet in words: possible ends, each with its rules, and the endpoints that it cannot reach.
 *
 * @module
 */
import { h } from "preact";
import { counted, percent } from "./format.js";
import { Badge, Mono, Section, Table } from "./parts.js";

/** @typedef {import("../page_document.ts").TraceDocument} TraceDocument */
/** @typedef {import("../page_document.ts").OutcomeDocument} OutcomeDocument */
/** @typedef {import("../page_document.ts").StepDocument} StepDocument */

/** Further paths are much like the others. */
const SHOWN = 20;

/**
 * What becomes of a packet, in a few words.
 *
 * @param {OutcomeDocument} outcome
 */
export function endOf({ verdict, rejectWith, translatedTo, toNode }) {
  if (verdict === "drop") return "dropped";
  if (verdict === "reject") return `refused${rejectWith === "" ? "" : ` (${rejectWith})`}`;
  if (translatedTo !== "") return translatedTo;
  return toNode ? "this node, as it is" : "passed on as it is";
}

/** @param {{ outcomes: readonly OutcomeDocument[] }} props */
export function Outcomes({ outcomes }) {
  const shown = outcomes.slice(0, SHOWN);
  return h(
    "div",
    { class: "outcomes" },
    shown.map((outcome, index) =>
      h(
        "details",
        { key: `${index} ${endOf(outcome)}`, open: index === 0 },
        h(
          "summary",
          null,
          h("span", { class: "probability" }, percent(outcome.probability)),
          h(
            Badge,
            { tone: outcome.verdict === "accept" ? "good" : "bad" },
            outcome.verdict === "accept" ? "to" : "not passed",
          ),
          h(Mono, null, endOf(outcome)),
          outcome.masquerade ? h("span", { class: "muted" }, "source becomes the node's") : null,
        ),
        h(Steps, { steps: outcome.steps }),
      )
    ),
    outcomes.length > shown.length
      ? h("p", { class: "note" }, `and ${counted(outcomes.length - shown.length, "more way")} like these`)
      : null,
  );
}

/** @param {{ steps: readonly StepDocument[] }} props */
function Steps({ steps }) {
  if (steps.length === 0) return h("p", { class: "note" }, "No rule matches it.");
  return h(
    "ol",
    { class: "steps" },
    steps.map((step, index) =>
      h(
        "li",
        { key: index },
        h("span", { class: "step-words" }, step.words),
        h("span", { class: "step-place" }, placeOf(step)),
        h("code", { class: "rule" }, step.rule),
      )
    ),
  );
}

/** @param {StepDocument} step */
function placeOf({ hook, table, chain, number }) {
  const place = `${table} ${chain}${number === 0 ? "" : ` #${number}`}`;
  return hook === "" ? place : `${hook} · ${place}`;
}

/** @param {{ service: NonNullable<TraceDocument["service"]> }} props */
export function LeftOut({ service: { endpoints, policy } }) {
  const out = endpoints.filter((endpoint) => endpoint[policy]?.used === false);
  if (out.length === 0) return null;
  return h(
    Section,
    {
      id: "left-out",
      title: "Endpoints left out",
      note: `by policy ${policy === "local" ? "Local" : "Cluster"}`,
    },
    h(Table, {
      label: "Endpoints left out",
      head: ["Address", "Where", "Why"],
      keys: out.map(({ address }) => address),
      rows: out.map((endpoint) => [
        h(Mono, null, endpoint.address),
        endpoint.onThisNode ? "this node" : "other node",
        endpoint[policy]?.reason ?? "",
      ]),
    }),
  );
}
