/**
 * All Services, with search and filters.
 *
 * @module
 */
import { h } from "preact";
import { useDeferred, useServiceRows } from "./service_rows.js";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Badge, Empty, Loading, Problem, useIsNarrow } from "./parts.js";
import { count, counted } from "./format.js";
import { replaceQuery, serviceHref } from "./route.js";
import { VirtualRows } from "./virtual_rows.js";

/** @typedef {import("../page_document.ts").ServiceRow} ServiceRow */

/**
 * @typedef {object} Filter
 * @property {string} q
 * @property {string} namespace
 * @property {string} kind
 * @property {string} problem one of them, `some problem`, or `""`
 * @property {string} sort
 */

const ROW_HEIGHT = 44;
const NARROW_ROW_HEIGHT = 68;
const KINDS = ["cluster IP", "external IP", "node port", "load balancer"];
const SOME_PROBLEM = "some problem";
const PROBLEMS = ["no endpoints", "no usable endpoints", "refused by the kernel"];

/** @param {{ query: URLSearchParams }} props */
export function Services({ query }) {
  const { data, error } = useServiceRows();
  const [filter, setFilter] = useState(() => filterOf(query));
  const isNarrow = useIsNarrow();
  useEffect(() => setFilter(filterOf(query)), [query]);
  const change = (/** @type {Partial<Filter>} */ changed) => {
    const next = { ...filter, ...changed };
    setFilter(next);
    replaceQuery("services", { ...next });
  };
  const rows = data?.rows ?? NO_ROWS;
  const deferred = useDeferred(filter);
  const shown = useMemo(() => sorted(rows.filter(matcherOf(deferred)), deferred.sort), [rows, deferred]);
  const namespaces = useMemo(() => [...new Set(rows.map(namespaceOf))].sort(), [rows]);
  if (data === null) {
    return error === null ? h(Loading, { what: "the Services" }) : h(Problem, null, error.message);
  }
  const text = shown.length === rows.length
    ? counted(rows.length, "Service")
    : `${count(shown.length)} of ${counted(rows.length, "Service")}`;
  return h(
    "div",
    { class: "services" },
    h(
      "div",
      { class: "heading" },
      h("h1", null, "Services"),
      h("p", { class: "note", role: "status" }, text),
    ),
    h(Filters, { filter, change, namespaces }),
    shown.length === 0
      ? h(NoServices, { isFiltered: rows.length > 0, clear: () => change(filterOf(new URLSearchParams())) })
      : h(
        VirtualRows,
        {
          label: "Services",
          head: headOf(filter, change),
          rows: shown,
          keyOf: ([name]) => name,
          cellsOf,
          onOpen: ([name]) => {
            location.hash = serviceHref(name);
          },
          rowHeight: isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT,
        },
      ),
  );
}

/** @type {readonly ServiceRow[]} */
const NO_ROWS = [];

/** @param {{ isFiltered: boolean, clear: () => void }} props */
function NoServices({ isFiltered, clear }) {
  return isFiltered
    ? h(
      Empty,
      { title: "No Service is like that" },
      h("button", { type: "button", onClick: clear }, "Show all"),
    )
    : h(
      Empty,
      { title: "There are no Services with an address" },
      h("p", null, "Headless Services and those of type ExternalName are not proxied."),
    );
}

/** @param {{ filter: Filter, change: (changed: Partial<Filter>) => void, namespaces: readonly string[] }} props */
function Filters({ filter, change, namespaces }) {
  return h(
    "form",
    { class: "filters", role: "search", onSubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h(
      "label",
      { class: "search" },
      h("span", null, "Search"),
      h("input", {
        type: "search",
        value: filter.q,
        placeholder: "name, address, port…",
        autoComplete: "off",
        spellcheck: false,
        onInput: (/** @type {Event} */ event) => change({ q: valueOf(event) }),
      }),
    ),
    h(Choice, {
      label: "Namespace",
      all: "any",
      value: filter.namespace,
      values: namespaces,
      onChange: (namespace) => change({ namespace }),
    }),
    h(Choice, {
      label: "Reached by",
      all: "any",
      value: filter.kind,
      values: KINDS,
      onChange: (kind) => change({ kind }),
    }),
    h(Choice, {
      label: "Problem",
      all: "any",
      value: filter.problem,
      values: [SOME_PROBLEM, ...PROBLEMS],
      onChange: (problem) => change({ problem }),
    }),
  );
}

/** @param {{ label: string, all: string, value: string, values: readonly string[], onChange: (value: string) => void }} props */
function Choice({ label, all, value, values, onChange }) {
  const known = value === "" || values.includes(value) ? values : [...values, value];
  return h(
    "label",
    null,
    h("span", null, label),
    h(
      "select",
      { value, onChange: (/** @type {Event} */ event) => onChange(valueOf(event)) },
      h("option", { value: "" }, all),
      known.map((one) => h("option", { key: one, value: one }, one)),
    ),
  );
}

/** @param {Event} event */
function valueOf({ target }) {
  return target instanceof HTMLInputElement || target instanceof HTMLSelectElement ? target.value : "";
}

/**
 * @param {Filter} filter
 * @param {(changed: Partial<Filter>) => void} change
 */
function headOf({ sort }, change) {
  const button = (/** @type {string} */ text, /** @type {string} */ key) => {
    const isUsed = (sort || "name") === key;
    return h(
      "button",
      {
        type: "button",
        class: "sort",
        "aria-pressed": isUsed,
        title: `Sort by ${text.toLowerCase()}`,
        onClick: () => change({ sort: key === "name" ? "" : key }),
      },
      text,
      isUsed ? h("span", { "aria-hidden": "true" }, " ↓") : null,
    );
  };
  return [
    button("Service", "name"),
    "Addresses",
    "Ports",
    "Reached by",
    button("Endpoints", "endpoints"),
    button("Problem", "problem"),
  ];
}

/**
 * @param {ServiceRow} row
 * @returns {readonly import("./parts.js").Children[]}
 */
function cellsOf([name, kind, addresses, ports, used, total, problem]) {
  const slash = name.indexOf("/");
  const first = addresses.slice(0, 2).join(", ");
  return [
    h(
      "a",
      { href: serviceHref(name), tabIndex: -1, class: "service-name" },
      h("span", { class: "muted" }, name.slice(0, slash + 1)),
      name.slice(slash + 1),
    ),
    h(
      "span",
      { class: "mono", title: addresses.join(", ") },
      addresses.length > 2 ? `${first} +${addresses.length - 2}` : first,
    ),
    h("span", { title: ports }, ports),
    h("span", { class: "muted" }, kind),
    h(
      "span",
      { title: `${used} of ${counted(total, "endpoint")} get traffic on this node` },
      h("span", { class: "number" }, `${count(used)}/${count(total)}`),
      h("span", { class: "unseen" }, " endpoints in use"),
    ),
    problem === "" ? "" : h(Badge, { tone: problem === "no endpoints" ? "warning" : "bad" }, problem),
  ];
}

/** @param {ServiceRow} row */
function namespaceOf([name]) {
  return name.slice(0, name.indexOf("/"));
}

/**
 * @param {URLSearchParams} query
 * @returns {Filter}
 */
function filterOf(query) {
  const of = (/** @type {string} */ name) => query.get(name) ?? "";
  return {
    q: of("q"),
    namespace: of("namespace"),
    kind: of("kind"),
    problem: of("problem"),
    sort: of("sort"),
  };
}

/** @type {WeakMap<ServiceRow, string>} */
const searched = new WeakMap();

/**
 * @param {Filter} filter
 * @returns {(row: ServiceRow) => boolean}
 */
function matcherOf({ q, namespace, kind, problem }) {
  const words = q.toLowerCase().split(/\s+/).filter((word) => word !== "");
  return (row) => {
    if (namespace !== "" && namespaceOf(row) !== namespace) return false;
    if (kind !== "" && row[1] !== kind) return false;
    if (problem === SOME_PROBLEM ? row[6] === "" : problem !== "" && row[6] !== problem) return false;
    if (words.length === 0) return true;
    let text = searched.get(row);
    if (text === undefined) {
      text = `${row[0]} ${row[2].join(" ")} ${row[3]} ${row[1]}`.toLowerCase();
      searched.set(row, text);
    }
    return words.every((word) => text.includes(word));
  };
}

/**
 * @param {ServiceRow[]} rows by name
 * @param {string} sort
 */
function sorted(rows, sort) {
  if (sort === "endpoints") return rows.sort((one, other) => one[4] - other[4]);
  if (sort === "problem") return rows.sort((one, other) => Number(other[6] !== "") - Number(one[6] !== ""));
  return rows;
}
