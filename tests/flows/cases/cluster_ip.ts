/** Flow cases of cluster IPs: selection, masquerading, internal traffic policy. */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const WEB = service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80"] });
const TWO = slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.1.12@node-b"]);
const EITHER = "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2)";

const LOCAL_WEB = service("shop/web", {
  clusterIP: "10.96.0.1",
  internalTrafficPolicy: "Local",
  ports: ["http:80"],
});

export const CLUSTER_IP_CASES: readonly FlowCase[] = [
  {
    name: "a cluster IP spreads evenly over its endpoints",
    guards: ["iptables 1", "iptables 21", "iptables 23", "probability"],
    objects: [
      WEB,
      slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.1.12@node-b", "10.244.2.13@node-c"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/3) | 10.244.1.12:8080 (1/3) | 10.244.2.13:8080 (1/3), masquerade no",
    ],
  },
  {
    name: "a cluster IP with one endpoint always takes it",
    guards: ["iptables 1", "iptables 21"],
    objects: [WEB, slice("shop/web.1", ["http:8080"], ["10.244.1.12@node-b"])],
    flows: ["10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.1.12:8080, masquerade no"],
  },
  {
    name: "what reaches a cluster IP from outside of the pod network is masqueraded",
    guards: ["iptables 12′", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"],
    objects: [WEB, TWO],
    flows: [
      `192.0.2.10@node → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
      `198.51.100.9@eth0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
      `10.244.1.9@eth0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
    ],
  },
  {
    name: "with masqueradeAll pods are masqueraded too",
    guards: ["iptables 12"],
    objects: [WEB, TWO],
    options: { masqueradeAll: true },
    flows: [
      `10.244.0.5@cni0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
      `192.0.2.10@node → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
    ],
  },
  {
    name: "with masqueradeAll traffic under internal policy Local is masqueraded too",
    guards: ["iptables 12"],
    objects: [LOCAL_WEB, TWO],
    options: { masqueradeAll: true },
    flows: ["10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080, masquerade yes"],
  },
  {
    name: "masqueradeAll needs no way to tell pods",
    guards: ["iptables 12"],
    objects: [WEB, TWO],
    options: { masqueradeAll: true, clusterCIDR: "" },
    flows: [`10.244.0.5@cni0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`],
  },
  {
    name: "without a way to tell pods nothing is masqueraded on a cluster IP",
    guards: ["iptables 12′"],
    objects: [WEB, TWO],
    options: { clusterCIDR: "" },
    flows: [
      `10.244.0.5@cni0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
      `198.51.100.9@eth0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
      `192.0.2.10@node → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
    ],
  },
  {
    name: "a bridge tells pods by their interface, not by their address",
    guards: ["iptables 12′"],
    objects: [WEB, TWO],
    options: { detectLocalMode: "BridgeInterface", bridgeInterface: "cni0" },
    flows: [
      `10.244.0.5@cni0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
      `10.244.0.5@cni01 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
      `10.244.1.9@eth0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
      `192.0.2.10@node → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
    ],
  },
  {
    name: "an interface prefix tells pods by any interface that begins with it",
    guards: ["iptables 12′"],
    objects: [WEB, TWO],
    options: { detectLocalMode: "InterfaceNamePrefix", interfaceNamePrefix: "veth" },
    flows: [
      `10.244.0.5@veth1234 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
      `10.244.0.6@veth → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
      `10.244.1.9@eth0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
      `192.0.2.10@node → 10.96.0.1:80 ⇒ ${EITHER}, masquerade yes`,
    ],
  },
  {
    name: "a cluster CIDR with host bits is taken as its network",
    guards: ["iptables 12′"],
    objects: [WEB, TWO],
    options: { clusterCIDR: "10.244.3.0/16" },
    flows: [`10.244.9.5@cni0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`],
  },
  {
    name: "a pod that reaches itself through a Service is masqueraded",
    guards: ["iptables 23", "hairpin"],
    objects: [WEB, TWO],
    flows: [
      "10.244.0.11@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/2, masquerade yes) | 10.244.1.12:8080 (1/2, masquerade no)",
      // Another node's proxy may have sent it here, so the remote endpoint has the rule as well.
      {
        flow:
          "10.244.1.12@eth0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/2, masquerade no) | 10.244.1.12:8080 (1/2, masquerade yes)",
        instead: {
          nftables: `${EITHER}, masquerade no`,
          ipvs: "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade no",
        },
      },
    ],
  },
  {
    name: "a pod that reaches itself without a Service is left alone",
    guards: ["hairpin"],
    objects: [WEB, TWO],
    flows: [{
      flow: "10.244.0.11@cni0 → 10.244.0.11:8080 ⇒ untranslated",
      instead: { ipvs: "untranslated, masquerade yes" },
    }],
  },
  {
    name: "only the Service's own port and protocol are redirected",
    guards: ["iptables 1"],
    objects: [WEB, TWO],
    flows: [
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:81 ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:80/udp ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
      "10.244.0.5@cni0 → 10.96.0.2:80 ⇒ untranslated",
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1/icmp ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
    ],
  },
  {
    name: "a cluster IP that no Service has",
    guards: ["unallocated cluster IPs"],
    objects: [WEB, TWO],
    options: { serviceCidrs: ["10.96.0.0/16", "10.98.0.0/24", "fd00:10:96::/112"] },
    flows: [
      { flow: "10.244.0.5@cni0 → 10.96.9.9:80 ⇒ untranslated", instead: { nftables: "dropped" } },
      { flow: "198.51.100.9@eth0 → 10.98.0.1:80/udp ⇒ untranslated", instead: { nftables: "dropped" } },
      { flow: "192.0.2.10@node → 10.96.9.9:80 ⇒ untranslated", instead: { nftables: "dropped" } },
      { flow: "fd00:10:244::5@cni0 → [fd00:10:96::99]:80 ⇒ untranslated", instead: { nftables: "dropped" } },
      "10.244.0.5@cni0 → 10.97.0.1:80 ⇒ untranslated",
      "10.244.0.5@cni0 → 10.96.9.9:80 ESTABLISHED ⇒ untranslated",
      `10.244.0.5@cni0 → 10.96.0.1:80 ⇒ ${EITHER}, masquerade no`,
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:81 ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
    ],
  },
  {
    name: "only a connection's first packet is redirected by rules",
    guards: ["iptables 1"],
    objects: [WEB, TWO],
    flows: [{
      flow: "10.244.0.5@cni0 → 10.96.0.1:80 ESTABLISHED ⇒ untranslated",
      instead: { ipvs: "this node" },
    }],
  },
  {
    name: "a cluster IP without endpoints refuses all clients",
    guards: ["iptables 2", "vector 14"],
    objects: [WEB],
    flows: [
      { flow: "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ rejected", rejectWith: "icmp-port-unreachable" },
      "192.0.2.10@node → 10.96.0.1:80 ⇒ rejected",
      "198.51.100.9@eth0 → 10.96.0.1:80 ⇒ rejected",
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:81 ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1/icmp ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
    ],
  },
  {
    name: "under internal policy Local only endpoints of the node answer",
    guards: ["iptables 1", "iptables 22", "iptables 12′"],
    objects: [LOCAL_WEB, TWO],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080, masquerade no",
      "192.0.2.10@node → 10.96.0.1:80 ⇒ 10.244.0.11:8080, masquerade yes",
    ],
  },
  {
    name: "under internal policy Local two endpoints of the node share",
    guards: ["iptables 22"],
    objects: [
      LOCAL_WEB,
      slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.0.12@node-a", "10.244.1.13@node-b"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade no",
    ],
  },
  {
    name: "under internal policy Local without an endpoint on the node everybody is dropped",
    guards: ["iptables 2", "vector 11"],
    objects: [LOCAL_WEB, slice("shop/web.1", ["http:8080"], ["10.244.1.12@node-b"])],
    flows: [
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ dropped",
        instead: { ipvs: "rejected", userspace: "closed" },
      },
      {
        flow: "192.0.2.10@node → 10.96.0.1:80 ⇒ dropped",
        instead: { ipvs: "rejected", userspace: "closed" },
      },
      {
        flow: "198.51.100.9@eth0 → 10.96.0.1:80 ⇒ dropped",
        instead: { ipvs: "rejected", userspace: "closed" },
      },
    ],
  },
  {
    name: "an endpoint on the node's own network takes cluster traffic",
    guards: ["iptables 1", "iptables 23"],
    objects: [WEB, slice("shop/web.1", ["http:8080"], ["192.0.2.10@node-a"])],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 192.0.2.10:8080, masquerade no",
      {
        flow: "192.0.2.10@node → 10.96.0.1:80 ⇒ 192.0.2.10:8080, masquerade yes",
        instead: { ipvs: "192.0.2.10:8080, masquerade yes, mark 0x4000 left" },
      },
    ],
  },
];
