/**
 * Faults of a node's settings, ways, programs and access: `doctor` names the setting with its fix, `trace` what it does to a packet.
 *
 * @module
 */
import { BOTH, type PlantedFault } from "./fault.ts";
import { type FaultLab, LOOPBACK, NODE, OTHER_LINK, POD } from "./fault_lab.ts";
import { NODE_ADDRESSES } from "../node_lab.ts";

/** A setting with a wrong value, and the one that it had. */
function setting(name: string, wrong: string, right: string): Pick<PlantedFault, "plant" | "fix"> {
  const set = (value: string) => (lab: FaultLab): Promise<string> =>
    lab.netns.run(["sysctl", "-q", "-w", `${name}=${value}`]);
  return { plant: set(wrong), fix: set(right) };
}

const MASTER = (lab: FaultLab): readonly string[] => [`--master=${lab.api}`];

const ADD_IPV6 = [
  ...Object.entries(NODE_ADDRESSES).map(([device, [, ip]]) =>
    `ip address add ${ip}/${device === "cni0" ? 128 : 64} dev ${device} nodad`
  ),
  "ip -6 route add default via fd00:192::1",
];

export const NODE_FAULTS: readonly PlantedFault[] = [
  {
    name: "the node does not forward, as doctor sees it",
    modes: BOTH,
    ...setting("net.ipv4.ip_forward", "0", "1"),
    ask: ["doctor"],
    says: /FAILURE +forwarding +net\.ipv4\.ip_forward is 0: .*\n +-> sysctl -w net\.ipv4\.ip_forward=1/,
    packet: POD,
  },
  {
    name: "the node does not forward, as trace sees it",
    modes: BOTH,
    ...setting("net.ipv4.ip_forward", "0", "1"),
    ask: ["trace", "198.51.100.9@eth0", "192.0.2.10:30080"],
    says: /Wrong: .*: IPv4 packets are not forwarded: net\.ipv4\.ip_forward is 0/,
    packet: POD,
  },
  {
    name: "an interface does not forward",
    modes: BOTH,
    ...setting("net.ipv4.conf.cni0.forwarding", "0", "1"),
    ask: ["trace", "10.244.0.5@cni0", "shop/web"],
    says: /Wrong: .*: IPv4 packets are not forwarded: net\.ipv4\.conf\.cni0\.forwarding is 0/,
    packet: POD,
  },
  {
    name: "the reverse path filter is strict, and answers go another way",
    modes: ["iptables"],
    ...setting("net.ipv4.conf.eth1.rp_filter", "1", "0"),
    ask: ["trace", "198.51.100.9@eth1", "192.168.7.10:30080"],
    says: /Wrong: .*: reverse path filter: the way back is through eth0 to 198\.51\.100\.9/,
    packet: OTHER_LINK,
  },
  {
    name: "the reverse path filter is strict on a device",
    modes: ["nftables"],
    ...setting("net.ipv4.conf.cni0.rp_filter", "1", "0"),
    ask: ["doctor"],
    says:
      /warning +reverse path filter +strict on cni0: .*\n +-> sysctl -w net\.ipv4\.conf\.cni0\.rp_filter=2/,
    code: 0,
  },
  {
    name: "loopback addresses may not leave lo",
    modes: ["iptables"],
    ...setting("net.ipv4.conf.all.route_localnet", "0", "1"),
    ask: ["trace", "127.0.0.1@node", "127.0.0.1:30080"],
    says:
      /Wrong: .*: no packet from 127\.0\.0\.1 out of cni0: net\.ipv4\.conf\.cni0\.route_localnet and that of "all" are 0/,
    packet: LOOPBACK,
  },
  {
    name: "loopback addresses may not leave lo, as doctor sees it",
    modes: ["iptables"],
    ...setting("net.ipv4.conf.all.route_localnet", "0", "1"),
    ask: ["doctor"],
    says:
      /warning +settings +net\.ipv4\.conf\.all\.route_localnet is 0, .*node ports would not answer on 127\.0\.0\.1/,
    code: 0,
    packet: LOOPBACK,
  },
  {
    name: "there is no route to an endpoint",
    modes: BOTH,
    plant: async (lab) => {
      await lab.serve({ endpoints: ["10.244.1.13@node-b"] });
      await lab.netns.run(["ip", "route", "replace", "unreachable", "10.244.1.13"]);
    },
    fix: async (lab) => {
      await lab.netns.run(["ip", "route", "replace", "10.244.1.13", "via", "192.0.2.1", "dev", "eth0"]);
      await lab.restore();
    },
    ask: ["trace", "10.244.0.5@cni0", "shop/web"],
    says: /Wrong: .*: there is no route to 10\.244\.1\.13/,
  },
  {
    name: "the node itself has no route to cluster IPs",
    modes: BOTH,
    plant: (lab) => lab.netns.run(["ip", "route", "del", "default"]),
    fix: (lab) => lab.netns.run(["ip", "route", "add", "default", "via", "192.0.2.1"]),
    ask: ["trace", "local", "shop/web"],
    says: /Wrong: .*: there is no route to 10\.96\.0\.1/,
    packet: NODE,
    really: "error: connect: ENETUNREACH",
  },
  {
    name: "the interface is down",
    modes: BOTH,
    plant: (lab) => lab.netns.run(["ip", "link", "add", "vlan7", "type", "bridge"]),
    fix: (lab) => lab.netns.run(["ip", "link", "del", "vlan7"]),
    ask: ["trace", "198.51.100.9@vlan7", "192.0.2.10:30080"],
    says: /Wrong: .*: the interface is down/,
  },
  {
    name: "a right at the API server is missing",
    modes: BOTH,
    plant: (lab) => lab.serveApi({ denied: ["watch services"] }),
    fix: (lab) => lab.endApi(),
    ask: ["doctor"],
    flags: MASTER,
    says:
      /FAILURE +API rights +may not watch services: no Service can be served\n +-> grant watch on services/,
  },
  {
    name: "the cluster has no Node of that name",
    modes: BOTH,
    plant: (lab) => lab.serveApi({ denied: [] }),
    fix: (lab) => lab.endApi(),
    ask: ["doctor"],
    flags: (lab) => [...MASTER(lab), "--hostname-override=worker-9"],
    says:
      /FAILURE +node +the cluster has no Node worker-9: .*; Node node-a has an address of this machine\n +-> --hostname-override=node-a/,
  },
  {
    name: "the API server does not answer",
    modes: BOTH,
    plant: () => Promise.resolve(),
    fix: () => Promise.resolve(),
    ask: ["doctor"],
    flags: ["--master=http://127.0.0.1:1"],
    says: /FAILURE +API server +http:\/\/127\.0\.0\.1:1 \(--master\) does not answer as it should: /,
  },
  {
    name: "IPv6 is switched off, and the cluster uses it",
    modes: ["nftables"],
    plant: (lab) => lab.sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=1"),
    // The kernel has forgotten all addresses of it.
    fix: (lab) => lab.sh(`sysctl -q -w net.ipv6.conf.all.disable_ipv6=0\n${ADD_IPV6.join("\n")}`),
    ask: ["doctor"],
    flags: ["--cluster-cidr=10.244.0.0/16,fd00:10:244::/56"],
    says: /IPv6 is not served: .*disable_ipv6/,
    code: 0,
  },
];
