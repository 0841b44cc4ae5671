/**
 * Small parts that all views are made of, and what they ask of the browser.
 *
 * @module
 */
import { h } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ago, clock } from "./format.js";
import { serviceHref } from "./route.js";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {"good" | "warning" | "bad" | "plain"} Tone */

const SIGNS = { good: "✓", warning: "!", bad: "✕", plain: "·" };

/**
 * A word with a colour, and a sign for those who do not see it.
 *
 * @param {{ tone: Tone, children?: Children }} props
 */
export function Badge({ tone, children }) {
  return h(
    "span",
    { class: `badge ${tone}` },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[tone]),
    children,
  );
}

/**
 * @param {{ title: string, note?: Children, children?: Children, id: string, class?: string }} props
 */
export function Section({ title, note, children, id, class: name = "" }) {
  return h(
    "section",
    { class: `card ${name}`, "aria-labelledby": id },
    h("div", { class: "card-head" }, h("h2", { id }, title), note ? h("p", { class: "note" }, note) : null),
    children,
  );
}

/**
 * A table that fits a narrow screen by scrolling within itself.
 *
 * @param {{ label: string, head: readonly string[], rows: readonly (readonly Children[])[], keys?: readonly string[] }} props
 */
export function Table({ label, head, rows, keys }) {
  return h(
    "div",
    { class: "table-scroll", role: "group", "aria-label": label, tabIndex: 0 },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col", key: text }, text)))),
      h(
        "tbody",
        null,
        rows.map((cells, index) =>
          h(
            "tr",
            { key: keys?.[index] ?? index },
            cells.map((cell, column) =>
              column === 0 ? h("th", { scope: "row", key: column }, cell) : h("td", { key: column }, cell)
            ),
          )
        ),
      ),
    ),
  );
}

/**
 * Names and values.
 *
 * @param {{ facts: readonly (readonly [name: string, value: Children])[] }} props those without a value are left out
 */
export function Facts({ facts }) {
  const given = facts.filter(([, value]) => value !== "" && value !== null);
  return h(
    "dl",
    { class: "facts" },
    given.map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))),
  );
}

/**
 * How long ago, with the time of day for who points at it.
 *
 * @param {{ timeMs: number, nowMs: number }} props
 */
export function Ago({ timeMs, nowMs }) {
  const iso = new Date(timeMs).toISOString();
  return h("time", { dateTime: iso, title: clock(timeMs, nowMs) }, ago(timeMs, nowMs));
}

/** @param {{ title: string, children?: Children }} props */
export function Empty({ title, children }) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), children);
}

/** @param {{ children?: Children }} props */
export function Problem({ children }) {
  return h("div", { class: "problem", role: "alert" }, children);
}

/** @param {{ name: string }} props `namespace/name` */
export function ServiceLink({ name }) {
  return h("a", { href: serviceHref(name), class: "mono" }, name);
}

/** @param {{ children?: Children }} props */
export function Mono({ children }) {
  return h("span", { class: "mono" }, children);
}

/** @param {{ what: string }} props */
export function Loading({ what }) {
  return h("p", { class: "loading", role: "status" }, `Asking kproxy for ${what}…`);
}

/**
 * Whether the media query matches, now and whenever that changes.
 *
 * @param {string} query
 * @returns {boolean}
 */
export function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = () => setMatches(list.matches);
    list.addEventListener("change", update);
    update();
    return () => list.removeEventListener("change", update);
  }, [query]);
  return matches;
}

/** True on screens of a phone's width. */
export function useIsNarrow() {
  return useMedia("(max-width: 720px)");
}

/**
 * The time in milliseconds since the epoch, anew every so often, so that "3 s ago" stays true.
 *
 * @param {number} periodMs
 * @returns {number}
 */
export function useNow(periodMs) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now());
    }, periodMs);
    return () => clearInterval(timer);
  }, [periodMs]);
  return now;
}
