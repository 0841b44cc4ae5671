/**
 * One Service: its ports, what its endpoints are used for and why not, and the rules that are wanted for it.
 *
 * @module
 */
import { h } from "preact";
import { useState } from "preact/hooks";
import { ask, RefusedError, usePolled } from "./api.js";
import { count, counted, duration } from "./format.js";
import { Badge, Empty, Facts, Loading, Mono, Problem, Section, Table } from "./parts.js";
import { hrefOf } from "./route.js";

/** @typedef {import("../page_document.ts").ServiceDocument} ServiceDocument */
/** @typedef {import("../page_document.ts").PortDocument} PortDocument */
/** @typedef {import("../page_document.ts").EndpointDocument} EndpointDocument */
/** @typedef {import("../page_document.ts").WantedPart} WantedPart */

const PERIOD_MS = 3_000;
/** Of the endpoints so many are shown at first. */
const SHOWN = 100;

/** @param {{ name: string, nowMs: number }} props */
export function ServiceDetail({ name }) {
  const load = (/** @type {ServiceDocument | null} */ _before, /** @type {AbortSignal} */ signal) =>
    ask(`service?name=${encodeURIComponent(name)}`, signal);
  const { data, error } = usePolled(load, PERIOD_MS, name);
  const slash = name.indexOf("/");
  const isGone = error instanceof RefusedError && error.status === 404;
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "heading" },
      h(
        "p",
        { class: "crumbs" },
        h("a", { href: hrefOf("services") }, "Services"),
        " / ",
        h(
          "a",
          { href: hrefOf("services", { namespace: name.slice(0, slash) }) },
          name.slice(0, slash),
        ),
        " /",
      ),
      h("h1", { class: "wrap" }, name.slice(slash + 1)),
    ),
    isGone
      ? h(Gone, { name, wasThere: data !== null })
      : error instanceof RefusedError && error.status !== 503
      ? h(Problem, null, error.message)
      : null,
    isGone || data === null || data.unserved.length === 0 ? null : h(Unserved, { unserved: data.unserved }),
    isGone
      ? null
      : data === null
      ? (error === null ? h(Loading, { what: "the Service" }) : null)
      : data.ports.map((/** @type {PortDocument} */ port, /** @type {number} */ index) =>
        h(Port, {
          key: `${port.family} ${port.name} ${port.port} ${port.protocol}`,
          name,
          port,
          wanted: data.wanted[index] ?? null,
          index,
        })
      ),
  );
}

/** @param {{ unserved: ServiceDocument["unserved"] }} props */
function Unserved({ unserved }) {
  const shown = unserved.slice(0, SHOWN);
  const hidden = unserved.length - shown.length;
  return h(
    Problem,
    null,
    h("strong", null, "Not served:"),
    h(
      "ul",
      { class: "lines" },
      shown.map(({ destination, reason }, index) =>
        h("li", { key: index }, h(Mono, null, destination), `: ${reason}`)
      ),
    ),
    hidden > 0 ? `and ${count(hidden)} more` : null,
  );
}

/** @param {{ name: string, wasThere: boolean }} props */
function Gone({ name, wasThere }) {
  return h(
    Empty,
    { title: wasThere ? "This Service is gone" : "There is no such Service here" },
    h("p", null, h(Mono, null, name), " has no cluster IP on this node."),
    h("p", null, h("a", { href: hrefOf("services") }, "All Services")),
  );
}

/** @param {{ name: string, port: PortDocument, wanted: readonly WantedPart[] | null, index: number }} props */
function Port({ name, port, wanted, index }) {
  const { family, protocol, endpoints, refusal, topology, notes } = port;
  const title = `${port.name === "" ? "" : `${port.name} · `}${port.port}/${protocol} · ${family}`;
  const target = family === "IPv6" ? `[${port.clusterIP}]:${port.port}` : `${port.clusterIP}:${port.port}`;
  const to = protocol === "TCP" ? target : `${target}/${protocol.toLowerCase()}`;
  return h(
    Section,
    {
      id: `port-${index}`,
      title,
      note: h("a", { href: hrefOf("path", { from: "world", to }) }, "Path of a packet to it"),
    },
    refusal === null ? null : h(Problem, null, h("strong", null, "The kernel refuses its rules: "), refusal),
    h(Facts, {
      facts: [
        ["Cluster IP", h(Mono, null, port.clusterIP)],
        ["External IPs", port.externalIPs.join(", ")],
        ["Load-balancer IPs", port.loadBalancerIPs.join(", ")],
        ["Source ranges", port.sourceRanges.join(", ")],
        ["Node port", port.nodePort === 0 ? "" : String(port.nodePort)],
        ["Health-check node port", port.healthCheckNodePort === 0 ? "" : String(port.healthCheckNodePort)],
        ["Internal policy", port.internalTrafficPolicy],
        ["External policy", port.externalTrafficPolicy],
        [
          "Affinity",
          port.affinitySeconds === 0 ? "" : `clients stay for ${duration(port.affinitySeconds * 1000)}`,
        ],
        ["Topology hints", topology],
      ],
    }),
    notes.length === 0 ? null : h("p", { class: "note after-facts" }, `Topology: ${notes.join("; ")}`),
    h(Endpoints, { name, endpoints }),
    h(Wanted, { wanted, count: endpoints.length, isRefused: refusal !== null }),
  );
}

/** @param {{ name: string, endpoints: readonly EndpointDocument[] }} props */
function Endpoints({ endpoints }) {
  const [isWhole, setWhole] = useState(false);
  if (endpoints.length === 0) {
    return h(Empty, { title: "No endpoints" }, h("p", null, "Packets to it are refused on this node."));
  }
  const hasLocal = endpoints.some(({ local }) => local !== null);
  const hasCluster = endpoints.some(({ cluster }) => cluster !== null);
  const shown = isWhole ? endpoints : endpoints.slice(0, SHOWN);
  return h(
    "div",
    null,
    h("h3", null, counted(endpoints.length, "endpoint")),
    h(Table, {
      label: "Endpoints",
      head: [
        "Address",
        "State",
        ...(hasCluster ? ["Policy Cluster"] : []),
        ...(hasLocal ? ["Policy Local"] : []),
      ],
      keys: shown.map(({ address }) => address),
      rows: shown.map((endpoint) => [
        h(Mono, null, endpoint.address),
        `${stateOf(endpoint)}, on ${endpoint.onThisNode ? "this" : "another"} node`,
        ...(hasCluster ? [verdictOf(endpoint.cluster)] : []),
        ...(hasLocal ? [verdictOf(endpoint.local)] : []),
      ]),
    }),
    shown.length === endpoints.length ? null : h("button", {
      type: "button",
      class: "more",
      onClick: () => setWhole(true),
    }, `Show all ${count(endpoints.length)}`),
  );
}

/** @param {EndpointDocument} endpoint */
function stateOf({ ready, serving, terminating }) {
  if (terminating) return serving ? "terminating, serving" : "terminating";
  return ready ? "ready" : "not ready";
}

/** @param {EndpointDocument["cluster"]} verdict */
function verdictOf(verdict) {
  if (verdict === null) return "–";
  const reason = verdict.reason === "ready" ? null : h("small", { class: "wrap" }, verdict.reason);
  return h(
    "span",
    { class: "verdict" },
    h(Badge, { tone: verdict.used ? "good" : "plain" }, verdict.used ? "used" : "not used"),
    reason,
  );
}

/** @param {{ wanted: readonly WantedPart[] | null, count: number, isRefused: boolean }} props */
function Wanted({ wanted, count: endpoints, isRefused }) {
  if (wanted === null) {
    return h(
      "p",
      { class: "note" },
      isRefused
        ? "There are no rules for it."
        : `Rules for ${
          counted(endpoints, "endpoint")
        } are too many for this page: kproxy service get shows them.`,
    );
  }
  return h(
    "details",
    { class: "wanted" },
    h(
      "summary",
      null,
      `${counted(wanted.length, "rule or element", "rules and elements")} that kproxy wants for it`,
    ),
    h(
      "p",
      { class: "note" },
      "As kproxy makes them; what the kernel holds was not read. ",
      h("code", null, "kproxy check"),
      " compares both.",
    ),
    h(Table, {
      label: "Rules and elements",
      head: ["Place", "Text"],
      rows: wanted.map((
        { place, text },
      ) => [h("span", { class: "place" }, place), h("code", { class: "rule" }, text)]),
    }),
  );
}
