/** Flow cases of what a Service is: ports, protocols, families, kinds that get no rules, size. */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const MANY = Array.from({ length: 1001 }, (_, index) => `10.244.${16 + (index >> 8)}.${index & 255}@node-b`);
const MANY_TEXT = MANY.map((text) => `${text.split("@")[0]}:8080 (1/1001)`).sort().join(" | ");

export const SERVICE_CASES: readonly FlowCase[] = [
  {
    name: "UDP and TCP on the same port are two ports of a Service",
    guards: ["iptables 1", "iptables 23"],
    objects: [
      service("kube-system/dns", { clusterIP: "10.96.0.10", ports: ["dns:53/UDP", "dns-tcp:53/TCP"] }),
      slice("kube-system/dns.1", ["dns:1053/UDP", "dns-tcp:2053/TCP"], ["10.244.0.53@node-a"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.10:53/udp ⇒ 10.244.0.53:1053, masquerade no",
      "10.244.0.5@cni0 → 10.96.0.10:53 ⇒ 10.244.0.53:2053, masquerade no",
      "192.0.2.10@node → 10.96.0.10:53/udp ⇒ 10.244.0.53:1053, masquerade yes",
    ],
  },
  {
    name: "UDP: node port, external IP, load-balancer IP, hairpin and refusal",
    guards: ["iptables 3", "iptables 5", "iptables 8", "iptables 2"],
    objects: [
      service("kube-system/dns", {
        type: "LoadBalancer",
        clusterIP: "10.96.0.10",
        externalIPs: ["198.51.100.7"],
        ingress: [{ ip: "203.0.113.53" }],
        ports: ["dns:53:30053/UDP"],
      }),
      slice("kube-system/dns.1", ["dns:1053/UDP"], ["10.244.0.53@node-a"]),
      service("kube-system/none", { clusterIP: "10.96.0.11", ports: ["dns:53/UDP"] }),
    ],
    flows: [
      "198.51.100.9@eth0 → 192.0.2.10:30053/udp ⇒ 10.244.0.53:1053, masquerade yes",
      "198.51.100.9@eth0 → 198.51.100.7:53/udp ⇒ 10.244.0.53:1053, masquerade yes",
      "198.51.100.9@eth0 → 203.0.113.53:53/udp ⇒ 10.244.0.53:1053, masquerade yes",
      "10.244.0.53@cni0 → 10.96.0.10:53/udp ⇒ 10.244.0.53:1053, masquerade yes",
      "10.244.0.5@cni0 → 10.96.0.11:53/udp ⇒ rejected",
      {
        flow: "10.244.0.5@cni0 → 10.96.0.11:53 ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
    ],
  },
  {
    name: "SCTP: cluster IP, node port and refusal",
    guards: ["iptables 1", "iptables 8", "iptables 2"],
    objects: [
      service("tel/sig", { type: "NodePort", clusterIP: "10.96.0.20", ports: ["m3ua:2905:30905/SCTP"] }),
      slice("tel/sig.1", ["m3ua:2905/SCTP"], ["10.244.0.20@node-a", "10.244.1.20@node-b"]),
      service("tel/none", { clusterIP: "10.96.0.21", ports: ["m3ua:2905/SCTP"] }),
    ],
    flows: [
      {
        flow:
          "10.244.0.5@cni0 → 10.96.0.20:2905/sctp ⇒ 10.244.0.20:2905 (1/2) | 10.244.1.20:2905 (1/2), masquerade no",
        instead: { userspace: "untranslated" },
      },
      {
        flow:
          "198.51.100.9@eth0 → 192.0.2.10:30905/sctp ⇒ 10.244.0.20:2905 (1/2) | 10.244.1.20:2905 (1/2), masquerade yes",
        instead: { userspace: "this node" },
      },
      { flow: "10.244.0.5@cni0 → 10.96.0.21:2905/sctp ⇒ rejected", instead: { userspace: "untranslated" } },
      {
        flow: "10.244.0.5@cni0 → 10.96.0.20:2905 ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
    ],
  },
  {
    name: "endpoints belong to a port by its name and protocol, not by its number",
    guards: ["iptables 1", "vector 16"],
    objects: [
      service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80", "admin:81", "udp:82/UDP"] }),
      slice("shop/web.1", ["http:8080", "other:81", "udp:82/TCP"], ["10.244.0.11@node-a"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080, masquerade no",
      "10.244.0.5@cni0 → 10.96.0.1:81 ⇒ rejected",
      "10.244.0.5@cni0 → 10.96.0.1:82/udp ⇒ rejected",
    ],
  },
  {
    name: "a named port finds no endpoints under the empty name",
    guards: ["vector 16"],
    objects: [
      service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80"] }),
      slice("shop/web.1", [":8080"], ["10.244.0.11@node-a"]),
    ],
    flows: ["10.244.0.5@cni0 → 10.96.0.1:80 ⇒ rejected"],
  },
  {
    name: "a headless Service gets no rules",
    guards: ["iptables 1"],
    objects: [
      service("shop/web", { clusterIP: "None", ports: ["http:80"] }),
      slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a"]),
    ],
    flows: ["10.244.0.5@cni0 → 10.244.0.11:80 ⇒ untranslated"],
  },
  {
    name: "an ExternalName Service gets no rules, whatever else it carries",
    guards: ["iptables 1", "iptables 3"],
    objects: [
      service("shop/web", {
        type: "ExternalName",
        clusterIP: "10.96.0.1",
        externalIPs: ["198.51.100.7"],
        ports: ["http:80"],
      }),
      slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ untranslated",
      "10.244.0.5@cni0 → 198.51.100.7:80 ⇒ untranslated",
    ],
  },
  {
    name: "Services do not disturb one another",
    guards: ["iptables 1", "iptables 2", "iptables 8"],
    objects: [
      service("a/web", { type: "NodePort", clusterIP: "10.96.0.1", ports: ["http:80:30080"] }),
      service("b/web", { type: "NodePort", clusterIP: "10.96.0.2", ports: ["http:80:30081"] }),
      service("c/web", { type: "NodePort", clusterIP: "10.96.0.3", ports: ["http:80:30082"] }),
      slice("a/web.1", ["http:8080"], ["10.244.0.11@node-a"]),
      // The same pod behind two Services: its chain differs by Service.
      slice("b/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.0.12@node-a"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080, masquerade no",
      "10.244.0.5@cni0 → 10.96.0.2:80 ⇒ 10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade no",
      "10.244.0.5@cni0 → 10.96.0.3:80 ⇒ rejected",
      "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.0.11:8080, masquerade yes",
      "198.51.100.9@eth0 → 192.0.2.10:30082 ⇒ rejected",
    ],
  },
  {
    name: "IPv6: cluster IP, node port, hairpin, refusal",
    guards: ["iptables 1", "iptables 2", "iptables 8", "iptables 13", "iptables 23", "node-port tail"],
    objects: [
      service("shop/web6", { type: "NodePort", clusterIP: "fd00:10:96::9", ports: ["http:80:30080"] }),
      slice("shop/web6.1", ["http:8080"], ["fd00:10:244::91@node-a", "fd00:10:244:1::92@node-b"]),
      service("shop/none6", { type: "NodePort", clusterIP: "fd00:10:96::a", ports: ["http:80:30081"] }),
    ],
    flows: [
      "fd00:10:244::5@cni0 → [fd00:10:96::9]:80 ⇒ [fd00:10:244:1::92]:8080 (1/2) | [fd00:10:244::91]:8080 (1/2), masquerade no",
      "fd00:192::10@node → [fd00:10:96::9]:80 ⇒ [fd00:10:244:1::92]:8080 (1/2) | [fd00:10:244::91]:8080 (1/2), masquerade yes",
      "fd00:10:244::91@cni0 → [fd00:10:96::9]:80 ⇒ [fd00:10:244:1::92]:8080 (1/2, masquerade no) | [fd00:10:244::91]:8080 (1/2, masquerade yes)",
      "fd00:198::9@eth0 → [fd00:192::10]:30080 ⇒ [fd00:10:244:1::92]:8080 (1/2) | [fd00:10:244::91]:8080 (1/2), masquerade yes",
      {
        flow:
          "fd00:198::9@eth0 → [fd00:7::10]:30080 ⇒ [fd00:10:244:1::92]:8080 (1/2) | [fd00:10:244::91]:8080 (1/2), masquerade yes",
        instead: { nftables: "this node" },
      },
      {
        flow: "fd00:10:244::5@cni0 → [fd00:10:96::a]:80 ⇒ rejected",
        rejectWith: "icmp6-port-unreachable",
      },
      "fd00:198::9@eth0 → [fd00:192::10]:30081 ⇒ rejected",
      {
        flow: "fd00:10:244::5@cni0 → fd00:10:96::9/icmp ⇒ untranslated",
        instead: { nftables: "rejected", ipvs: "rejected" },
      },
    ],
  },
  {
    name: "IPv6 has no node ports on localhost",
    guards: ["node-port tail"],
    objects: [
      service("shop/web6", { type: "NodePort", clusterIP: "fd00:10:96::9", ports: ["http:80:30080"] }),
      slice("shop/web6.1", ["http:8080"], ["fd00:10:244::91@node-a"]),
    ],
    flows: [
      {
        flow: "::1@node → [::1]:30080 ⇒ this node",
        instead: { userspace: "[fd00:10:244::91]:8080, masquerade yes" },
      },
      "fd00:192::10@node → [fd00:192::10]:30080 ⇒ [fd00:10:244::91]:8080, masquerade yes",
    ],
  },
  {
    name: "IPv6 node ports on every address of the node leave localhost out",
    guards: ["node-port tail"],
    objects: [
      service("shop/web6", { type: "NodePort", clusterIP: "fd00:10:96::9", ports: ["http:80:30080"] }),
      slice("shop/web6.1", ["http:8080"], ["fd00:10:244::91@node-a"]),
    ],
    options: { nodePortAddresses: ["::/0"] },
    flows: [
      {
        flow: "::1@node → [::1]:30080 ⇒ this node",
        instead: { userspace: "[fd00:10:244::91]:8080, masquerade yes" },
      },
      "fd00:198::9@eth0 → [fd00:7::10]:30080 ⇒ [fd00:10:244::91]:8080, masquerade yes",
      "fd00:198::9@eth0 → [fd00:198::a]:30080 ⇒ untranslated",
    ],
  },
  {
    name: "IPv6 node ports on listed addresses leave localhost out",
    guards: ["node-port tail"],
    objects: [
      service("shop/web6", { type: "NodePort", clusterIP: "fd00:10:96::9", ports: ["http:80:30080"] }),
      slice("shop/web6.1", ["http:8080"], ["fd00:10:244::91@node-a"]),
    ],
    options: { nodePortAddresses: ["::1/128", "fd00:7::/64"] },
    flows: [
      {
        flow: "::1@node → [::1]:30080 ⇒ this node",
        instead: { userspace: "[fd00:10:244::91]:8080, masquerade yes" },
      },
      "fd00:198::9@eth0 → [fd00:7::10]:30080 ⇒ [fd00:10:244::91]:8080, masquerade yes",
      {
        flow: "fd00:198::9@eth0 → [fd00:192::10]:30080 ⇒ this node",
        instead: { ipvs: "this node, mark 0x4000 left" },
      },
    ],
  },
  {
    name: "IPv6 load-balancer source ranges",
    guards: ["iptables 6", "iptables 18", "iptables 19"],
    objects: [
      service("edge/api6", {
        type: "LoadBalancer",
        clusterIP: "fd00:10:96::5",
        ports: ["rest:8080"],
        loadBalancerSourceRanges: ["198.18.0.0/15", "2001:db8::/32", "fd00:192::/64"],
        ingress: [{ ip: "fd00:203::50" }],
      }),
      slice("edge/api6.1", ["rest:9090"], ["fd00:10:244:1::51@node-b"]),
    ],
    flows: [
      "2001:db8:1::1@eth0 → [fd00:203::50]:8080 ⇒ [fd00:10:244:1::51]:9090, masquerade yes",
      "fd00:203::50@node → [fd00:203::50]:8080 ⇒ [fd00:10:244:1::51]:9090, masquerade yes",
      { flow: "fd00:198::9@eth0 → [fd00:203::50]:8080 ⇒ dropped", instead: { userspace: "untranslated" } },
    ],
  },
  {
    name: "a dual-stack Service has its own addresses and endpoints in each family",
    guards: ["iptables 1", "iptables 2"],
    objects: [
      service("shop/both", {
        clusterIP: "10.96.0.30",
        clusterIPs: ["10.96.0.30", "fd00:10:96::30"],
        ipFamilies: ["IPv4", "IPv6"],
        externalIPs: ["198.51.100.7", "fd00:198::7"],
        ports: ["http:80"],
      }),
      slice("shop/both.4", ["http:8080"], ["10.244.0.31@node-a"]),
      slice("shop/both.6", ["http:8080"], ["fd00:10:244::31@node-a"]),
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.30:80 ⇒ 10.244.0.31:8080, masquerade no",
      "fd00:10:244::5@cni0 → [fd00:10:96::30]:80 ⇒ [fd00:10:244::31]:8080, masquerade no",
      "198.51.100.9@eth0 → 198.51.100.7:80 ⇒ 10.244.0.31:8080, masquerade yes",
      "fd00:198::9@eth0 → [fd00:198::7]:80 ⇒ [fd00:10:244::31]:8080, masquerade yes",
    ],
  },
  {
    name: "a Service of one family ignores slices of the other",
    guards: ["iptables 2"],
    objects: [
      service("shop/four", {
        clusterIP: "10.96.0.31",
        clusterIPs: ["10.96.0.31"],
        ipFamilies: ["IPv4"],
        ports: ["http:80"],
      }),
      slice("shop/four.6", ["http:8080"], ["fd00:10:244::31@node-a"]),
    ],
    flows: ["10.244.0.5@cni0 → 10.96.0.31:80 ⇒ rejected"],
  },
  {
    name: "more than 1000 endpoints are still chosen evenly",
    guards: ["iptables 21", "iptables 23", "large cluster"],
    objects: [
      service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80"] }),
      slice("shop/web.1", ["http:8080"], MANY),
    ],
    flows: [`198.51.100.9@eth0 → 10.96.0.1:80 ⇒ ${MANY_TEXT}, masquerade yes`],
  },
];
