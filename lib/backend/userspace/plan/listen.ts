/**
 * Plans which Services are opened on which addresses of the node itself, where no rule leads to them.
 *
 * @module
 */
import { categorizeEndpoints } from "../../../model/endpoint.ts";
import { type Cidr, hostCidr, joinHostPort, parseCidr, parseIp } from "../../../model/ip.ts";
import type { Changed, ProxyState, ServicePort } from "../../../model/state.ts";
import { atOnce, planServicesInSteps } from "../../plan_services.ts";
import { type Portal, portalOf, type ServicePortals, unservedText, type UserspacePlan } from "./plan.ts";

/** A portal that has an address and port of the Service's own, which are in its id. */
export interface Opening extends Portal {
  readonly ip: string;
  readonly port: number;
}

/** Where Services may listen: an address as the network of it alone, or a network; null if the text is neither. */
export function parseListenRange(text: string): Cidr | null {
  const ip = parseIp(text);
  return ip === null ? parseCidr(text) : hostCidr(ip);
}

/** The address of the network that has the Service's last bits: 10.96.0.10 in 127.0.0.0/8 is 127.96.0.10. */
export function listenIp(range: Cidr, clusterIP: string): string {
  const service = parseIp(clusterIP);
  if (service === null || service.family !== range.family) {
    throw new RangeError(`${clusterIP} is no address of ${range.family}`);
  }
  const bytes = range.bytes.map((byte, at) => {
    const fixed = Math.min(8, Math.max(0, range.prefixLength - 8 * at));
    return byte | service.bytes[at]! & (0xff >> fixed);
  });
  return range.family === "IPv4" ? bytes.join(".") : parseIp(groups(bytes))!.text;
}

function groups(bytes: readonly number[]): string {
  const words = Array.from({ length: 8 }, (_, at) => bytes[2 * at]! << 8 | bytes[2 * at + 1]!);
  return words.map((word) => word.toString(16)).join(":");
}

/**
 * Portals of the changed Services (all of them for `"all"`), by name, and no rules. Traffic policies do not
 * apply: the client is this node, which need not be one of the cluster.
 */
export function planListening(state: ProxyState, changed: Changed, range: Cidr): UserspacePlan<Opening> {
  const steps = planServicesInSteps(
    state,
    changed,
    range.family,
    (ports, endpoints): ServicePortals<Opening> => {
      const isServed = ({ protocol }: ServicePort): boolean => protocol !== "SCTP";
      return {
        portals: ports.filter(isServed).map((port) => {
          const anywhere = { ...port, internalPolicyLocal: false, externalPolicyLocal: false };
          const { cluster } = categorizeEndpoints(endpoints?.get(port.key) ?? [], anywhere, state.node);
          const place = { ip: listenIp(range, port.clusterIP), port: port.port };
          const portal = portalOf(port, "cluster", cluster);
          return { ...portal, ...place, id: `${portal.id} at ${joinHostPort(place.ip, place.port)}` };
        }),
        rules: [],
        unserved: ports.filter((port) => !isServed(port)).map(unservedText),
      };
    },
  );
  return atOnce(steps);
}
