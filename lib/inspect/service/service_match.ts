/**
 * Which Service a destination belongs to.
 *
 * @module
 */
import type { Protocol } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";

/** Which of a Service's addresses a packet is sent to. */
export type DestinationKind =
  | "cluster IP"
  | "external IP"
  | "load-balancer IP"
  | "node port"
  | "health-check node port";

/** A ServicePort, and by which address it was reached. */
export interface ServiceMatch {
  readonly port: ServicePort;
  readonly kind: DestinationKind;
}

/** `http 80/TCP`. */
export function portText({ portName, port, protocol }: ServicePort): string {
  return `${portName === "" ? "" : `${portName} `}${port}/${protocol}`;
}

/** Addresses that it is served at, beside those of the node. */
export function addressesOf({ clusterIP, externalIPs, loadBalancerVIPs }: ServicePort): readonly string[] {
  return [clusterIP, ...externalIPs, ...loadBalancerVIPs];
}

export interface Destination {
  /** Canonical. */
  readonly ip: string;
  readonly port: number;
  /** Null: not one of those that Services have. */
  readonly protocol: Protocol | null;
  /** True: the address is the node's own. */
  readonly isNodeAddress: boolean;
}

/** What is to be said of a destination that is no port of any Service. */
export interface ServiceSearch {
  readonly match: ServiceMatch | null;
  /** Ports whose Service has the address, if none matches. */
  readonly sameAddress: readonly ServicePort[];
}

export function findService({ services }: ProxyState, destination: Destination): ServiceSearch {
  const { ip, port, protocol, isNodeAddress } = destination;
  const sameAddress: ServicePort[] = [];
  let byNodePort: ServiceMatch | null = null;
  for (const ports of services.values()) {
    for (const one of ports) {
      const kind = addressKind(one, ip);
      if (kind !== null) {
        if (one.port === port && one.protocol === protocol) {
          return { match: { port: one, kind }, sameAddress: [] };
        }
        sameAddress.push(one);
      }
      if (!isNodeAddress) continue;
      if (one.nodePort === port && port !== 0 && one.protocol === protocol) {
        byNodePort = { port: one, kind: "node port" };
      } else if (one.healthCheckNodePort === port && port !== 0 && protocol === "TCP") {
        byNodePort ??= { port: one, kind: "health-check node port" };
      }
    }
  }
  return { match: byNodePort, sameAddress };
}

function addressKind(port: ServicePort, ip: string): DestinationKind | null {
  if (port.clusterIP === ip) return "cluster IP";
  if (port.loadBalancerVIPs.includes(ip)) return "load-balancer IP";
  return port.externalIPs.includes(ip) ? "external IP" : null;
}
