/**
 * What was changed last, and what went wrong.
 *
 * @module
 */
import { h } from "preact";
import { ask, usePolled } from "./api.js";
import { count, counted, duration } from "./format.js";
import { Ago, Badge, Empty, Loading, Section, ServiceLink, Table } from "./parts.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("../page_document.ts").ChangesDocument} ChangesDocument */
/** @typedef {import("../page_document.ts").RuleChange} RuleChange */

const PERIOD_MS = 2_000;
const KEPT = 200;

/** @param {{ status: StatusDocument, nowMs: number }} props */
export function Changes({ status, nowMs }) {
  const { data } = usePolled(loadChanges, PERIOD_MS, "changes");
  return h(
    "div",
    { class: "stack" },
    h("div", { class: "heading" }, h("h1", null, "Changes")),
    h(Problems, { status, nowMs }),
    h(
      Section,
      { id: "syncs", title: "Changes of rules", note: "newest first" },
      data === null
        ? h(Loading, { what: "changes" })
        : data.changes.length === 0
        ? h(Empty, { title: "No change yet" })
        : h(ChangeTable, { changes: data.changes, nowMs }),
    ),
  );
}

/**
 * @param {ChangesDocument | null} before
 * @param {AbortSignal} signal
 * @returns {Promise<ChangesDocument>}
 */
async function loadChanges(before, signal) {
  const newest = before?.changes.at(-1)?.id ?? 0;
  /** @type {ChangesDocument} */
  const document = await ask(
    `changes?since=${encodeURIComponent(`${before?.run ?? ""}:${newest}`)}`,
    signal,
  );
  if (before === null || before.run !== document.run) return document;
  if (document.changes.length === 0) return before;
  return { ...document, changes: [...before.changes, ...document.changes].slice(-KEPT) };
}

/** @param {{ changes: readonly RuleChange[], nowMs: number }} props */
function ChangeTable({ changes, nowMs }) {
  const newest = [...changes].reverse();
  return h(Table, {
    label: "Changes of rules",
    head: ["When", "Family", "What", "Services", "Written", "Took"],
    keys: newest.map(({ id }) => String(id)),
    rows: newest.map((change) => [
      h(Ago, { timeMs: change.timeMs, nowMs }),
      change.family,
      change.error === "" ? `${change.kind} sync` : h(
        "span",
        null,
        h(Badge, { tone: "bad" }, `${change.kind} sync failed`),
        h("br", null),
        h("small", { class: "wrap" }, change.error),
      ),
      change.error === "" ? h(Names, { change }) : "",
      Object.entries(change.written).filter(([, amount]) => amount > 0).map(([kind, amount]) =>
        `${count(amount)} ${kind}`
      )
        .join(", ") || "–",
      duration(change.durationMs),
    ]),
  });
}

/** @param {{ change: RuleChange }} props */
function Names({ change: { kind, changed, services } }) {
  if (kind === "full") return h("span", null, `all ${count(changed)}`);
  const rest = changed - services.length;
  return h(
    "span",
    { class: "names" },
    services.map((name) => h(ServiceLink, { key: name, name })),
    rest > 0 ? h("span", { class: "muted" }, ` and ${counted(rest, "other")}`) : null,
  );
}

/** @param {{ status: StatusDocument, nowMs: number }} props */
function Problems({ status: { problems }, nowMs }) {
  const newest = [...problems.recent].reverse();
  const hidden = problems.total - problems.recent.reduce((sum, { count: times }) => sum + times, 0);
  return h(
    Section,
    {
      id: "problems",
      title: "Warnings and errors",
      note: problems.total === 0
        ? null
        : `${count(problems.total)} since the start${hidden > 0 ? ", the last of them" : ""}`,
    },
    newest.length === 0 ? h(Empty, { title: "Nothing went wrong since the start" }) : h(Table, {
      label: "Warnings and errors",
      head: ["When", "Severity", "Message"],
      keys: newest.map(({ first, message }) => `${first} ${message}`),
      rows: newest.map(({ severity, message, values, last, count: times }) => [
        h(Ago, { timeMs: Date.parse(last), nowMs }),
        h(Badge, { tone: severity === "error" ? "bad" : "warning" }, severity),
        h(
          "span",
          { class: "wrap" },
          message,
          times > 1 ? h("strong", null, ` ×${count(times)}`) : null,
          values === "" ? null : h("code", { class: "values" }, values),
        ),
      ]),
    }),
  );
}
