/**
 * View of the latest syncs and problems.
 *
 * @module
 */
import { count, counted, duration, listed } from "./format.js";
import { badge, empty, html, section, serviceLink, since, table } from "./parts.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("../../status/status_document.ts").SyncPoint} SyncPoint */
/** @typedef {SyncPoint & { readonly family: string }} Change */

const SHOWN = 100;

/** @param {StatusDocument} status */
export function changes(status) {
  const newest = newestChanges(status);
  return html`
    <div class="stack">
      <div class="heading"><h1>Changes</h1></div>
      ${problems(status)}
      ${section(
        { id: "syncs", title: "Changes of rules", note: "newest first" },
        newest.length === 0 ? empty("No change yet") : changeTable(newest),
      )}
    </div>
  `;
}

/**
 * Syncs that looked at Services, wrote something, or failed.
 *
 * @param {StatusDocument} status
 * @returns {readonly Change[]} newest first
 */
export function newestChanges({ families }) {
  const all = Object.entries(families).flatMap(([family, { recent }]) =>
    recent.map((point) => ({ ...point, family }))
  );
  return all.filter(({ ok, kind, changed, written = {} }) =>
    !ok || kind === "full" || changed > 0 || Object.values(written).some((amount) => amount > 0)
  ).sort((one, other) => other.timeMs - one.timeMs).slice(0, SHOWN);
}

/** @param {readonly Change[]} newest first */
function changeTable(newest) {
  const rows = newest.map((
    { timeMs, family, kind, ok, error = "", written = {}, durationMs, changed, services = [] },
  ) => [
    since(timeMs),
    family,
    ok
      ? `${kind} sync`
      : html`<span>${badge("bad", `${kind} sync failed`)}<br /><small class="wrap">${error}</small></span>`,
    !ok ? "" : kind === "full" ? `all ${count(changed)}` : names(services, changed - services.length),
    listed(Object.fromEntries(Object.entries(written).filter(([, amount]) => amount > 0))),
    duration(durationMs),
  ]);
  const head = ["When", "Family", "What", "Services", "Written", "Took"];
  return table(
    "Changes of rules",
    head,
    rows,
    newest.map(({ timeMs, family, durationMs }) => `${timeMs} ${family} ${durationMs}`),
  );
}

/**
 * @param {readonly string[]} services
 * @param {number} rest number of further Services, which are not named
 */
function names(services, rest) {
  return html`
    <span class="names">
      ${services.map(serviceLink)}
      ${rest > 0 && html`<span class="muted"> and ${counted(rest, "other")}</span>`}
    </span>
  `;
}

/** @param {StatusDocument} status */
function problems({ problems: { total, recent } }) {
  const newest = recent.toReversed();
  const hidden = total - recent.reduce((sum, { count: times }) => sum + times, 0);
  const note = total > 0 && `${count(total)} since the start${hidden > 0 ? ", the last of them" : ""}`;
  const rows = newest.map(({ severity, message, values, last, count: times }) => [
    since(Date.parse(last)),
    badge(severity === "error" ? "bad" : "warning", severity),
    html`
      <span class="wrap">
        ${message}${times > 1 && html`<strong> ×${count(times)}</strong>`}
        ${values !== "" && html`<code class="values">${values}</code>`}
      </span>
    `,
  ]);
  return section(
    { id: "problems", title: "Warnings and errors", note },
    rows.length === 0 ? empty("Nothing went wrong since the start") : table(
      "Warnings and errors",
      ["When", "Severity", "Message"],
      rows,
      newest.map((one) => `${one.first} ${one.message}`),
    ),
  );
}
