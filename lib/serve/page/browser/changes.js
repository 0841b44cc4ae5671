/**
 * What was changed last, and what went wrong.
 *
 * @module
 */
import { usePolled } from "./api.js";
import { count, counted, duration, listed } from "./format.js";
import { badge, empty, html, loading, section, serviceLink, since, table } from "./parts.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("../page_document.ts").ChangesDocument} ChangesDocument */
/** @typedef {import("../page_document.ts").RuleChange} RuleChange */

const PERIOD_MS = 2_000;

/** @param {{ status: StatusDocument }} props */
export function Changes({ status }) {
  /** @type {import("./api.js").Polled<ChangesDocument>} */
  const { data } = usePolled("changes", PERIOD_MS);
  return html`
    <div class="stack">
      <div class="heading"><h1>Changes</h1></div>
      ${problems(status)}
      ${section(
        { id: "syncs", title: "Changes of rules", note: "newest first" },
        data === null
          ? loading("changes")
          : data.changes.length === 0
          ? empty("No change yet")
          : changeTable(data.changes.toReversed()),
      )}
    </div>
  `;
}

/** @param {readonly RuleChange[]} newest first */
function changeTable(newest) {
  const rows = newest.map(({ timeMs, family, kind, error, written, durationMs, changed, services }) => [
    since(timeMs),
    family,
    error === ""
      ? `${kind} sync`
      : html`<span>${badge("bad", `${kind} sync failed`)}<br /><small class="wrap">${error}</small></span>`,
    error !== ""
      ? ""
      : kind === "full"
      ? `all ${count(changed)}`
      : names(services, changed - services.length),
    listed(Object.fromEntries(Object.entries(written).filter(([, amount]) => amount > 0))),
    duration(durationMs),
  ]);
  const head = ["When", "Family", "What", "Services", "Written", "Took"];
  return table("Changes of rules", head, rows, newest.map(({ id }) => String(id)));
}

/**
 * @param {readonly string[]} services
 * @param {number} rest of them, which are not named
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
