/**
 * View of one Service: its ports, what its endpoints are used for and why not, and the rules it should have.
 *
 * @module
 */
import { useState } from "preact/hooks";
import { usePolled } from "./api.js";
import { count, counted, duration } from "./format.js";
import { badge, empty, facts, html, lines, loading, mono, problem, section, table } from "./parts.js";
import { hrefOf } from "./route.js";

/** @typedef {import("../../../inspect/page/page_questions.ts").ServiceDocument} ServiceDocument */
/** @typedef {ServiceDocument["ports"][number]} PortDocument */
/** @typedef {PortDocument["endpoints"][number]} EndpointDocument */
/** @typedef {ServiceDocument["wanted"][number]} Wanted */

const PERIOD_MS = 3_000;
/** Number of endpoints that are shown at first. */
const SHOWN = 100;

/** @param {{ name: string }} props */
export function ServiceDetail({ name }) {
  /** @type {import("./api.js").Polled<ServiceDocument>} */
  const { data, error } = usePolled(`service?name=${encodeURIComponent(name)}`, PERIOD_MS);
  const namespace = name.slice(0, name.indexOf("/"));
  const isGone = error?.status === 404;
  return html`
    <div class="stack">
      <div class="heading">
        <p class="crumbs">
          <a href=${hrefOf("services")}>Services</a>${" / "}
          <a href=${hrefOf("services", { namespace })}>${namespace}</a>${" /"}
        </p>
        <h1 class="wrap">${name.slice(namespace.length + 1)}</h1>
      </div>
      ${isGone
        ? gone(name, data !== null)
        : error !== null && error.status !== 0 && error.status !== 503
        ? problem(error.message)
        : data === null && error === null && loading("the Service")}
      ${!isGone && data !== null && data.unserved.length > 0 && unserved(data.unserved)}
      ${!isGone && data?.ports.map((port, index) => portSection(port, data.wanted[index] ?? null))}
    </div>
  `;
}

/** @param {ServiceDocument["unserved"]} all */
function unserved(all) {
  const shown = all.slice(0, SHOWN);
  return problem(
    html`<strong>Not served:</strong>`,
    lines(shown.map(({ destination, reason }) => html`${mono(destination)}: ${reason}`)),
    all.length > SHOWN && `and ${count(all.length - SHOWN)} more`,
  );
}

/**
 * @param {string} name
 * @param {boolean} wasThere
 */
function gone(name, wasThere) {
  return empty(
    wasThere ? "This Service is gone" : "There is no such Service here",
    html`
      <p>${mono(name)} has no cluster IP on this node.</p>
      <p><a href=${hrefOf("services")}>All Services</a></p>
    `,
  );
}

/**
 * @param {PortDocument} port
 * @param {Wanted} wanted
 */
function portSection(port, wanted) {
  const { family, name, protocol, clusterIP, endpoints, refusal, notes, affinitySeconds } = port;
  const title = `${name === "" ? "" : `${name} · `}${port.port}/${protocol} · ${family}`;
  const target = `${family === "IPv6" ? `[${clusterIP}]` : clusterIP}:${port.port}`;
  const to = protocol === "TCP" ? target : `${target}/${protocol.toLowerCase()}`;
  const path = html`<a href=${hrefOf("path", { from: "world", to })}>Path of a packet to it</a>`;
  return section(
    { id: `port-${family}-${protocol}-${port.port}`, title, note: path },
    refusal !== null && problem(html`<strong>The kernel refuses its rules: </strong>`, refusal),
    facts([
      ["Cluster IP", mono(clusterIP)],
      ["External IPs", port.externalIPs.join(", ")],
      ["Load-balancer IPs", port.loadBalancerIPs.join(", ")],
      ["Source ranges", port.sourceRanges.join(", ")],
      ["Node port", port.nodePort === 0 ? "" : port.nodePort],
      ["Health-check node port", port.healthCheckNodePort === 0 ? "" : port.healthCheckNodePort],
      ["Internal policy", port.internalTrafficPolicy],
      ["External policy", port.externalTrafficPolicy],
      ["Affinity", affinitySeconds === 0 ? "" : `clients stay for ${duration(affinitySeconds * 1000)}`],
      ["Topology hints", port.topology],
    ]),
    notes.length > 0 && html`<p class="note after-facts">Topology: ${notes.join("; ")}</p>`,
    html`<${Endpoints} endpoints=${endpoints} />`,
    wanted === null ? unmade(endpoints.length, refusal !== null) : wantedRules(wanted),
  );
}

/** @param {{ endpoints: readonly EndpointDocument[] }} props */
function Endpoints({ endpoints }) {
  const [isWhole, setWhole] = useState(false);
  if (endpoints.length === 0) {
    return empty("No endpoints", html`<p>Packets to it are refused on this node.</p>`);
  }
  const hasLocal = endpoints.some(({ local }) => local !== null);
  const hasCluster = endpoints.some(({ cluster }) => cluster !== null);
  const shown = isWhole ? endpoints : endpoints.slice(0, SHOWN);
  return html`
    <div>
      <h3>${counted(endpoints.length, "endpoint")}</h3>
      ${table(
        "Endpoints",
        ["Address", "State", ...hasCluster ? ["Policy Cluster"] : [], ...hasLocal ? ["Policy Local"] : []],
        shown.map((endpoint) => [
          mono(endpoint.address),
          `${stateOf(endpoint)}, on ${endpoint.onThisNode ? "this" : "another"} node`,
          ...hasCluster ? [verdictOf(endpoint.cluster)] : [],
          ...hasLocal ? [verdictOf(endpoint.local)] : [],
        ]),
        shown.map(({ address }) => address),
      )}
      ${shown.length < endpoints.length && html`
        <button type="button" class="more" onClick=${() => setWhole(true)}>Show all ${count(
          endpoints.length,
        )}</button>
      `}
    </div>
  `;
}

/** @param {EndpointDocument} endpoint */
function stateOf({ ready, serving, terminating }) {
  if (terminating) return serving ? "terminating, serving" : "terminating";
  return ready ? "ready" : "not ready";
}

/** @param {EndpointDocument["cluster"]} verdict */
function verdictOf(verdict) {
  if (verdict === null) return "–";
  const { used, reason } = verdict;
  return html`
    <span class="verdict">
      ${badge(used ? "good" : "plain", used ? "used" : "not used")}
      ${reason !== "ready" && html`<small class="wrap">${reason}</small>`}
    </span>
  `;
}

/**
 * @param {number} endpoints
 * @param {boolean} isRefused
 */
function unmade(endpoints, isRefused) {
  const words = isRefused
    ? "There are no rules for it."
    : `Rules for ${
      counted(endpoints, "endpoint")
    } are too many for this page: kproxy service get shows them.`;
  return html`<p class="note">${words}</p>`;
}

/** @param {NonNullable<Wanted>} wanted */
function wantedRules(wanted) {
  const rows = wanted.map(({ place, text }) => [
    html`<span class="place">${place}</span>`,
    html`<code class="rule">${text}</code>`,
  ]);
  return html`
    <details class="wanted">
      <summary>${counted(
        wanted.length,
        "rule or element",
        "rules and elements",
      )} that kproxy wants for it</summary>
      <p class="note">As kproxy makes them; what the kernel holds was not read. <code>kproxy check</code> compares both.</p>
      ${table("Rules and elements", ["Place", "Text"], rows)}
    </details>
  `;
}
