/**
 * Services as rows of the status page's list.
 *
 * @module
 */
import { categorizeEndpoints } from "../../model/endpoint.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { ServiceKind, ServiceRow } from "./page_document.ts";

/** Data that rows are made from. */
export interface RowFacts {
  /** States of all families. */
  readonly states: readonly ProxyState[];
  readonly quarantined: ReadonlyMap<NamespacedName, string>;
}

/** Names of all Services that have a port in a family. */
export function serviceNames(states: readonly ProxyState[]): readonly NamespacedName[] {
  const [first, ...others] = states;
  if (first === undefined) return [];
  const names = new Set(first.services.keys());
  for (const { services } of others) for (const name of services.keys()) names.add(name);
  return [...names];
}

/** The row of one Service; null: there is no such Service, or none that has an address. */
export function serviceRow(name: NamespacedName, { states, quarantined }: RowFacts): ServiceRow | null {
  const addresses = new Set<string>();
  const others = new Set<string>();
  const texts = new Set<string>();
  let kind: ServiceKind = "cluster IP";
  const counts: PortCounts[] = [];
  for (const state of states) {
    for (const port of state.services.get(name) ?? []) {
      addresses.add(port.clusterIP);
      for (const ip of [...port.externalIPs, ...port.loadBalancerVIPs]) others.add(ip);
      texts.add(portText(port));
      kind = farther(kind, kindOf(port));
      const endpoints = state.endpoints.get(name)?.get(port.key) ?? [];
      const { allReachable } = categorizeEndpoints(endpoints, port, state.node);
      counts.push({
        family: state.family,
        port: portText(port),
        used: allReachable.length,
        total: endpoints.length,
      });
    }
  }
  const [best] = counts.toSorted((one, other) => other.used - one.used || other.total - one.total);
  if (best === undefined) return null;
  const { used, total } = best;
  const problem = quarantined.has(name) ? "refused by the kernel" : lackOf(counts);
  return [name, kind, [...addresses, ...others], [...texts].join(", "), used, total, problem];
}

/** How many endpoints one port has in one family. */
interface PortCounts {
  readonly family: IpFamily;
  readonly port: string;
  readonly used: number;
  readonly total: number;
}

/** Problem of a Service without endpoints, as a whole, in a family or at a port; `""` if there is none. */
function lackOf(counts: readonly PortCounts[]): string {
  const without = counts.filter(({ used }) => used === 0);
  const [first] = without;
  if (first === undefined) return "";
  const what = without.every(({ total }) => total === 0) ? "no endpoints" : "no usable endpoints";
  if (without.length === counts.length) return what;
  const ofFamily = counts.filter(({ family }) => family === first.family);
  const isFamily = without.length === ofFamily.length &&
    without.every(({ family }) => family === first.family);
  const place = isFamily ? first.family : [...new Set(without.map(({ port }) => port))].join(", ");
  return `${place}: ${what}`;
}

const KINDS: readonly ServiceKind[] = ["cluster IP", "external IP", "node port", "load balancer"];

function farther(one: ServiceKind, other: ServiceKind): ServiceKind {
  return KINDS.indexOf(other) > KINDS.indexOf(one) ? other : one;
}

function kindOf(port: ServicePort): ServiceKind {
  if (port.loadBalancerVIPs.length > 0) return "load balancer";
  if (port.nodePort !== 0) return "node port";
  return port.externalIPs.length > 0 ? "external IP" : "cluster IP";
}

function portText({ portName, port, protocol, nodePort }: ServicePort): string {
  const name = portName === "" ? "" : `${portName} `;
  return `${name}${port}/${protocol}${nodePort === 0 ? "" : ` :${nodePort}`}`;
}

const PIECE_LENGTH = 16 * 1024;

/** The JSON of a document with all rows, in pieces of about 16 kB, each made when it is asked for. */
export function* rowPieces(
  names: readonly NamespacedName[],
  facts: RowFacts,
  head: Readonly<Record<string, unknown>>,
): Generator<Uint8Array<ArrayBuffer>> {
  const encoder = new TextEncoder();
  let text = `${JSON.stringify(head).slice(0, -1)},"rows":[`;
  let separator = "";
  for (const name of names) {
    const row = serviceRow(name, facts);
    // The Service was deleted since the names were collected.
    if (row === null) continue;
    text += separator + JSON.stringify(row);
    separator = ",\n";
    if (text.length < PIECE_LENGTH) continue;
    yield encoder.encode(text);
    text = "";
  }
  yield encoder.encode(`${text}]}\n`);
}
