/**
 * The status page: what stands around every view, and which one is shown.
 *
 * @module
 */
import { h, render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ask, UnreachableError, usePolled } from "./api.js";
import { Changes } from "./changes.js";
import { Badge, Loading, Problem, useNow } from "./parts.js";
import { clock } from "./format.js";
import { Overview } from "./overview.js";
import { PacketPath } from "./path.js";
import { hrefOf, useRoute } from "./route.js";
import { ServiceDetail } from "./service.js";
import { Services } from "./services.js";

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {import("./route.js").View} View */

const PERIOD_MS = 2_000;
const POINTS = 120;

/** @type {readonly (readonly [View, string])[]} */
const VIEWS = [["overview", "Overview"], ["services", "Services"], ["path", "Packet path"], [
  "changes",
  "Changes",
]];

/**
 * The status, with the earlier syncs.
 *
 * @param {StatusDocument | null} before
 * @param {AbortSignal} signal
 * @returns {Promise<StatusDocument>}
 */
async function loadStatus(before, signal) {
  const newest = Math.max(0, ...points(before).map(({ timeMs }) => timeMs));
  /** @type {StatusDocument} */
  const status = await ask(`status?since=${newest}`, signal);
  if (before === null) return status;
  // Another proxy server has reported nothing yet.
  if (runOf(before) !== runOf(status)) return newest === 0 ? status : await loadStatus(null, signal);
  const families = Object.entries(status.families).map(([family, one]) => {
    const known = family === "IPv4" ? before.families.IPv4 : before.families.IPv6;
    return [family, { ...one, recent: [...known?.recent ?? [], ...one.recent].slice(-POINTS) }];
  });
  return { ...status, families: Object.fromEntries(families) };
}

/** @param {StatusDocument | null} status */
function points(status) {
  return Object.values(status?.families ?? {}).flatMap(({ recent }) => recent);
}

/** @param {StatusDocument} status */
function runOf({ program }) {
  return `${program.pid} ${program.servingSince}`;
}

function App() {
  const route = useRoute();
  const { data: status, error } = usePolled(loadStatus, PERIOD_MS, "status");
  const nowMs = useNow(1_000);
  const isStale = error !== null;
  const main = useFocusAfterMoves(`${route.view} ${route.name}`, titleOf(route, status));
  return h(
    "div",
    { class: `page view-${route.view}` },
    h("a", { class: "skip", href: "#main", onClick: focusMain }, "Skip to content"),
    h(Header, { status, isStale, view: route.view }),
    h(Announcer, { status, error }),
    isStale ? h(StaleNote, { error, status, nowMs }) : null,
    h(
      "main",
      {
        id: "main",
        ref: main,
        tabIndex: -1,
        class: isStale ? "stale" : "",
        "aria-label": titleOf(route, null),
      },
      h(ShownView, { route, status, nowMs }),
    ),
    status === null ? null : h(Footer, { status }),
  );
}

/** @param {Event} event */
function focusMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** @param {{ route: import("./route.js").Route, status: StatusDocument | null, nowMs: number }} props */
function ShownView({ route, status, nowMs }) {
  switch (route.view) {
    case "services":
      return h(Services, { query: route.query });
    case "service":
      return h(ServiceDetail, { name: route.name, nowMs });
    case "path":
      return h(PacketPath, { query: route.query, status });
    case "changes":
      return status === null ? h(Loading, { what: "changes" }) : h(Changes, { status, nowMs });
    case "overview":
      return status === null ? h(Loading, { what: "its status" }) : h(Overview, { status, nowMs });
  }
}

/**
 * @param {import("./route.js").Route} route
 * @param {StatusDocument | null} status
 */
function titleOf({ view, name }, status) {
  const what = view === "service" ? `Service ${name}` : VIEWS.find(([one]) => one === view)?.[1] ?? "";
  return status === null ? what : `${what} · kproxy on ${status.node.name}`;
}

/**
 * Names the window, and moves the focus into a view that was moved to, for those who do not see it change: before it is painted, so that
 * the next key is never taken by what was there before.
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

/** @param {{ status: StatusDocument | null, isStale: boolean, view: View }} props */
function Header({ status, isStale, view }) {
  return h(
    "header",
    { class: "top" },
    h(
      "div",
      { class: "top-line" },
      h(
        "a",
        { class: "brand", href: hrefOf("overview") },
        h("img", { src: "page/icon.svg", alt: "", width: 26, height: 26 }),
        "kproxy",
      ),
      status === null ? null : h("span", { class: "node mono", title: "Node" }, status.node.name),
      status === null ? null : h("span", { class: "mode" }, status.mode.used),
      h("span", { class: "grow" }),
      h(StateBadge, { status, isStale }),
    ),
    h(
      "nav",
      { "aria-label": "Views" },
      VIEWS.map(([one, text]) => {
        const isHere = one === view || (view === "service" && one === "services");
        return h("a", { key: one, href: hrefOf(one), "aria-current": isHere ? "page" : undefined }, text);
      }),
    ),
  );
}

/** @param {{ status: StatusDocument | null, isStale: boolean }} props */
function StateBadge({ status, isStale }) {
  if (isStale) return h(Badge, { tone: "bad" }, status === null ? "No answer" : "Stale");
  if (status === null) return h(Badge, { tone: "plain" }, "Connecting");
  if (!status.healthy) return h(Badge, { tone: "bad" }, "Not healthy");
  return status.readiness.ready
    ? h(Badge, { tone: "good" }, "Ready")
    : h(Badge, { tone: "warning" }, "Not ready");
}

/** @param {{ error: Error, status: StatusDocument | null, nowMs: number }} props */
function StaleNote({ error, status, nowMs }) {
  const what = error instanceof UnreachableError ? "kproxy does not answer" : `kproxy says: ${error.message}`;
  return h(
    "div",
    { class: "stale-note" },
    h(
      Problem,
      null,
      h("strong", null, what),
      status === null
        ? ". Is it running, with the status page on? This page goes on asking."
        : `. What you see is what it said at ${
          clock(Date.parse(status.time), nowMs)
        }; this page goes on asking.`,
    ),
  );
}

/**
 * Announces important changes to screen readers, once.
 *
 * @param {{ status: StatusDocument | null, error: Error | null }} props
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
  return h("p", { class: "unseen", "aria-live": "polite" }, text);
}

/** @param {{ status: StatusDocument }} props */
function Footer({ status: { program } }) {
  return h(
    "footer",
    null,
    `kproxy ${program.version} · behaves as Kubernetes ${program.emulationVersion} · Deno ${program.denoVersion} · process ${program.pid}`,
  );
}

const root = document.getElementById("app");
if (root !== null) {
  root.textContent = "";
  render(h(App, {}), root);
}
