/**
 * The path of a packet as a drawing: client, address, rules, ends with their probabilities.
 *
 * @module
 */
import { h } from "preact";
import { counted, percent } from "./format.js";
import { endOf } from "./path_steps.js";

/** @typedef {import("../page_document.ts").TraceDocument} TraceDocument */
/** @typedef {import("../page_document.ts").OutcomeDocument} OutcomeDocument */
/** @typedef {{ readonly x: number, readonly y: number, readonly width: number, readonly height: number }} Box */
/** @typedef {{ readonly title: string, readonly lines: readonly string[], readonly tone: string, readonly share: string }} Node */

const MOST_ENDS = 8;
const MOST_LEFT_OUT = 3;
const BOX_HEIGHT = 64;
const GAP = 14;

/** @param {{ trace: TraceDocument, isNarrow: boolean }} props */
export function PathDrawing({ trace, isNarrow }) {
  const chain = chainOf(trace);
  const ends = endsOf(trace);
  const { width, height, boxes, endBoxes } = isNarrow ? below(chain, ends) : beside(chain, ends);
  const from = boxes.at(-1);
  return h(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": wordsOf(trace),
      class: "path",
      style: { maxWidth: `${width}px` },
    },
    chain.slice(1).map((_node, index) =>
      h(Arrow, { key: `arrow ${index}`, from: boxes[index], to: boxes[index + 1], isNarrow })
    ),
    ends.map((end, index) =>
      end.share === ""
        ? null
        : h(Arrow, { key: `end arrow ${index}`, from, to: endBoxes[index], isNarrow, tone: end.tone })
    ),
    chain.map((node, index) => h(NodeBox, { key: `node ${index}`, node, box: boxes[index] })),
    ends.map((node, index) => h(NodeBox, { key: `end ${index}`, node, box: endBoxes[index] })),
  );
}

/**
 * Client, address, rules.
 *
 * @param {TraceDocument} trace
 * @returns {readonly Node[]}
 */
function chainOf({ packet, service, desired }) {
  const { source, destination, port, protocol } = packet;
  const rules = new Set(
    (desired?.outcomes ?? []).flatMap(({ steps }) =>
      steps.map(({ table, chain, number }) => `${table} ${chain} ${number}`)
    ),
  );
  const masquerades = new Set(
    (desired?.outcomes ?? []).filter(({ verdict }) => verdict === "accept").map(({ masquerade }) =>
      masquerade
    ),
  );
  const manner = masquerades.size !== 1
    ? ""
    : masquerades.has(true)
    ? "source becomes the node's"
    : "source stays";
  const to = protocol === "icmp"
    ? destination
    : `${destination.includes(":") ? `[${destination}]` : destination}:${port}`;
  return [
    {
      title: "Client",
      lines: [source, packet.interface === "" ? "process on this node" : `through ${packet.interface}`],
      tone: "plain",
      share: "",
    },
    {
      title: service === null ? "Address" : capital(service.reachedBy),
      lines: [
        `${to}/${protocol}`,
        service === null
          ? "of no Service"
          : `${service.name}${service.portName === "" ? "" : `:${service.portName}`}`,
      ],
      tone: "plain",
      share: "",
    },
    {
      title: `Rules, ${desired?.modes.join(", ") ?? ""}`,
      lines: [`${counted(rules.size, "rule")} match`, manner],
      tone: "plain",
      share: "",
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
  const here = new Set(
    (service?.endpoints ?? []).filter(({ onThisNode }) => onThisNode).map(({ address }) => address),
  );
  /** @type {Node[]} */
  const ends = shown.map((outcome) => endNode(outcome, here));
  const rest = outcomes.slice(shown.length);
  if (rest.length > 0) {
    const together = rest.reduce(
      (sum, { probability }) => sum + Number(percent(probability).replace(" %", "")),
      0,
    );
    ends.push({
      title: `${rest.length} more`,
      lines: ["each much like these", ""],
      tone: "good",
      share: `${Math.round(together)} %`,
    });
  }
  const policy = service?.policy ?? "cluster";
  const out = (service?.endpoints ?? []).filter((endpoint) => endpoint[policy]?.used === false);
  for (const endpoint of out.slice(0, MOST_LEFT_OUT)) {
    ends.push({
      title: "Not used",
      lines: [endpoint.address, endpoint[policy]?.reason ?? ""],
      tone: "out",
      share: "",
    });
  }
  if (out.length > MOST_LEFT_OUT) {
    ends.push({
      title: "Not used",
      lines: [`${out.length - MOST_LEFT_OUT} more`, "see below"],
      tone: "out",
      share: "",
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
  if (verdict !== "accept") {
    return {
      title: verdict === "drop" ? "Dropped" : "Refused",
      lines: [verdict === "drop" ? "no answer" : rejectWith, ""],
      tone: "bad",
      share,
    };
  }
  if (translatedTo === "") return { title: "End", lines: [endOf(outcome), ""], tone: "good", share };
  const isEndpoint = here.has(translatedTo);
  return {
    title: "Endpoint",
    lines: [translatedTo, isEndpoint ? "on this node" : "on another node"],
    tone: "good",
    share,
  };
}

/**
 * From left to right.
 *
 * @param {readonly Node[]} chain
 * @param {readonly Node[]} ends
 */
function beside(chain, ends) {
  const column = 232;
  const between = 64;
  const endsHeight = ends.length * (BOX_HEIGHT + GAP) - GAP;
  const height = Math.max(BOX_HEIGHT, endsHeight) + 4;
  const boxes = chain.map((_node, index) => ({
    x: 2 + index * (column + between),
    y: (height - BOX_HEIGHT) / 2,
    width: column,
    height: BOX_HEIGHT,
  }));
  const x = 2 + chain.length * (column + between) + 40;
  const top = (height - endsHeight) / 2;
  const endBoxes = ends.map((_node, index) => ({
    x,
    y: top + index * (BOX_HEIGHT + GAP),
    width: column,
    height: BOX_HEIGHT,
  }));
  return { width: x + column + 2, height, boxes, endBoxes };
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
  const boxes = chain.map((_node, index) => ({
    x: 2,
    y: 2 + index * step,
    width: width - 4,
    height: BOX_HEIGHT,
  }));
  const top = 2 + chain.length * step;
  const endBoxes = ends.map((_node, index) => ({
    x: 92,
    y: top + index * (BOX_HEIGHT + GAP),
    width: width - 94,
    height: BOX_HEIGHT,
  }));
  return { width, height: top + ends.length * (BOX_HEIGHT + GAP), boxes, endBoxes };
}

/** @param {{ node: Node, box: Box | undefined }} props */
function NodeBox({ node: { title, lines, tone, share }, box }) {
  if (box === undefined) return null;
  const { x, y, width, height } = box;
  const most = Math.floor((width - 24) / 7.6);
  return h(
    "g",
    { class: `node-box ${tone}` },
    h("title", null, [title, ...lines, share].filter((line) => line !== "").join("\n")),
    h("rect", { x, y, width, height, rx: 10 }),
    h("text", { x: x + 12, y: y + 20, class: "node-title" }, title),
    share === ""
      ? null
      : h("text", { x: x + width - 12, y: y + 20, class: "node-share", "text-anchor": "end" }, share),
    h("text", { x: x + 12, y: y + 38, class: "node-main" }, shortened(lines[0] ?? "", most)),
    h(
      "text",
      { x: x + 12, y: y + 54, class: "node-sub" },
      beginning(lines[1] ?? "", Math.floor(most * 1.12)),
    ),
  );
}

/**
 * The end of a name tells more than its middle.
 *
 * @param {string} text
 * @param {number} most
 */
function shortened(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) * 0.45);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(-tail)}`;
}

/**
 * @param {string} text
 * @param {number} most
 */
function beginning(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** @param {{ from: Box | undefined, to: Box | undefined, isNarrow: boolean, tone?: string }} props */
function Arrow({ from, to, isNarrow, tone = "plain" }) {
  if (from === undefined || to === undefined) return null;
  const isSide = isNarrow && to.x > from.x + 20;
  const [x1, y1] = isNarrow
    ? [isSide ? from.x + 44 : from.x + from.width / 2, from.y + from.height]
    : [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = isNarrow && !isSide ? [to.x + to.width / 2, to.y] : [to.x, to.y + to.height / 2];
  const bend = (x2 - x1) * 0.5;
  const curve = isSide
    ? `M${x1} ${y1}V${y2 - 14}q0 14 14 14H${x2 - 9}`
    : isNarrow
    ? `M${x1} ${y1}V${y2 - 9}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 9} ${y2}`;
  const head = isNarrow && !isSide ? `M${x2} ${y2 - 1}l-5 -8h10z` : `M${x2 - 1} ${y2}l-8 -5v10z`;
  return h(
    "g",
    { class: `arrow ${tone}` },
    h("path", { d: curve, class: "line" }),
    h("path", { d: head, class: "head" }),
  );
}

/**
 * The drawing for those who do not see it.
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

/** @param {string} text */
function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
