/**
 * What is wrong, as far as the proxy knows: shown only if there is any.
 *
 * @module
 */
import { h } from "preact";
import { count, counted } from "./format.js";
import { Ago, Badge, Mono, Section, ServiceLink, Table } from "./parts.js";

const SHOWN_REFUSALS = 10;

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */

/** @param {{ status: StatusDocument, nowMs: number }} props */
export function Trouble({ status, nowMs }) {
  return h(
    "div",
    { class: "stack" },
    h(Quarantine, { status, nowMs }),
    h(Unserved, { status }),
    h(Drift, { status, nowMs }),
    h(Settings, { status, nowMs }),
  );
}

/** @param {{ status: StatusDocument, nowMs: number }} props */
function Quarantine({ status: { quarantine }, nowMs }) {
  if (quarantine.count === 0) return null;
  const hidden = quarantine.count - quarantine.services.length;
  return h(
    Section,
    {
      id: "quarantine",
      title: "Quarantine",
      note: `${counted(quarantine.count, "Service")} whose rules the kernel refuses; the others work${
        hidden > 0 ? `. The first ${count(quarantine.services.length)} are shown` : ""
      }`,
    },
    h(Table, {
      label: "Quarantine",
      head: ["Service", "Family", "Why", "Since"],
      keys: quarantine.services.map(({ family, service }) => `${family} ${service}`),
      rows: quarantine.services.map(({ family, service, problem, since }) => [
        h(ServiceLink, { name: service }),
        family,
        problem,
        h(Ago, { timeMs: Date.parse(since), nowMs }),
      ]),
    }),
  );
}

/** @param {{ status: StatusDocument }} props */
function Unserved({ status: { unserved = { count: 0, destinations: [] } } }) {
  const { count: all, destinations } = unserved;
  if (all === 0) return null;
  const isCut = all > destinations.length;
  return h(
    Section,
    {
      id: "unserved",
      title: "Not served",
      note: `${counted(all, "address or port", "addresses and ports")} that Services ask for and do not get${
        isCut ? `. The first ${count(destinations.length)} are shown` : ""
      }`,
    },
    h(Table, {
      label: "Not served",
      head: ["Service", "What", "Why"],
      keys: destinations.map((_, index) => String(index)),
      rows: destinations.map(({ service, destination, reason }) => [
        h(ServiceLink, { name: service }),
        h(Mono, null, destination),
        reason,
      ]),
    }),
  );
}

/** @type {Readonly<Record<string, readonly ["good" | "warning" | "bad", string]>>} */
const OUTCOMES = {
  repaired: ["good", "repaired"],
  pending: ["warning", "being repaired"],
  lasting: ["bad", "damaged all the same"],
};

/** @param {{ status: StatusDocument, nowMs: number }} props */
function Drift({ status: { drift }, nowMs }) {
  if (drift.recent.length === 0) return null;
  const recent = [...drift.recent].reverse();
  return h(
    Section,
    { id: "drift", title: "Drift", note: "foreign changes of the rules" },
    h(Table, {
      label: "Drift",
      head: ["When", "Family", "Damaged", "Outcome"],
      rows: recent.map(({ time, family, damaged, outcome }) => {
        const [tone, words] = OUTCOMES[outcome] ?? ["warning", outcome];
        return [
          h(Ago, { timeMs: Date.parse(time), nowMs }),
          family,
          h(Mono, null, damaged.join(", ")),
          h(Badge, { tone }, words),
        ];
      }),
    }),
  );
}

/** @param {{ status: StatusDocument, nowMs: number }} props */
function Settings({ status, nowMs }) {
  const { otherProxyTables, refusedSettings, configReload, source, readiness } = status;
  const lines = [
    ...otherProxyTables.map((table) =>
      h("span", null, "Another service proxy keeps its table ", h(Mono, null, table))
    ),
    ...refusedSettings.map(({ name, reason }) =>
      h("span", null, "Kernel setting ", h(Mono, null, name), ` is not as wanted: ${reason}`)
    ),
    ...(configReload === null || configReload.inForce ? [] : [
      h(
        "span",
        null,
        "The configuration file as it is now was refused; the one of ",
        h(Ago, { timeMs: Date.parse(configReload.lastSuccess), nowMs }),
        " is in force",
      ),
    ]),
    ...source.refused.objects.slice(0, SHOWN_REFUSALS).map(({ where, object, message }) =>
      h("span", null, h(Mono, null, object), ` is refused: ${message} (${where})`)
    ),
    ...(source.refused.count <= SHOWN_REFUSALS
      ? []
      : [h("span", null, `${counted(source.refused.count, "object")} refused in all; see Changes`)]),
    ...Object.entries(readiness.unserved ?? {}).map(([family, { reason, use }]) =>
      h("span", null, `${family} is not served: ${reason}${use === undefined ? "" : `; ${use}`}`)
    ),
  ];
  if (lines.length === 0) return null;
  return h(
    Section,
    { id: "settings", title: "Worth a look" },
    h("ul", { class: "lines" }, lines.map((line, index) => h("li", { key: index }, line))),
  );
}
