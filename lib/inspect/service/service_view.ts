/**
 * All Services in rows, and one Service in full: its ports, how its endpoints are used, and its live rules.
 *
 * @module
 */
import type { UnservedDestination } from "../../model/destination_claims.ts";
import { categorizeEndpoints } from "../../model/endpoint.ts";
import { type EndpointUses, endpointUses } from "../../model/endpoint_reasons.ts";
import { joinHostPort } from "../../model/ip.ts";
import { compareBytes } from "../../model/names.ts";
import type { ApiObject, IpFamily, NamespacedName } from "../../model/objects.ts";
import { usesLocalEndpoints } from "../../model/service_port.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import { alignColumns } from "../../text/columns.ts";
import { counted } from "../../text/words.ts";
import type { LiveProblem } from "../live/live.ts";
import { countedTraffic, type HeldPart, heldParts, heldPortTexts, isHeld } from "./held_service.ts";
import { endpointLack, portText, unplacedNotes } from "./service_match.ts";
import { endpointDocument, endpointLines } from "../trace/trace_report.ts";

export interface ServiceView {
  readonly family: IpFamily;
  readonly port: ServicePort;
  readonly uses: EndpointUses;
  /** Null: the kernel was not read. */
  readonly parts: readonly HeldPart[] | null;
  /** Why the kernel has refused its rules; null: not refused, or unknown. */
  readonly refusal: string | null;
  /** Why it has no endpoints; null: it has some, or the reason is unknown. */
  readonly lack: string | null;
  /** Notes on its endpoints, one sentence each. */
  readonly notes: readonly string[];
}

export interface ServiceQuestion {
  readonly state: ProxyState;
  readonly name: NamespacedName;
  readonly live: RulesetSnapshot | null;
  readonly nodeAddresses: readonly string[];
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** The Service with its EndpointSlices; none: unknown. */
  readonly objects: readonly ApiObject[];
}

/** A view of each port; empty: there is no such Service in this family. */
export function serviceView(question: ServiceQuestion): readonly ServiceView[] {
  const { state, name, live, nodeAddresses, quarantined, objects } = question;
  return (state.services.get(name) ?? []).map((port) => {
    const endpoints = state.endpoints.get(name)?.get(port.key) ?? [];
    return {
      family: state.family,
      port,
      uses: endpointUses(endpoints, port, state.node),
      parts: live === null ? null : heldParts(live, port, { nodeAddresses, endpoints: endpoints.length }),
      refusal: quarantined?.get(name) ?? null,
      lack: endpoints.length > 0 || objects.length === 0 ? null : endpointLack(port, state.family, objects),
      notes: unplacedNotes(port, objects),
    };
  });
}

export function serviceLines(views: readonly ServiceView[]): string[] {
  return views.flatMap((view, index) => [...(index === 0 ? [] : [""]), ...portLines(view)]);
}

function portLines({ port, uses, parts, refusal, lack, notes }: ServiceView): string[] {
  const facts: (readonly [string, string])[] = [
    ["cluster IP", port.clusterIP],
    ["external IPs", port.externalIPs.join(", ")],
    ["load-balancer IPs", port.loadBalancerVIPs.join(", ")],
    ["source ranges", port.loadBalancerSourceRanges.join(", ")],
    ["node port", port.nodePort === 0 ? "" : String(port.nodePort)],
    ["health-check node port", port.healthCheckNodePort === 0 ? "" : String(port.healthCheckNodePort)],
    [
      "policies",
      `internal ${policy(port.internalPolicyLocal)}, external ${policy(port.externalPolicyLocal)}`,
    ],
    ["affinity", port.stickyMaxAgeSeconds === 0 ? "" : `clients stay for ${port.stickyMaxAgeSeconds} s`],
    ["topology hints", uses.topology === "" ? uses.notes.join("; ") : uses.topology],
    ["refused by the kernel", refusal ?? ""],
  ];
  const both = port.internalPolicyLocal || port.externalPolicyLocal;
  return [
    `${port.text} (${port.protocol} ${port.port})`,
    ...alignColumns(facts.filter(([, value]) => value !== "").map(([label, value]) => [`  ${label}`, value])),
    ...(uses.endpoints.length === 0
      ? [`  no endpoints${lack === null ? "" : `: ${lack}`}`]
      : ["  endpoints"]),
    ...endpointLines(uses, "cluster").map((line) => `  ${line}`),
    ...(both && uses.endpoints.length > 0
      ? ["  endpoints for policy Local", ...endpointLines(uses, "local").map((line) => `  ${line}`)]
      : []),
    ...notes.map((note) => `  ${note}`),
    ...(parts === null ? [] : heldLines(parts)),
  ];
}

function policy(isLocal: boolean): string {
  return isLocal ? "Local" : "Cluster";
}

function heldLines(parts: readonly HeldPart[]): string[] {
  if (parts.length === 0) return ["  in the kernel: nothing"];
  const traffic = countedTraffic(parts);
  const total = traffic === null ? "" : `, ${counted(traffic.packets, "packet")} counted`;
  return [
    `  in the kernel${total}`,
    ...alignColumns(parts.map(({ place, text, counted: held }) => [
      `    ${place}`,
      held === null ? "" : String(held.packets),
      text,
    ])),
  ];
}

/** Document of `kind: "Service"`, `apiVersion: "kproxy/v1"`. */
export function serviceDocument(
  name: NamespacedName,
  views: readonly ServiceView[],
  unserved: readonly UnservedDestination[],
  problems: readonly LiveProblem[] = [],
) {
  return {
    apiVersion: API_VERSION,
    kind: "Service",
    name,
    ports: views.map(({ family, port, uses, parts, refusal, lack, notes }) => ({
      family,
      name: port.portName,
      port: port.port,
      protocol: port.protocol,
      clusterIP: port.clusterIP,
      externalIPs: port.externalIPs,
      loadBalancerIPs: port.loadBalancerVIPs,
      sourceRanges: port.loadBalancerSourceRanges,
      nodePort: port.nodePort,
      healthCheckNodePort: port.healthCheckNodePort,
      internalTrafficPolicy: policy(port.internalPolicyLocal),
      externalTrafficPolicy: policy(port.externalPolicyLocal),
      affinitySeconds: port.stickyMaxAgeSeconds,
      topology: uses.topology,
      notes: [...uses.notes, ...notes],
      lack,
      endpoints: uses.endpoints.map((use) => endpointDocument(use)),
      kernel: parts,
      counted: parts === null ? null : countedTraffic(parts),
      refusal,
    })),
    unserved: unserved.map(({ destination, reason }) => ({ destination, reason })),
    problems,
  };
}

export interface ServiceRow {
  readonly family: IpFamily;
  readonly service: NamespacedName;
  /** The port, e.g. `http 80/TCP`. */
  readonly port: string;
  readonly address: string;
  /** 0: no node port. */
  readonly nodePort: number;
  readonly endpoints: number;
  /** Number of endpoints that get traffic on this node. */
  readonly used: number;
  /** True if the kernel has rules for it; null: the kernel was not read. */
  readonly isHeld: boolean | null;
  readonly note: string;
}

/** Rows of one family, in order. */
export function listRows(
  state: ProxyState,
  live: RulesetSnapshot | null,
  quarantined: ReadonlyMap<NamespacedName, string> | null,
): readonly ServiceRow[] {
  const texts = live === null ? new Set<string>() : heldPortTexts(live);
  const rows: ServiceRow[] = [];
  for (const [service, ports] of state.services) {
    for (const port of ports) {
      const endpoints = state.endpoints.get(service)?.get(port.key) ?? [];
      const { allReachable, local } = categorizeEndpoints(endpoints, port, state.node);
      const why = quarantined?.get(service);
      rows.push({
        family: state.family,
        service,
        port: portText(port),
        address: joinHostPort(port.clusterIP, port.port),
        nodePort: port.nodePort,
        endpoints: endpoints.length,
        used: allReachable.length,
        isHeld: live === null ? null : isHeld(live, port, texts),
        note: why !== undefined
          ? "refused by the kernel"
          : endpoints.length === 0
          ? "no endpoints"
          : allReachable.length === 0
          ? "no usable endpoints"
          : usesLocalEndpoints(port) && local.length === 0
          ? `none on this node for ${localTraffic(port)} (policy Local)`
          : "",
      });
    }
  }
  return rows.sort(byName);
}

/** Order of rows: by Service, then family. */
export function byName(one: ServiceRow, other: ServiceRow): number {
  return compareBytes(one.service, other.service) || compareBytes(one.family, other.family);
}

function localTraffic({ internalPolicyLocal, externalPolicyLocal }: ServicePort): string {
  if (internalPolicyLocal && externalPolicyLocal) return "any traffic";
  return internalPolicyLocal ? "traffic from the cluster" : "traffic from outside";
}

/** Document of `kind: "ServiceList"`, `apiVersion: "kproxy/v1"`. */
export function listDocument(
  rows: readonly ServiceRow[],
  unserved: readonly UnservedDestination[],
  problems: readonly LiveProblem[],
): unknown {
  return { apiVersion: API_VERSION, kind: "ServiceList", items: rows, unserved, problems };
}
