/**
 * The status of the proxy on one screen.
 *
 * @module
 */
import { count, counted, duration, listed, megabytes } from "./format.js";
import { badge, facts, html, mono, section, since, table } from "./parts.js";
import { Plot } from "./plots.js";
import { trouble } from "./trouble.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("../../status/status_document.ts").FamilyStatus} FamilyStatus */
/** @typedef {import("../../status/status_document.ts").SyncPoint} SyncPoint */
/** @typedef {readonly (readonly [name: string, status: FamilyStatus])[]} Families */

/** @param {StatusDocument} status */
export function overview(status) {
  const families = Object.entries(status.families);
  const syncs = families.reduce((sum, [, { recent }]) => sum + recent.length, 0);
  const lastSyncs = syncs === 0 ? null : `last ${counted(syncs, "sync")}`;
  const toRules = "from a change of endpoints in the cluster to its rules";
  return html`
    <div class="stack">
      ${state(status)} ${tiles(status)}
      <div class="pair">
        ${section(
          { id: "sync-plot", title: "Sync duration", note: lastSyncs },
          html`
            <${Plot} label="Sync duration" series=${seriesOf(
              families,
              ({ durationMs }) => durationMs,
            )} empty="No sync yet" />
          `,
        )}
        ${section(
          { id: "latency-plot", title: "Programming latency", note: toRules },
          html`
            <${Plot}
              label="Programming latency" series=${seriesOf(families, ({ latencyMs }) => latencyMs)}
              empty="No change of endpoints yet" />
          `,
        )}
      </div>
      ${familyTable(families)} ${watches(status)} ${trouble(status)}
    </div>
  `;
}

/** @param {StatusDocument} status */
function state({ readiness: { ready, reasons }, healthy, mode, program, source, node }) {
  const all = [
    ...reasons,
    ...(healthy ? [] : ["A sync has been waiting for too long"]),
    ...(mode.fallback === null
      ? []
      : [`Mode ${mode.configured || "of the configuration"} is not in use: ${mode.fallback}`]),
    ...(node.eligible ? [] : ["The Node says that load balancers shall send nothing new"]),
  ];
  return html`
    <section class="state ${!healthy ? "bad" : ready ? "good" : "warning"}" aria-labelledby="state-title">
      <div>
        <h1 id="state-title">${ready ? "Ready" : "Not ready"}</h1>
        <p class="state-words">The rules on this node ${ready
          ? "are"
          : "may not be"} what the cluster wants.</p>
        ${all.length > 0 &&
          html`<ul class="reasons">${all.map((reason) => html`<li key=${reason}>${reason}</li>`)}</ul>`}
      </div>
      ${facts([
        ["Mode", mode.used],
        ["Objects from", mono(source.name)],
        ["Running for", duration(Date.now() - Date.parse(program.started))],
        ["Memory", megabytes(program.memory.resident)],
      ], "state-facts")}
    </section>
  `;
}

/** @type {FamilyStatus["latency"]} */
const NO_LATENCY = { count: 0, p50Ms: null, p99Ms: null, maxMs: null };

/** @param {StatusDocument} status */
function tiles({ families, quarantine, drift, problems }) {
  const all = Object.values(families);
  const sum = (/** @type {(one: FamilyStatus) => number} */ of) =>
    all.reduce((total, one) => total + of(one), 0);
  // Latency of the family with the most measurements: a few of the other family say little.
  const { p50Ms: p50, p99Ms: p99 } = all.map(({ latency }) => latency)
    .reduce((most, one) => one.count > most.count ? one : most, NO_LATENCY);
  const failed = sum(({ syncs }) => syncs.failed);
  /** @type {readonly (readonly [name: string, value: string, words: string, tone?: import("./parts.js").Tone])[]} */
  const figures = [
    ["Services", count(Math.max(0, ...all.map(({ services }) => services))), "with an address"],
    ["Endpoints", count(sum(({ endpoints }) => endpoints)), "of all ports, ready or not"],
    [
      "Syncs",
      count(sum(({ syncs }) => syncs.full + syncs.partial)),
      failed === 0 ? "none failed" : `${count(failed)} failed`,
      failed > 0 ? "warning" : "plain",
    ],
    [
      "Programming latency",
      p50 === null ? "–" : duration(p50),
      p99 === null ? "no change of endpoints yet" : `half of all; 99 % within ${duration(p99)}`,
    ],
    [
      "Quarantine",
      count(quarantine.count),
      quarantine.count === 0 ? "the kernel takes all Services" : "Services that the kernel refuses",
      quarantine.count > 0 ? "bad" : "plain",
    ],
    [
      "Drift",
      count(drift.found),
      drift.found === 0 ? "no foreign changes" : `times; repaired ${count(drift.repaired)}`,
      drift.found > drift.repaired ? "bad" : drift.found > 0 ? "warning" : "plain",
    ],
    [
      "Warnings and errors",
      count(problems.total),
      "since the start",
      problems.total > 0 ? "warning" : "plain",
    ],
  ];
  return html`
    <ul class="tiles" aria-label="Figures">${figures.map(([name, value, words, tone = "plain"]) =>
      html`
        <li key=${name} class="tile ${tone}">
          <span class="tile-name">${name}</span>
          <span class="tile-value">${value}</span>
          <span class="tile-words">${words}</span>
        </li>
      `
    )}
    </ul>
  `;
}

/**
 * @param {Families} families
 * @param {(point: SyncPoint) => number | null} valueOf
 * @returns {readonly import("./plots.js").PlottedSeries[]}
 */
function seriesOf(families, valueOf) {
  return families.map(([name, { recent }]) => ({
    name,
    points: recent.map((point) => {
      const value = valueOf(point);
      return { timeMs: point.timeMs, value, isBad: !point.ok && value !== null };
    }),
  }));
}

const FAMILY_HEAD = [
  "Family",
  "Services",
  "Endpoints",
  "Last sync",
  "Its phases",
  "Last full sync",
  "In force",
  "Last failure",
];

/** @param {Families} families */
function familyTable(families) {
  const rows = families.map((
    [family, { services, endpoints, lastSync, lastFullSync, lastFailure, rules }],
  ) => [
    family,
    count(services),
    count(endpoints),
    lastSync === null ? "none yet" : html`
      <span>
        ${since(Date.parse(lastSync.time))}<br />
        <small>${lastSync.kind}, ${counted(lastSync.changed, "Service")}, ${duration(
          lastSync.durationMs,
        )}</small>
      </span>
    `,
    lastSync === null ? "" : listed(lastSync.phasesMs, (ms, phase) => `${phase} ${duration(ms)}`),
    lastFullSync === null ? "none yet" : since(Date.parse(lastFullSync.time)),
    listed(rules),
    lastFailure === null ? badge("good", "none") : html`
      <span>
        ${badge("bad", since(Date.parse(lastFailure.time)))}<br />
        <small class="clip" title=${lastFailure.error}>${lastFailure.error}</small>
      </span>
    `,
  ]);
  return section({ id: "families", title: "IP families" }, table("IP families", FAMILY_HEAD, rows));
}

/** @param {StatusDocument} status */
function watches({ readiness }) {
  const rows = Object.entries(readiness.watches).map(([kind, { ageSeconds, problem }]) => [
    kind,
    ageSeconds === undefined ? "never" : `${duration(ageSeconds * 1000)} ago`,
    problem === undefined ? badge("good", "heard") : badge("bad", problem),
  ]);
  return rows.length > 0 &&
    section(
      { id: "watches", title: "Watches", note: "when the API server was heard of" },
      table("Watches", ["Objects", "Last heard", "State"], rows),
    );
}
