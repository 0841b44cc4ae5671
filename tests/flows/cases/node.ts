/** Flow cases of what is there whatever the Services are: marks, forwarding, connection tracking. */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const WEB = service("shop/web", { type: "NodePort", clusterIP: "10.96.0.1", ports: ["http:80:30080"] });
const ONE = slice("shop/web.1", ["http:8080"], ["10.244.1.12@node-b"]);

export const NODE_CASES: readonly FlowCase[] = [
  {
    name: "packets that connection tracking calls invalid are not forwarded",
    guards: ["KUBE-FORWARD invalid"],
    objects: [WEB, ONE],
    flows: [
      {
        flow: "10.244.1.12@eth0 → 10.244.0.5:40000 INVALID ⇒ dropped",
        instead: { nftables: "untranslated", ipvs: "untranslated", userspace: "untranslated" },
      },
      "198.51.100.9@eth0 → 192.0.2.10:22 INVALID ⇒ this node",
      "10.244.1.12@eth0 → 10.244.0.5:40000 ⇒ untranslated",
    ],
  },
  {
    name: "invalid packets are forwarded where connection tracking is liberal",
    guards: ["KUBE-FORWARD invalid"],
    objects: [WEB, ONE],
    options: { tcpBeLiberal: true },
    flows: ["10.244.1.12@eth0 → 10.244.0.5:40000 INVALID ⇒ untranslated"],
  },
  {
    name: "a closed host firewall lets through what is to be masqueraded and what is established, no more",
    guards: ["KUBE-FORWARD mark", "KUBE-FORWARD established"],
    objects: [WEB, ONE],
    options: { policies: { INPUT: "ACCEPT", FORWARD: "DROP" } },
    flows: [
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.1.12:8080, masquerade yes",
        instead: { nftables: "dropped" },
      },
      {
        flow: "198.51.100.9@eth0 → 10.96.0.1:80 ⇒ 10.244.1.12:8080, masquerade yes",
        instead: { nftables: "dropped" },
      },
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ dropped",
        instead: { ipvs: "10.244.1.12:8080, masquerade no", userspace: "10.244.1.12:8080, masquerade yes" },
      },
      {
        flow: "10.244.1.12@eth0 → 198.51.100.9:40000 ESTABLISHED ⇒ untranslated",
        instead: { nftables: "dropped", userspace: "dropped" },
      },
      {
        flow: "10.244.1.12@eth0 → 198.51.100.9:40000 RELATED ⇒ untranslated",
        instead: { nftables: "dropped", userspace: "dropped" },
      },
      "10.244.1.12@eth0 → 198.51.100.9:40000 ⇒ dropped",
    ],
  },
  {
    name: "the masquerade mark is cleared, and other marks are left alone",
    guards: ["KUBE-POSTROUTING", "KUBE-MARK-MASQ"],
    objects: [WEB, ONE],
    flows: [
      "198.51.100.9@eth0 → 192.0.2.10:30080 mark 0x10000 ⇒ 10.244.1.12:8080, masquerade yes, mark 0x10000 left",
      "10.244.0.5@cni0 → 10.96.0.1:80 mark 0x10000 ⇒ 10.244.1.12:8080, masquerade no, mark 0x10000 left",
      "10.244.0.5@cni0 → 10.96.0.1:80 mark 0x4000 ⇒ 10.244.1.12:8080, masquerade yes",
    ],
  },
  {
    name: "the masquerade bit is the one configured",
    guards: ["KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-FORWARD mark"],
    objects: [WEB, ONE],
    options: { masqueradeBit: 31, policies: { INPUT: "ACCEPT", FORWARD: "DROP" } },
    flows: [
      {
        flow:
          "198.51.100.9@eth0 → 192.0.2.10:30080 mark 0x4000 ⇒ 10.244.1.12:8080, masquerade yes, mark 0x4000 left",
        instead: { nftables: "dropped" },
      },
      {
        flow: "10.244.0.5@cni0 → 10.244.1.12:8080 mark 0x80000000 ⇒ untranslated, masquerade yes",
        instead: { nftables: "dropped", userspace: "dropped" },
      },
      "10.244.0.5@cni0 → 10.244.1.12:8080 mark 0x4000 ⇒ dropped",
    ],
  },
  {
    name: "the masquerade bit is the one configured, behind an open firewall",
    guards: ["KUBE-POSTROUTING", "KUBE-MARK-MASQ"],
    objects: [WEB, ONE],
    options: { masqueradeBit: 31 },
    flows: [
      "198.51.100.9@eth0 → 192.0.2.10:30080 mark 0x4000 ⇒ 10.244.1.12:8080, masquerade yes, mark 0x4000 left",
      "198.51.100.9@eth0 → 10.96.0.1:80 ⇒ 10.244.1.12:8080, masquerade yes",
      {
        flow: "10.244.0.5@cni0 → 10.244.1.12:8080 mark 0x80000000 ⇒ untranslated, masquerade yes",
        instead: { userspace: "untranslated, mark 0x80000000 left" },
      },
      "10.244.0.5@cni0 → 10.244.1.12:8080 mark 0x4000 ⇒ untranslated, mark 0x4000 left",
    ],
  },
  {
    name: "traffic that has nothing to do with a Service is left alone",
    guards: ["KUBE-POSTROUTING", "KUBE-SERVICES"],
    objects: [WEB, ONE],
    flows: [
      "10.244.0.5@cni0 → 10.244.1.12:8080 ⇒ untranslated",
      "10.244.0.5@cni0 → 198.51.100.9:443 ⇒ untranslated",
      "192.0.2.10@node → 198.51.100.9:443 ⇒ untranslated",
      "192.0.2.10@node → 192.0.2.10:22 ⇒ this node",
      "198.51.100.9@eth0 → 192.0.2.10:22 ⇒ this node",
      "198.51.100.9@eth0 → 192.0.2.10/icmp ⇒ this node",
      "127.0.0.1@node → 127.0.0.1:8080 ⇒ this node",
      "fd00:10:244::5@cni0 → [fd00:198::9]:443 ⇒ untranslated",
      "::1@node → [::1]:8080 ⇒ this node",
    ],
  },
];
