/**
 * All Services in rows.
 *
 * @module
 */
import type { UnservedDestination } from "../../model/destination_claims.ts";
import { categorizeEndpoints } from "../../model/endpoint.ts";
import { joinHostPort } from "../../model/ip.ts";
import { compareBytes } from "../../model/names.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import { usesLocalEndpoints } from "../../model/service_port.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import type { LiveProblem } from "../live/live.ts";
import { heldPortTexts, isHeld } from "./held_service.ts";
import { portText } from "./service_match.ts";

/** One ServicePort. */
export interface ServiceRow {
  readonly family: IpFamily;
  readonly service: NamespacedName;
  /** `http 80/TCP`. */
  readonly port: string;
  /** Cluster IP and port. */
  readonly address: string;
  /** 0: none. */
  readonly nodePort: number;
  readonly endpoints: number;
  /** How many of them get traffic on this node. */
  readonly used: number;
  /** Whether the kernel holds anything for it; null: nobody has looked. */
  readonly isHeld: boolean | null;
  readonly note: string;
}

/** The rows of one family, by name. */
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

/** The order of rows, whatever their family. */
export function byName(one: ServiceRow, other: ServiceRow): number {
  return compareBytes(one.service, other.service) || compareBytes(one.family, other.family);
}

function localTraffic({ internalPolicyLocal, externalPolicyLocal }: ServicePort): string {
  if (internalPolicyLocal && externalPolicyLocal) return "any traffic";
  return internalPolicyLocal ? "traffic from the cluster" : "traffic from outside";
}

/** `{"apiVersion": "kproxy/v1", "kind": "ServiceList"}`. */
export function listDocument(
  rows: readonly ServiceRow[],
  unserved: readonly UnservedDestination[],
  problems: readonly LiveProblem[],
): unknown {
  return { apiVersion: API_VERSION, kind: "ServiceList", items: rows, unserved, problems };
}
