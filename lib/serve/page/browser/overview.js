/**
 * The status of the proxy on one screen.
 *
 * @module
 */
import { h } from "preact";
import { useMemo } from "preact/hooks";
import { bytes, count, counted, duration } from "./format.js";
import { Ago, Badge, Mono, Section, Table } from "./parts.js";
import { Plot } from "./plots.js";
import { Trouble } from "./trouble.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("../../status/status_document.ts").FamilyStatus} FamilyStatus */
/** @typedef {import("../../status/status_document.ts").SyncPoint} SyncPoint */

/** @param {{ status: StatusDocument, nowMs: number }} props */
export function Overview({ status, nowMs }) {
  const families = Object.entries(status.families);
  return h(
    "div",
    { class: "stack" },
    h(State, { status, nowMs }),
    h(Tiles, { status }),
    h(
      "div",
      { class: "pair" },
      h(SyncPlot, { families, nowMs }),
      h(LatencyPlot, { families, nowMs }),
    ),
    h(Families, { families, nowMs }),
    h(Watches, { status }),
    h(Trouble, { status, nowMs }),
  );
}

/** @param {{ status: StatusDocument, nowMs: number }} props */
function State({ status, nowMs }) {
  const { readiness, healthy, mode, program, source } = status;
  const tone = !healthy ? "bad" : readiness.ready ? "good" : "warning";
  const reasons = [
    ...readiness.reasons,
    ...(healthy ? [] : ["A sync has been waiting for too long"]),
    ...(mode.fallback === null
      ? []
      : [`Mode ${mode.configured || "of the configuration"} is not in use: ${mode.fallback}`]),
    ...(status.node.eligible ? [] : ["The Node says that load balancers shall send nothing new"]),
  ];
  return h(
    "section",
    { class: `state ${tone}`, "aria-labelledby": "state-title" },
    h(
      "div",
      null,
      h(
        "h1",
        { id: "state-title" },
        readiness.ready ? "Ready" : "Not ready",
      ),
      h(
        "p",
        { class: "state-words" },
        readiness.ready
          ? "The rules on this node are what the cluster wants."
          : "The rules on this node may not be what the cluster wants.",
      ),
      reasons.length === 0
        ? null
        : h("ul", { class: "reasons" }, reasons.map((reason) => h("li", { key: reason }, reason))),
    ),
    h(
      "dl",
      { class: "facts state-facts" },
      fact("Mode", mode.used),
      fact("Objects from", h(Mono, null, source.name)),
      fact("Running for", duration(nowMs - Date.parse(program.started))),
      fact("Memory", bytes(program.memory.resident)),
    ),
  );
}

/**
 * @param {string} name
 * @param {import("./parts.js").Children} value
 */
function fact(name, value) {
  return h("div", { key: name }, h("dt", null, name), h("dd", null, value));
}

/** @param {{ status: StatusDocument }} props */
function Tiles({ status }) {
  const families = Object.values(status.families);
  const most = (/** @type {(one: FamilyStatus) => number} */ of) => Math.max(0, ...families.map(of));
  const sum = (/** @type {(one: FamilyStatus) => number} */ of) =>
    families.reduce((all, one) => all + of(one), 0);
  // Of the family that most is known of: a few changes of another one say little.
  const { p50Ms: p50, p99Ms: p99 } = families.map(({ latency }) => latency)
    .reduce((most, one) => one.count > most.count ? one : most, NO_LATENCY);
  const failed = sum(({ syncs }) => syncs.failed);
  const { quarantine, drift, problems } = status;
  return h(
    "ul",
    { class: "tiles", "aria-label": "Figures" },
    tile("Services", count(most(({ services }) => services)), "with an address"),
    tile("Endpoints", count(sum(({ endpoints }) => endpoints)), "of all ports, ready or not"),
    tile(
      "Syncs",
      count(sum(({ syncs }) => syncs.full + syncs.partial)),
      failed === 0 ? "none failed" : `${count(failed)} failed`,
      failed > 0 ? "warning" : "plain",
    ),
    tile(
      "Programming latency",
      p50 === null ? "–" : duration(p50),
      p99 === null ? "no change of endpoints yet" : `half of all; 99 % within ${duration(p99)}`,
    ),
    tile(
      "Quarantine",
      count(quarantine.count),
      quarantine.count === 0 ? "the kernel takes all Services" : "Services that the kernel refuses",
      quarantine.count > 0 ? "bad" : "plain",
    ),
    tile(
      "Drift",
      count(drift.found),
      drift.found === 0 ? "no foreign changes" : `times; repaired ${count(drift.repaired)}`,
      drift.found > drift.repaired ? "bad" : drift.found > 0 ? "warning" : "plain",
    ),
    tile(
      "Warnings and errors",
      count(problems.total),
      "since the start",
      problems.total > 0 ? "warning" : "plain",
    ),
  );
}

/** @type {FamilyStatus["latency"]} */
const NO_LATENCY = { count: 0, p50Ms: null, p99Ms: null, maxMs: null };

/**
 * @param {string} name
 * @param {string} value
 * @param {string} words
 * @param {import("./parts.js").Tone} tone
 */
function tile(name, value, words, tone = "plain") {
  return h(
    "li",
    { key: name, class: `tile ${tone}` },
    h("span", { class: "tile-name" }, name),
    h("span", { class: "tile-value" }, value),
    h("span", { class: "tile-words" }, words),
  );
}

/** @typedef {readonly (readonly [string, FamilyStatus])[]} Families */

/** @param {{ families: Families, nowMs: number }} props */
function SyncPlot({ families, nowMs }) {
  const series = usePlotted(families, ({ durationMs }) => durationMs);
  const all = families.flatMap(([, { recent }]) => recent);
  return h(
    Section,
    {
      id: "sync-plot",
      title: "Sync duration",
      note: all.length === 0 ? null : `last ${counted(all.length, "sync")}`,
    },
    h(Plot, { label: "Sync duration", series, nowMs, empty: "No sync yet" }),
  );
}

/** @param {{ families: Families, nowMs: number }} props */
function LatencyPlot({ families, nowMs }) {
  const series = usePlotted(families, ({ latencyMs }) => latencyMs);
  return h(
    Section,
    {
      id: "latency-plot",
      title: "Programming latency",
      note: "from a change of endpoints in the cluster to its rules",
    },
    h(Plot, { label: "Programming latency", series, nowMs, empty: "No change of endpoints yet" }),
  );
}

/**
 * A series for each family, which is another one only if there is something new.
 *
 * @param {Families} families
 * @param {(point: SyncPoint) => number | null} valueOf
 */
function usePlotted(families, valueOf) {
  const newest = families.map(([family, { recent }]) =>
    `${family} ${recent.length} ${recent.at(-1)?.timeMs}`
  );
  return useMemo(() =>
    families.map(([family, { recent }]) => ({
      name: family,
      points: recent.map((point) => ({
        timeMs: point.timeMs,
        value: valueOf(point),
        isBad: !point.ok && valueOf(point) !== null,
      })),
    })), [newest.join()]);
}

/** @param {{ families: Families, nowMs: number }} props */
function Families({ families, nowMs }) {
  const rows = families.map((
    [family, { services, endpoints, lastSync, lastFullSync, lastFailure, rules }],
  ) => [
    family,
    count(services),
    count(endpoints),
    lastSync === null ? "none yet" : h(
      "span",
      null,
      h(Ago, { timeMs: Date.parse(lastSync.time), nowMs }),
      h("br", null),
      h(
        "small",
        null,
        `${lastSync.kind}, ${counted(lastSync.changed, "Service")}, ${duration(lastSync.durationMs)}`,
      ),
    ),
    lastSync === null ? "" : phases(lastSync.phasesMs),
    lastFullSync === null ? "none yet" : h(Ago, { timeMs: Date.parse(lastFullSync.time), nowMs }),
    Object.entries(rules).map(([kind, amount]) => `${count(amount)} ${kind}`).join(", ") || "–",
    lastFailure === null ? h(Badge, { tone: "good" }, "none") : h(
      "span",
      null,
      h(Badge, { tone: "bad" }, h(Ago, { timeMs: Date.parse(lastFailure.time), nowMs })),
      h("br", null),
      h(
        "small",
        { class: "clip", title: lastFailure.error },
        lastFailure.error,
      ),
    ),
  ]);
  return h(
    Section,
    { id: "families", title: "IP families" },
    h(Table, {
      label: "IP families",
      head: [
        "Family",
        "Services",
        "Endpoints",
        "Last sync",
        "Its phases",
        "Last full sync",
        "In force",
        "Last failure",
      ],
      rows,
    }),
  );
}

/** @param {Readonly<Record<string, number>>} phasesMs */
function phases(phasesMs) {
  return Object.entries(phasesMs).map(([phase, ms]) => `${phase} ${duration(ms)}`).join(", ") || "–";
}

/** @param {{ status: StatusDocument }} props */
function Watches({ status }) {
  const watches = Object.entries(status.readiness.watches);
  if (watches.length === 0) return null;
  const rows = watches.map(([kind, { ageSeconds, problem }]) => [
    kind,
    ageSeconds === undefined ? "never" : `${duration(ageSeconds * 1000)} ago`,
    problem === undefined ? h(Badge, { tone: "good" }, "heard") : h(Badge, { tone: "bad" }, problem),
  ]);
  return h(
    Section,
    { id: "watches", title: "Watches", note: "when the API server was heard of" },
    h(Table, { label: "Watches", head: ["Objects", "Last heard", "State"], rows }),
  );
}
