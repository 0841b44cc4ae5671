/**
 * Which addresses a Service may have beside its cluster IPs. Each user who may write a Service may name any address in it, and kube-proxy
 * then leads all traffic of the node to that address to the Service's endpoints (CVE-2020-8554).
 *
 * @module
 */
import { type Cidr, cidrContains, type Ip, parseCidr, parseIp, specialUse } from "./ip.ts";

/** `kproxy.externalIPPolicy` of the configuration. Null: not given; nothing given: everything is served, as by kube-proxy. */
export interface ExternalIpPolicy {
  /** Networks from which `spec.externalIPs` are served. */
  readonly externalIPs: readonly string[] | null;
  /** Networks from which IPs of `status.loadBalancer.ingress` are served. */
  readonly loadBalancerIPs: readonly string[] | null;
  /** Whether both may include the node's own addresses; not given: only if neither of the others is given. */
  readonly nodeAddresses: boolean | null;
}

/** kube-proxy's policy: every address is served. */
export const EVERY_ADDRESS: ExternalIpPolicy = {
  externalIPs: null,
  loadBalancerIPs: null,
  nodeAddresses: null,
};

/** Field of the policy that an address is checked against. */
export type PolicyField = "externalIPs" | "loadBalancerIPs";

const SECTION = "kproxy.externalIPPolicy";

/** Decides which addresses Services may have on one node. */
export class AddressPolicy {
  /** True if a Service must not have the node's own addresses. */
  readonly guardsNode: boolean;
  readonly #networks: Readonly<Record<PolicyField, readonly Cidr[] | null>>;
  #nodeAddresses: ReadonlySet<string> = new Set();

  /** @param policy its networks are CIDRs */
  constructor({ externalIPs, loadBalancerIPs, nodeAddresses }: ExternalIpPolicy = EVERY_ADDRESS) {
    this.#networks = { externalIPs: networksOf(externalIPs), loadBalancerIPs: networksOf(loadBalancerIPs) };
    this.guardsNode = !(nodeAddresses ?? (externalIPs === null && loadBalancerIPs === null));
  }

  /**
   * Sets the node's own addresses; texts that are no IP addresses are skipped.
   *
   * @returns true if the addresses of Services must be checked again
   */
  setNodeAddresses(texts: readonly string[]): boolean {
    const addresses = new Set(texts.flatMap((text) => parseIp(text)?.text ?? []));
    const isSame = addresses.symmetricDifference(this.#nodeAddresses).size === 0;
    this.#nodeAddresses = addresses;
    return this.guardsNode && !isSame;
  }

  /** Reason why no Service may have the address, e.g. `it is a loopback address`; null if one may. */
  refusal(ip: Ip, field: PolicyField): string | null {
    // Such an address would take the node's own traffic, or its neighbours'.
    const special = specialUse(ip);
    if (special !== null) return `it is ${special}`;
    if (this.guardsNode && this.#nodeAddresses.has(ip.text)) {
      return `it is the node's own address, and ${SECTION}.nodeAddresses is not true`;
    }
    const networks = this.#networks[field];
    if (networks === null || networks.some((cidr) => cidrContains(cidr, ip))) return null;
    return `it is not in ${SECTION}.${field}`;
  }
}

function networksOf(texts: readonly string[] | null): readonly Cidr[] | null {
  return texts?.flatMap((text) => parseCidr(text) ?? []) ?? null;
}
