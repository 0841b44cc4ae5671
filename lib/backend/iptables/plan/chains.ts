/**
 * Names of the chains, which are those of kube-proxy.
 *
 * @module
 */
import type { Endpoint, ServicePort } from "../../../model/state.ts";
import { base32Sha256 } from "../../../netfilter/chain_hash.ts";
import type { PerTable } from "../../../netfilter/iptables_jumps.ts";

/** Dispatch by service address; a chain of this name exists in nat and, with another content, in filter. */
export const SERVICES_CHAIN = "KUBE-SERVICES";
export const EXTERNAL_SERVICES_CHAIN = "KUBE-EXTERNAL-SERVICES";
/** Dispatch by node port in nat; health-check node ports in filter. */
export const NODE_PORTS_CHAIN = "KUBE-NODEPORTS";
export const POSTROUTING_CHAIN = "KUBE-POSTROUTING";
export const MARK_MASQ_CHAIN = "KUBE-MARK-MASQ";
export const FORWARD_CHAIN = "KUBE-FORWARD";
export const PROXY_FIREWALL_CHAIN = "KUBE-PROXY-FIREWALL";
/** Comment of the jumps to KUBE-PROXY-FIREWALL; IPVS mode, which shares that chain, writes another one. */
export const FIREWALL_JUMP_COMMENT = "kubernetes load balancer firewall";
/** Kubelet's chain: we fill it in IPv4 and jump to it in both families, but never delete it. */
export const KUBELET_FIREWALL_CHAIN = "KUBE-FIREWALL";
/** Exists in every table we use, nothing jumps to it: if it is gone, the table was flushed. */
export const CANARY_CHAIN = "KUBE-PROXY-CANARY";

/** Chains in which kubelets before 1.28 write, too; KUBE-FIREWALL is theirs. */
export const KUBELETS_CHAINS: ReadonlySet<string> = new Set([
  POSTROUTING_CHAIN,
  MARK_MASQ_CHAIN,
  FORWARD_CHAIN,
  KUBELET_FIREWALL_CHAIN,
]);

/** The chains in which several Services have rules. */
export const DISPATCH_CHAINS: PerTable<readonly string[]> = {
  filter: [SERVICES_CHAIN, EXTERNAL_SERVICES_CHAIN, NODE_PORTS_CHAIN, PROXY_FIREWALL_CHAIN],
  nat: [SERVICES_CHAIN, NODE_PORTS_CHAIN],
};

/**
 * Prefixes of the chains of Services, each before those it may jump to, which is the order in which leftovers can be
 * deleted in portions. (`KUBE-XLB-` was what kube-proxy before 1.24 called `KUBE-EXT-`.)
 */
export const SERVICE_CHAIN_PREFIXES: readonly string[] = [
  "KUBE-FW-",
  "KUBE-XLB-",
  "KUBE-EXT-",
  "KUBE-SVL-",
  "KUBE-SVC-",
  "KUBE-SEP-",
];

/** Chains of Services, callers before callees. */
export function serviceChainsInCallOrder(chains: readonly string[]): string[] {
  return SERVICE_CHAIN_PREFIXES.flatMap((prefix) => chains.filter((chain) => chain.startsWith(prefix)));
}

/** First 16 base32 digits (80 bits) of the SHA-256 of a text's UTF-8 form. */
export function chainHash(text: string): string {
  return base32Sha256(text, 16);
}

/** The names of one ServicePort's chains; node port, addresses and port number do not enter them. */
export interface ServiceChains {
  readonly cluster: string;
  readonly local: string;
  readonly external: string;
  readonly firewall: string;
}

export function serviceChains(servicePort: ServicePort): ServiceChains {
  const hash = chainHash(servicePort.text + servicePort.protocol.toLowerCase());
  return {
    cluster: "KUBE-SVC-" + hash,
    local: "KUBE-SVL-" + hash,
    external: "KUBE-EXT-" + hash,
    firewall: "KUBE-FW-" + hash,
  };
}

/** The name of the chain that DNATs to one endpoint of one ServicePort. */
export function endpointChain(servicePort: ServicePort, endpoint: Endpoint): string {
  return "KUBE-SEP-" + chainHash(servicePort.text + servicePort.protocol.toLowerCase() + endpoint.key);
}

/** True if the chain belongs to a Service, by its name. */
export function isServiceChain(name: string): boolean {
  return SERVICE_CHAIN_PREFIXES.some((prefix) => name.startsWith(prefix));
}
