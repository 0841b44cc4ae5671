/**
 * UDP clients of `kproxy run` that never stop sending from one port follow the Service, and a kill and a new start move no live flow. IPVS
 * mode goes through the same in `tests/lab/conntrack_in_uml.ts`.
 *
 * @module
 */
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { followUdpEndpoints } from "../support/udp_story.ts";

const NEEDS = [
  ROOT_NAMESPACES,
  ...["ip", "sysctl", "conntrack", "iptables", "ip6tables", "nft"].map(program),
];

for (const mode of ["iptables", "nftables"] as const) {
  for (const family of ["IPv4", "IPv6"] as const) {
    e2eTest(
      `kproxy run: UDP flows follow their endpoints, also over kill -9 and a new start, ${mode}, ${family}`,
      NEEDS,
      () => followUdpEndpoints(mode, family),
    );
  }
}
