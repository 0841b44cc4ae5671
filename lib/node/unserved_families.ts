/**
 * IP families that a node cannot serve although the cluster counts on them.
 *
 * @module
 */
import type { RefusedFamily } from "../kernel/ip_families.ts";
import { parseCidr, parseIp } from "../model/ip.ts";
import type { IpFamily, NodeObject, Service } from "../model/objects.ts";
import { familyNotServedEvent, type ProxyEvent } from "../observe/events.ts";
import type { Logger } from "../observe/log.ts";

/** An address or pod CIDR of the family that a Node has, in words; null if there is none. */
export function nodeUse(node: NodeObject, family: IpFamily): string | null {
  const address = node.addresses.find((entry) => parseIp(entry.address)?.family === family);
  if (address !== undefined) return `Node ${node.name} has the address ${address.address}`;
  const network = node.podCIDRs.find((cidr) => parseCidr(cidr)?.family === family);
  return network === undefined ? null : `Node ${node.name} has the pod CIDR ${network}`;
}

/** A cluster IP of the family that a Service has, in words; null if there is none. */
function serviceUse(service: Service, family: IpFamily): string | null {
  const ip = service.clusterIPs.find((text) => parseIp(text)?.family === family);
  return ip === undefined ? null : `Service ${service.namespace}/${service.name} has the cluster IP ${ip}`;
}

export interface UnservedFamiliesOptions {
  readonly refused: readonly RefusedFamily[];
  readonly nodeName: string;
  readonly log: Logger;
  readonly onEvent: (event: ProxyEvent) => void;
  /** Receives each unserved family that something in the cluster uses, and what. */
  readonly onUse: (family: IpFamily, use: string) => void;
}

/** Finds out which unserved families the cluster uses. */
export class UnservedFamilies {
  readonly #options: UnservedFamiliesOptions;
  /** Unserved families that nothing has used so far. */
  readonly #unused: Map<IpFamily, RefusedFamily>;

  constructor(options: UnservedFamiliesOptions) {
    this.#options = options;
    this.#unused = new Map(options.refused.map((refused) => [refused.family, refused]));
    for (const { family, hasRules } of options.refused) {
      if (hasRules) this.#report(family, "rules of an earlier start are there, and no proxy updates them");
    }
  }

  takeNode(node: NodeObject): void {
    for (const family of this.#unused.keys()) this.#report(family, nodeUse(node, family));
  }

  takeService(service: Service): void {
    for (const family of this.#unused.keys()) this.#report(family, serviceUse(service, family));
  }

  #report(family: IpFamily, use: string | null): void {
    const refused = this.#unused.get(family);
    if (use === null || refused === undefined) return;
    this.#unused.delete(family);
    const { nodeName, log, onEvent, onUse } = this.#options;
    const { reason } = refused;
    log.warn("The cluster counts on an IP family that this node cannot serve", { family, use, reason });
    onEvent(familyNotServedEvent(nodeName, { family, use, reason }));
    onUse(family, use);
  }
}
