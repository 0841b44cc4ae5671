/**
 * Small parts that all views are made of, and the media queries they use. A part without a state is a function, so that its arguments
 * have types; one with a state is a component in the markup.
 *
 * @module
 */
import htm from "htm";
import { h } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ago, clock } from "./format.js";
import { serviceHref } from "./route.js";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {"good" | "warning" | "bad" | "plain"} Tone */

/** @typedef {(strings: TemplateStringsArray, ...values: unknown[]) => import("preact").VNode} Html */

/**
 * Markup with values, as elements. The package's types are those of a CommonJS module, which it is not here.
 *
 * @type {Html}
 */
export const html = /** @type {{ bind: (create: typeof h) => Html }} */ (/** @type {unknown} */ (htm)).bind(
  h,
);

const SIGNS = { good: "✓", warning: "!", bad: "✕", plain: "·" };

/**
 * A word with a colour, and a sign for readers that see no colours.
 *
 * @param {Tone} tone
 * @param {Children} text
 */
export function badge(tone, text) {
  return html`<span class="badge ${tone}"><span class="sign" aria-hidden="true">${
    SIGNS[tone]
  }</span>${text}</span>`;
}

/**
 * @param {{ id: string, title: string, note?: Children, class?: string }} head
 * @param {...Children} children
 */
export function section({ id, title, note, class: name = "" }, ...children) {
  return html`
    <section key=${id} class="card ${name}" aria-labelledby=${id}>
      <div class="card-head"><h2 id=${id}>${title}</h2>${note && html`<p class="note">${note}</p>`}</div>
      ${children}
    </section>
  `;
}

/**
 * A table that fits a narrow screen by scrolling within itself.
 *
 * @param {string} label
 * @param {readonly string[]} head
 * @param {readonly (readonly Children[])[]} rows
 * @param {readonly string[]} [keys] of the rows; default: their index
 */
export function table(label, head, rows, keys) {
  return html`
    <div class="table-scroll" role="group" aria-label=${label} tabIndex=${0}>
      <table>
        <thead>
          <tr>${head.map((text) => html`<th scope="col" key=${text}>${text}</th>`)}</tr>
        </thead>
        <tbody>${rows.map(([first, ...others], index) =>
          html`<tr key=${keys?.[index] ?? index}><th scope="row">${first}</th>${
            others.map((cell) => html`<td>${cell}</td>`)
          }</tr>`
        )}</tbody>
      </table>
    </div>
  `;
}

/**
 * A list of names with their values.
 *
 * @param {readonly (readonly [name: string, value: Children])[]} given entries without a value are left out
 * @param {string} [name]
 */
export function facts(given, name = "") {
  const shown = given.filter(([, value]) => value !== "" && value !== null);
  return html`
    <dl class="facts ${name}">
      ${shown.map(([term, value]) =>
        html`
          <div key=${term}>
            <dt>${term}</dt>
            <dd>${value}</dd>
          </div>
        `
      )}
    </dl>
  `;
}

/** @param {readonly Children[]} items */
export function lines(items) {
  return html`<ul class="lines">${items.map((item, index) => html`<li key=${index}>${item}</li>`)}</ul>`;
}

/**
 * A time as its age, with the time of day as its title.
 *
 * @param {number} timeMs since the epoch
 */
export function since(timeMs) {
  return html`<time dateTime=${new Date(timeMs).toISOString()} title=${clock(timeMs)}>${ago(timeMs)}</time>`;
}

/**
 * @param {string} title
 * @param {...Children} children
 */
export function empty(title, ...children) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

/** @param {...Children} children */
export function problem(...children) {
  return html`<div class="problem" role="alert">${children}</div>`;
}

/** @param {string} name `namespace/name` */
export function serviceLink(name) {
  return html`<a key=${name} href=${serviceHref(name)} class="mono">${name}</a>`;
}

/** @param {Children} text */
export function mono(text) {
  return html`<span class="mono">${text}</span>`;
}

/** @param {string} what */
export function loading(what) {
  return html`<p class="loading" role="status">Asking kproxy for ${what}…</p>`;
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
