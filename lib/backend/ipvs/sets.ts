/**
 * Names of the address sets of IPVS mode, as kube-proxy names them.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";

/** ipset's limit (IPSET_MAXNAMELEN without its final zero). */
const MAX_NAME_LENGTH = 31;

/** The sets of IPv4. */
const SET_NAMES: readonly string[] = [
  "KUBE-CLUSTER-IP",
  "KUBE-LOOP-BACK",
  "KUBE-EXTERNAL-IP",
  "KUBE-EXTERNAL-IP-LOCAL",
  "KUBE-LOAD-BALANCER",
  "KUBE-LOAD-BALANCER-LOCAL",
  "KUBE-LOAD-BALANCER-FW",
  "KUBE-LOAD-BALANCER-SOURCE-IP",
  "KUBE-LOAD-BALANCER-SOURCE-CIDR",
  "KUBE-NODE-PORT-TCP",
  "KUBE-NODE-PORT-LOCAL-TCP",
  "KUBE-NODE-PORT-UDP",
  "KUBE-NODE-PORT-LOCAL-UDP",
  "KUBE-NODE-PORT-SCTP-HASH",
  "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
  "KUBE-HEALTH-CHECK-NODE-PORT",
  "KUBE-IPVS-IPS",
];

/** The names of one family's sets; those of IPv6 carry a mark and are cut to what ipset takes. */
export function setNames(family: IpFamily): readonly string[] {
  if (family === "IPv4") return SET_NAMES;
  return SET_NAMES.map((name) => name.replace("KUBE-", "KUBE-6-").slice(0, MAX_NAME_LENGTH));
}
