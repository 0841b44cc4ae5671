/**
 * The status page: the frame around every view, and the choice of the view that is shown.
 *
 * @module
 */
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { usePolled } from "./api.js";
import { changes } from "./changes.js";
import { clock } from "./format.js";
import { overview } from "./overview.js";
import { badge, html, loading, problem } from "./parts.js";
import { PacketPath } from "./path.js";
import { hrefOf, useRoute } from "./route.js";
import { ServiceDetail } from "./service.js";
import { Services } from "./services.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("./route.js").Route} Route */
/** @typedef {import("./api.js").AskError} AskError */

const PERIOD_MS = 2_000;

const VIEWS = /** @type {const} */ ([
  ["overview", "Overview"],
  ["services", "Services"],
  ["path", "Packet path"],
  ["changes", "Changes"],
]);

function App() {
  const route = useRoute();
  /** @type {import("./api.js").Polled<StatusDocument>} */
  const { data: status, error } = usePolled("status", PERIOD_MS);
  useEverySecond();
  const title = titleOf(route);
  const main = useFocusAfterMoves(
    `${route.view} ${route.name}`,
    status === null ? title : `${title} · kproxy on ${status.node.name}`,
  );
  return html`
    <div class="page view-${route.view}">
      <a class="skip" href="#main" onClick=${focusMain}>Skip to content</a>
      ${header(route, status, error !== null)}
      <${Announcer} status=${status} error=${error} />
      ${error !== null && staleNote(error, status)}
      <main id="main" ref=${main} tabIndex=${-1} class=${error === null ? "" : "stale"} aria-label=${title}>
        ${shownView(route, status)}
      </main>
      ${status !== null && footer(status.program)}
    </div>
  `;
}

/** @param {Event} event */
function focusMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** Renders the page again each second while it is visible, so that "3 s ago" stays true. */
function useEverySecond() {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setTurn((turn) => turn + 1);
    }, 1_000);
    return () => clearInterval(timer);
  }, []);
}

/**
 * @param {Route} route
 * @param {StatusDocument | null} status
 */
function shownView({ view, name, query }, status) {
  switch (view) {
    case "services":
      return html`<${Services} query=${query} />`;
    case "service":
      return html`<${ServiceDetail} name=${name} />`;
    case "path":
      return html`<${PacketPath} query=${query} />`;
    case "changes":
      return status === null ? loading("changes") : changes(status);
    case "overview":
      return status === null ? loading("its status") : overview(status);
  }
}

/** @param {Route} route */
function titleOf({ view, name }) {
  return view === "service" ? `Service ${name}` : VIEWS.find(([one]) => one === view)?.[1] ?? "";
}

/**
 * Sets the window's title, and moves the focus into a new view, for screen readers: before it is painted, so that the next key is
 * never taken by the view before.
 *
 * @param {string} place
 * @param {string} title
 */
function useFocusAfterMoves(place, title) {
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const isFirst = useRef(true);
  useLayoutEffect(() => {
    document.title = title;
  }, [title]);
  useLayoutEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }, [place]);
  return main;
}

/**
 * @param {Route} route
 * @param {StatusDocument | null} status
 * @param {boolean} isStale
 */
function header({ view }, status, isStale) {
  const here = view === "service" ? "services" : view;
  return html`
    <header class="top">
      <div class="top-line">
        <a class="brand" href=${hrefOf(
          "overview",
        )}><img src="page/icon.svg" alt="" width="26" height="26" />kproxy</a>
        ${status && html`<span class="node mono" title="Node">${status.node.name}</span>`}
        ${status && html`<span class="mode">${status.mode.used}</span>`}
        <span class="grow" />
        ${stateBadge(status, isStale)}
      </div>
      <nav aria-label="Views">
        ${VIEWS.map(([one, text]) =>
          html`<a key=${one} href=${hrefOf(one)} aria-current=${
            one === here ? "page" : undefined
          }>${text}</a>`
        )}
      </nav>
    </header>
  `;
}

/**
 * @param {StatusDocument | null} status
 * @param {boolean} isStale
 */
function stateBadge(status, isStale) {
  if (isStale) return badge("bad", status === null ? "No answer" : "Stale");
  if (status === null) return badge("plain", "Connecting");
  if (!status.healthy) return badge("bad", "Not healthy");
  return status.readiness.ready ? badge("good", "Ready") : badge("warning", "Not ready");
}

/**
 * @param {AskError} error
 * @param {StatusDocument | null} status
 */
function staleNote({ status: code, message }, status) {
  const what = html`<strong>${code === 0 ? message : `kproxy says: ${message}`}</strong>`;
  const rest = status === null
    ? ". Is it running, with the status page on? This page goes on asking."
    : `. What you see is what it said at ${clock(Date.parse(status.time))}; this page goes on asking.`;
  return html`<div class="stale-note">${problem(what, rest)}</div>`;
}

/**
 * Announces changes of the readiness to screen readers, once.
 *
 * @param {{ status: StatusDocument | null, error: AskError | null }} props
 */
function Announcer({ status, error }) {
  const [text, setText] = useState("");
  const before = useRef("");
  const state = error !== null
    ? "kproxy does not answer"
    : status === null
    ? ""
    : status.readiness.ready
    ? "kproxy is ready"
    : `kproxy is not ready: ${status.readiness.reasons.join("; ")}`;
  useEffect(() => {
    if (state !== before.current && before.current !== "") setText(state);
    before.current = state;
  }, [state]);
  return html`<p class="unseen" aria-live="polite">${text}</p>`;
}

/** @param {StatusDocument["program"]} program */
function footer({ version, emulationVersion, denoVersion, pid }) {
  return html`
    <footer>
      kproxy ${version} · behaves as Kubernetes ${emulationVersion} · Deno ${denoVersion} · process ${pid}
    </footer>
  `;
}

const root = document.getElementById("app");
if (root !== null) {
  root.textContent = "";
  render(html`<${App} />`, root);
}
