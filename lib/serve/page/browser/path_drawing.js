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
/** @typedef {{ readonly x: number, readonly y: number, readonly width: number }} Box */
/** @typedef {{ readonly title: string, readonly main: string, readonly sub: string, readonly tone?: string, readonly share?: string }} Node */

const MOST_ENDS = 8;
const MOST_LEFT_OUT = 3;
const BOX_HEIGHT = 64;
const GAP = 14;

/**
 * @param {TraceDocument} trace
 * @param {boolean} isNarrow
 */
export function pathDrawing(trace, isNarrow) {
  const chain = chainOf(trace);
  const ends = endsOf(trace);
  const { width, height, boxOf, endBoxOf } = isNarrow ? below(chain, ends) : beside(chain, ends);
  const last = boxOf(chain.length - 1);
  return html`
    <svg viewBox="0 0 ${width} ${height}" role="img" aria-label=${wordsOf(trace)} class="path" style=${{
      maxWidth: `${width}px`,
    }}>
      ${chain.slice(1).map((_node, index) => arrow(boxOf(index), boxOf(index + 1), isNarrow))}
      ${ends.map((end, index) => end.share !== undefined && arrow(last, endBoxOf(index), isNarrow, end.tone))}
      ${chain.map((node, index) => nodeBox(node, boxOf(index)))}
      ${ends.map((node, index) => nodeBox(node, endBoxOf(index)))}
    </svg>
  `;
}

/**
 * Client, address, rules.
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
 * What may become of it, and the first endpoints that are left out.
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

/** @typedef {(index: number) => Box} BoxOf */

/**
 * From left to right.
 *
 * @param {readonly Node[]} chain
 * @param {readonly Node[]} ends
 */
function beside(chain, ends) {
  const width = 232;
  const between = 64;
  const endsHeight = ends.length * (BOX_HEIGHT + GAP) - GAP;
  const height = Math.max(BOX_HEIGHT, endsHeight) + 4;
  const x = 2 + chain.length * (width + between) + 40;
  const top = (height - endsHeight) / 2;
  /** @type {BoxOf} */
  const boxOf = (index) => ({ x: 2 + index * (width + between), y: (height - BOX_HEIGHT) / 2, width });
  /** @type {BoxOf} */
  const endBoxOf = (index) => ({ x, y: top + index * (BOX_HEIGHT + GAP), width });
  return { width: x + width + 2, height, boxOf, endBoxOf };
}

/**
 * From top to bottom.
 *
 * @param {readonly Node[]} chain
 * @param {readonly Node[]} ends
 */
function below(chain, ends) {
  const width = 340;
  const step = BOX_HEIGHT + 32;
  const top = 2 + chain.length * step;
  /** @type {BoxOf} */
  const boxOf = (index) => ({ x: 2, y: 2 + index * step, width: width - 4 });
  /** @type {BoxOf} */
  const endBoxOf = (index) => ({ x: 92, y: top + index * (BOX_HEIGHT + GAP), width: width - 94 });
  return { width, height: top + ends.length * (BOX_HEIGHT + GAP), boxOf, endBoxOf };
}

/**
 * @param {Node} node
 * @param {Box} box
 */
function nodeBox({ title, main, sub, tone = "plain", share = "" }, { x, y, width }) {
  const most = Math.floor((width - 24) / 7.6);
  return html`
    <g class="node-box ${tone}">
      <title>${[title, main, sub, share].filter((line) => line !== "").join("\n")}</title>
      <rect x=${x} y=${y} width=${width} height=${BOX_HEIGHT} rx="10" />
      <text x=${x + 12} y=${y + 20} class="node-title">${title}</text>
      ${share !== "" &&
        html`<text x=${x + width - 12} y=${y + 20} class="node-share" text-anchor="end">${share}</text>`}
      <text x=${x + 12} y=${y + 38} class="node-main">${cut(main, most, 0.45)}</text>
      <text x=${x + 12} y=${y + 54} class="node-sub">${cut(sub, Math.floor(most * 1.12), 0)}</text>
    </g>
  `;
}

/**
 * @param {string} text
 * @param {number} most characters
 * @param {number} part of them that is kept of the end, which says more of an address than its middle
 */
function cut(text, most, part) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) * part);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/**
 * @param {Box} from
 * @param {Box} to
 * @param {boolean} isNarrow
 * @param {string} [tone]
 */
function arrow(from, to, isNarrow, tone = "plain") {
  const isSide = isNarrow && to.x > from.x + 20;
  const isDown = isNarrow && !isSide;
  const x1 = from.x + (isSide ? 44 : isDown ? from.width / 2 : from.width);
  const y1 = from.y + (isNarrow ? BOX_HEIGHT : BOX_HEIGHT / 2);
  const x2 = to.x + (isDown ? to.width / 2 : 0);
  const y2 = to.y + (isDown ? 0 : BOX_HEIGHT / 2);
  const bend = (x2 - x1) * 0.5;
  const curve = isSide
    ? `M${x1} ${y1}V${y2 - 14}q0 14 14 14H${x2 - 9}`
    : isDown
    ? `M${x1} ${y1}V${y2 - 9}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 9} ${y2}`;
  const head = isDown ? `M${x2} ${y2 - 1}l-5 -8h10z` : `M${x2 - 1} ${y2}l-8 -5v10z`;
  return html`
    <g class="arrow ${tone}">
      <path d=${curve} class="line" />
      <path d=${head} class="head" />
    </g>
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
