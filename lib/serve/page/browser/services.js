/**
 * All Services, with search and filters.
 *
 * @module
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask, usePolled } from "./api.js";
import { count, counted } from "./format.js";
import { Grid } from "./grid.js";
import { badge, empty, html, loading, problem, useIsNarrow } from "./parts.js";
import { hrefOf, serviceHref } from "./route.js";

/** @typedef {import("../page_document.ts").ServiceRow} ServiceRow */
/** @typedef {import("../page_document.ts").ServicesDocument} ServicesDocument */
/** @typedef {{ q: string, namespace: string, kind: string, problem: string, sort: string }} Filter */
/** @typedef {(changed: Partial<Filter>) => void} Change */

const PERIOD_MS = 3_000;
const ROW_HEIGHT = 44;
const NARROW_ROW_HEIGHT = 68;
const KINDS = ["cluster IP", "external IP", "node port", "load balancer"];
const SOME_PROBLEM = "some problem";
const PROBLEMS = [SOME_PROBLEM, "no endpoints", "no usable endpoints", "refused by the kernel"];
/** @type {Filter} */
const NO_FILTER = { q: "", namespace: "", kind: "", problem: "", sort: "" };

/** @type {readonly ServiceRow[]} */
const NO_ROWS = [];

/** @type {readonly ServiceRow[] | null} kept while the page is open: another view may have been shown meanwhile */
let known = null;

/**
 * @param {AbortSignal} signal
 * @returns {Promise<readonly ServiceRow[]>} by name
 */
async function loadRows(signal) {
  /** @type {ServicesDocument} */
  const { rows } = await ask("services", signal);
  return known = [...rows].sort(([one], [other]) => one < other ? -1 : 1);
}

/** @param {{ query: URLSearchParams }} props */
export function Services({ query }) {
  const { data: loaded, error } = usePolled("services", PERIOD_MS, loadRows);
  const data = loaded ?? known;
  const [filter, setFilter] = useState(() => filterOf(query));
  const isNarrow = useIsNarrow();
  useEffect(() => setFilter(filterOf(query)), [query]);
  /** @type {Change} */
  const change = (changed) => {
    const next = { ...filter, ...changed };
    setFilter(next);
    // Replaces the address: not an entry of the history.
    history.replaceState(null, "", hrefOf("services", next));
  };
  const rows = data ?? NO_ROWS;
  const deferred = useDeferred(filter);
  const shown = useMemo(() => sorted(rows.filter(matcherOf(deferred)), deferred.sort), [rows, deferred]);
  const namespaces = useMemo(() => [...new Set(rows.map(namespaceOf))].sort(), [rows]);
  if (data === null) return error === null ? loading("the Services") : problem(error.message);
  const all = counted(rows.length, "Service");
  return html`
    <div class="services">
      <div class="heading">
        <h1>Services</h1>
        <p class="note" role="status">${shown.length === rows.length
          ? all
          : `${count(shown.length)} of ${all}`}</p>
      </div>
      ${filters(filter, change, namespaces)}
      ${shown.length > 0
        ? html`
          <${Grid}
            label="Services" head=${headOf(filter, change)} rows=${shown} cellsOf=${cellsOf}
            onOpen=${(/** @type {ServiceRow} */ [name]) => location.hash = serviceHref(name)}
            rowHeight=${isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT} />
        `
        : rows.length > 0
        ? empty(
          "No Service is like that",
          html`<button type="button" onClick=${() => change(NO_FILTER)}>Show all</button>`,
        )
        : empty(
          "There are no Services with an address",
          html`<p>Headless Services and those of type ExternalName are not proxied.</p>`,
        )}
    </div>
  `;
}

/**
 * The value, a moment after its last change: thousands of rows are not filtered for every key.
 *
 * @template Value
 * @param {Value} value
 * @returns {Value}
 */
function useDeferred(value) {
  const [deferred, setDeferred] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDeferred(value), 60);
    return () => clearTimeout(timer);
  }, [value]);
  return deferred;
}

/**
 * @param {Filter} filter
 * @param {Change} change
 * @param {readonly string[]} namespaces
 */
function filters(filter, change, namespaces) {
  return html`
    <form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label class="search">
        <span>Search</span>
        <input
          type="search" value=${filter
            .q} placeholder="name, address, port…" autoComplete="off" spellcheck=${false}
          onInput=${(/** @type {Event} */ event) => change({ q: valueOf(event) })} />
      </label>
      ${choice("Namespace", filter.namespace, namespaces, (namespace) => change({ namespace }))}
      ${choice("Reached by", filter.kind, KINDS, (kind) => change({ kind }))}
      ${choice("Problem", filter.problem, PROBLEMS, (problem) => change({ problem }))}
    </form>
  `;
}

/**
 * @param {string} label
 * @param {string} value
 * @param {readonly string[]} values
 * @param {(value: string) => void} onChange
 */
function choice(label, value, values, onChange) {
  const all = value === "" || values.includes(value) ? values : [...values, value];
  return html`
    <label>
      <span>${label}</span>
      <select value=${value} onChange=${(/** @type {Event} */ event) => onChange(valueOf(event))}>
        <option value="">any</option>
        ${all.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label>
  `;
}

/** @param {Event} event */
function valueOf({ target }) {
  return target instanceof HTMLInputElement || target instanceof HTMLSelectElement ? target.value : "";
}

/**
 * @param {Filter} filter
 * @param {Change} change
 */
function headOf({ sort }, change) {
  const button = (/** @type {string} */ text, /** @type {string} */ key) => {
    const isUsed = sort === key;
    return html`
      <button
        type="button" class="sort" aria-pressed=${isUsed} title="Sort by ${text.toLowerCase()}"
        onClick=${() => change({ sort: key })}
      >${text}${isUsed && html`<span aria-hidden="true"> ↓</span>`}</button>
    `;
  };
  return [
    button("Service", ""),
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
  const namespace = name.slice(0, name.indexOf("/") + 1);
  const more = addresses.length > 2 ? ` +${addresses.length - 2}` : "";
  return [
    html`
      <a href=${serviceHref(name)} tabIndex=${-1} class="service-name">
        <span class="muted">${namespace}</span>${name.slice(namespace.length)}
      </a>
    `,
    html`<span class="mono" title=${addresses.join(", ")}>${addresses.slice(0, 2).join(", ")}${more}</span>`,
    html`<span title=${ports}>${ports}</span>`,
    html`<span class="muted">${kind}</span>`,
    html`
      <span title="${used} of ${counted(total, "endpoint")} get traffic on this node">
        <span class="number">${count(used)}/${count(
          total,
        )}</span><span class="unseen"> endpoints in use</span>
      </span>
    `,
    problem !== "" && badge(problem === "no endpoints" ? "warning" : "bad", problem),
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
  const given = /** @type {Filter} */ ({ ...NO_FILTER });
  for (const name of /** @type {(keyof Filter)[]} */ (Object.keys(NO_FILTER))) {
    given[name] = query.get(name) ?? "";
  }
  return given;
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
    const [name, reachedBy, addresses, ports, , , wrong] = row;
    if (namespace !== "" && namespaceOf(row) !== namespace) return false;
    if (kind !== "" && reachedBy !== kind) return false;
    if (problem === SOME_PROBLEM ? wrong === "" : problem !== "" && wrong !== problem) return false;
    if (words.length === 0) return true;
    let text = searched.get(row);
    if (text === undefined) {
      text = `${name} ${addresses.join(" ")} ${ports} ${reachedBy}`.toLowerCase();
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
