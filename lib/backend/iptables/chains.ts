/**
 * Names of the chains and the text of the mark (iptables reference, 1, 3 and 5).
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { Endpoint, ServicePort } from "../../model/state.ts";

/** Dispatch by service address; a chain of this name exists in nat and, with another content, in filter. */
export const SERVICES_CHAIN = "KUBE-SERVICES";
export const EXTERNAL_SERVICES_CHAIN = "KUBE-EXTERNAL-SERVICES";
/** Dispatch by node port in nat; health-check node ports in filter. */
export const NODE_PORTS_CHAIN = "KUBE-NODEPORTS";
export const POSTROUTING_CHAIN = "KUBE-POSTROUTING";
export const MARK_MASQ_CHAIN = "KUBE-MARK-MASQ";
export const FORWARD_CHAIN = "KUBE-FORWARD";
export const PROXY_FIREWALL_CHAIN = "KUBE-PROXY-FIREWALL";
/** Kubelet's chain: we fill it in IPv4 and jump to it in both families, but never delete it. */
export const KUBELET_FIREWALL_CHAIN = "KUBE-FIREWALL";

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

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** Two base32 digits for each ten bits. */
const BASE32_PAIRS: readonly string[] = Array.from(
  { length: 1024 },
  (_, bits) => BASE32.charAt(bits >> 5) + BASE32.charAt(bits & 31),
);

/** First 16 base32 digits (80 bits) of the SHA-256 of a text's UTF-8 form. */
export function chainHash(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  let hash = "";
  // 5 hexadecimal digits are 20 bits are 4 base32 digits.
  for (let at = 0; at < 20; at += 5) {
    const bits = parseInt(hex.slice(at, at + 5), 16);
    hash += BASE32_PAIRS[bits >> 10]! + BASE32_PAIRS[bits & 1023]!;
  }
  return hash;
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

/** The name of the chain that leads to one endpoint of one ServicePort. */
export function endpointChain(servicePort: ServicePort, endpoint: Endpoint): string {
  return "KUBE-SEP-" + chainHash(servicePort.text + servicePort.protocol.toLowerCase() + endpoint.key);
}

/**
 * `0x` and eight hexadecimal digits.
 *
 * @throws {RangeError} if the mark is not exactly one of 32 bits
 */
export function formatMark(mark: number): string {
  if (!Number.isInteger(mark) || mark < 1 || mark > 0x8000_0000 || !Number.isInteger(Math.log2(mark))) {
    throw new RangeError(`Masquerade mark must be one bit of 32: got ${mark}`);
  }
  return "0x" + mark.toString(16).padStart(8, "0");
}

/** True if the chain belongs to a Service, by its name. */
export function isServiceChain(name: string): boolean {
  return SERVICE_CHAIN_PREFIXES.some((prefix) => name.startsWith(prefix));
}
