/** Flow cases of node ports: which addresses, external traffic policy, localhost. */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const WEB = service("shop/web", { type: "NodePort", clusterIP: "10.96.0.1", ports: ["http:80:30080"] });
const LOCAL_WEB = service("shop/web", {
  type: "NodePort",
  clusterIP: "10.96.0.1",
  externalTrafficPolicy: "Local",
  ports: ["http:80:30080"],
});
const TWO = slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.1.12@node-b"]);
const REMOTE = slice("shop/web.1", ["http:8080"], ["10.244.1.12@node-b"]);
const EITHER = "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2)";

export const NODE_PORT_CASES: readonly FlowCase[] = [
  {
    name: "a node port answers on every address of the node and hides the client",
    guards: ["iptables 8", "iptables 13", "iptables 17", "node-port tail"],
    objects: [WEB, TWO],
    flows: [
      `198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: `198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node" },
      },
      `10.244.0.5@cni0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
      `192.0.2.10@node → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade no",
    ],
  },
  {
    name: "a node port takes nothing that is not for the node",
    guards: ["iptables 8", "node-port tail"],
    objects: [WEB, TWO],
    flows: [
      "10.244.0.5@cni0 → 198.51.100.50:30080 ⇒ untranslated",
      "192.0.2.10@node → 192.0.2.11:30080 ⇒ untranslated",
      "198.51.100.9@eth0 → 192.0.2.10:30081 ⇒ this node",
      "198.51.100.9@eth0 → 192.0.2.10:30080/udp ⇒ this node",
      "198.51.100.9@eth0 → 192.0.2.10:80 ⇒ this node",
    ],
  },
  {
    name: "a node port answers on localhost and hides that address",
    guards: ["iptables 8", "iptables 13", "node-port tail"],
    objects: [WEB, TWO],
    flows: [
      {
        flow: `127.0.0.1@node → 127.0.0.1:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node", ipvs: "this node" },
      },
      {
        flow: `127.0.0.1@node → 127.1.2.3:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node", ipvs: "this node" },
      },
      "127.0.0.1@node → 127.0.0.1:22 ⇒ this node",
    ],
  },
  {
    name: "with localhost node ports off localhost is left alone",
    guards: ["node-port tail"],
    objects: [WEB, TWO],
    options: { localhostNodePorts: false },
    flows: [
      {
        flow: "127.0.0.1@node → 127.0.0.1:30080 ⇒ this node",
        instead: { userspace: "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade yes" },
      },
      `192.0.2.10@node → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
    ],
  },
  {
    name: "localhost node ports open no other local service to the network",
    guards: ["KUBE-FIREWALL"],
    objects: [WEB, TWO],
    flows: [
      {
        flow: "198.51.100.9@eth0 → 127.0.0.1:22 ⇒ dropped",
        instead: { nftables: "this node", ipvs: "this node", userspace: "this node" },
      },
      {
        flow: "198.51.100.9@eth0 → 127.8.8.8:22/udp ⇒ dropped",
        instead: { nftables: "this node", ipvs: "this node", userspace: "this node" },
      },
      "198.51.100.9@eth0 → 127.0.0.1:22 ESTABLISHED ⇒ this node",
      "198.51.100.9@eth0 → 192.0.2.10:22 ⇒ this node",
    ],
  },
  {
    name: "without localhost node ports nothing guards localhost",
    guards: ["KUBE-FIREWALL"],
    objects: [WEB, TWO],
    options: { localhostNodePorts: false },
    flows: ["198.51.100.9@eth0 → 127.0.0.1:22 ⇒ this node"],
  },
  {
    name: "nodePortAddresses limits node ports to the node's addresses in it",
    guards: ["node-port tail"],
    objects: [WEB, TWO],
    options: { nodePortAddresses: ["192.0.2.0/24"] },
    flows: [
      `198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
      `192.0.2.10@node → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: "198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ this node",
        instead: { ipvs: "this node, mark 0x4000 left" },
      },
      "127.0.0.1@node → 127.0.0.1:30080 ⇒ this node",
      // No loopback range is in it, so localhost node ports are off and so is their guard.
      "198.51.100.9@eth0 → 127.0.0.1:22 ⇒ this node",
      "198.51.100.9@eth0 → 192.0.2.77:30080 ⇒ untranslated",
    ],
  },
  {
    name: "nodePortAddresses with a loopback range keeps localhost",
    guards: ["node-port tail", "KUBE-FIREWALL"],
    objects: [WEB, TWO],
    options: { nodePortAddresses: ["192.168.0.0/16", "127.0.0.0/8"] },
    flows: [
      {
        flow: `127.0.0.1@node → 127.0.0.1:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node", ipvs: "this node" },
      },
      `198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ this node",
        instead: { ipvs: "this node, mark 0x4000 left" },
      },
      "127.0.0.1@node → 127.0.0.2:30080 ⇒ this node",
      {
        flow: "198.51.100.9@eth0 → 127.0.0.1:22 ⇒ dropped",
        instead: { nftables: "this node", ipvs: "this node", userspace: "this node" },
      },
    ],
  },
  {
    name: "a loopback address in nodePortAddresses is skipped while localhost node ports are off",
    guards: ["node-port tail"],
    objects: [WEB, TWO],
    options: { nodePortAddresses: ["192.168.0.0/16", "127.0.0.0/8"], localhostNodePorts: false },
    flows: [
      {
        flow: "127.0.0.1@node → 127.0.0.1:30080 ⇒ this node",
        instead: { userspace: "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade yes" },
      },
      `198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ ${EITHER}, masquerade yes`,
    ],
  },
  {
    name: "nodePortAddresses of the other family only means every address",
    guards: ["node-port tail"],
    objects: [WEB, TWO],
    options: { nodePortAddresses: ["fd00:7::/64"] },
    flows: [
      `198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: `127.0.0.1@node → 127.0.0.1:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node", ipvs: "this node" },
      },
    ],
  },
  {
    name: "a zero CIDR in nodePortAddresses overrides the others",
    guards: ["node-port tail"],
    objects: [WEB, TWO],
    options: { nodePortAddresses: ["192.0.2.0/24", "0.0.0.0/0"] },
    flows: [
      `198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: `127.0.0.1@node → 127.0.0.1:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node", ipvs: "this node" },
      },
    ],
  },
  {
    name: "nodePortAddresses primary means the node's own address",
    guards: ["node-port tail"],
    objects: [WEB, TWO],
    options: { nodePortAddresses: ["primary"] },
    flows: [
      `198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: "198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ this node",
        instead: { ipvs: "this node, mark 0x4000 left" },
      },
      "127.0.0.1@node → 127.0.0.1:30080 ⇒ this node",
    ],
  },
  {
    name: "a node port without endpoints refuses on every address of the node",
    guards: ["iptables 9", "vector 14"],
    objects: [WEB],
    flows: [
      { flow: "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ rejected", rejectWith: "icmp-port-unreachable" },
      { flow: "198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ rejected", instead: { nftables: "this node" } },
      "192.0.2.10@node → 192.0.2.10:30080 ⇒ rejected",
      {
        flow: "127.0.0.1@node → 127.0.0.1:30080 ⇒ rejected",
        instead: { nftables: "this node", ipvs: "this node" },
      },
      "198.51.100.9@eth0 → 192.0.2.10:30080/udp ⇒ this node",
      "10.244.0.5@cni0 → 198.51.100.50:30080 ⇒ untranslated",
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ rejected",
    ],
  },
  {
    name: "under external policy Local a node port keeps the client and to the node's endpoints",
    guards: ["iptables 17", "iptables 22"],
    objects: [LOCAL_WEB, TWO],
    flows: ["198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.0.11:8080, masquerade no"],
  },
  {
    name: "under external policy Local two endpoints of the node share what comes through the node port",
    guards: ["iptables 22"],
    objects: [
      LOCAL_WEB,
      slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.1.12@node-b", "10.244.0.13@node-a"]),
    ],
    flows: [
      "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.0.11:8080 (1/2) | 10.244.0.13:8080 (1/2), masquerade no",
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/3) | 10.244.0.13:8080 (1/3) | 10.244.1.12:8080 (1/3), masquerade no",
    ],
  },
  {
    name: "under external policy Local pods of the cluster reach every endpoint through the node port",
    guards: ["iptables 14"],
    objects: [LOCAL_WEB, TWO],
    flows: [
      {
        flow: `10.244.0.5@cni0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade no`,
        instead: { ipvs: "10.244.0.11:8080, masquerade no" },
      },
      {
        flow: `10.244.1.9@eth0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade no`,
        instead: { ipvs: "10.244.0.11:8080, masquerade no" },
      },
    ],
  },
  {
    name: "under external policy Local the node itself reaches every endpoint, masqueraded",
    guards: ["iptables 15", "iptables 16"],
    objects: [LOCAL_WEB, TWO],
    flows: [
      {
        flow: `192.0.2.10@node → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { ipvs: "10.244.0.11:8080, masquerade no" },
      },
      {
        flow: `192.168.7.10@node → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { ipvs: "10.244.0.11:8080, masquerade no" },
      },
      {
        flow: `127.0.0.1@node → 127.0.0.1:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { nftables: "this node", ipvs: "this node" },
      },
    ],
  },
  {
    name: "under external policy Local without a way to tell pods only the node itself is exempt",
    guards: ["iptables 14", "iptables 16"],
    objects: [LOCAL_WEB, TWO],
    options: { clusterCIDR: "" },
    flows: [
      "10.244.0.5@cni0 → 192.0.2.10:30080 ⇒ 10.244.0.11:8080, masquerade no",
      {
        flow: `192.0.2.10@node → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
        instead: { ipvs: "10.244.0.11:8080, masquerade no" },
      },
    ],
  },
  {
    name: "under external policy Local pods are told by their interface where that is configured",
    guards: ["iptables 14"],
    objects: [LOCAL_WEB, TWO],
    options: { detectLocalMode: "InterfaceNamePrefix", interfaceNamePrefix: "veth" },
    flows: [
      {
        flow: `10.244.0.5@veth7 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade no`,
        instead: { ipvs: "10.244.0.11:8080, masquerade no" },
      },
      "10.244.1.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.0.11:8080, masquerade no",
    ],
  },
  {
    name:
      "under external policy Local without an endpoint on the node clients outside are dropped, pods and the node are not",
    guards: ["iptables 9", "iptables 14", "iptables 16", "iptables 17", "vector 10"],
    objects: [LOCAL_WEB, REMOTE],
    flows: [
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ dropped",
        instead: { ipvs: "10.244.1.12:8080, masquerade no", userspace: "closed" },
      },
      "10.244.0.5@cni0 → 192.0.2.10:30080 ⇒ 10.244.1.12:8080, masquerade no",
      {
        flow: "192.0.2.10@node → 192.0.2.10:30080 ⇒ 10.244.1.12:8080, masquerade yes",
        instead: { ipvs: "10.244.1.12:8080, masquerade no" },
      },
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.1.12:8080, masquerade no",
    ],
  },
  {
    name: "under external policy Local a pod that reaches itself through the node port is masqueraded",
    guards: ["hairpin"],
    objects: [LOCAL_WEB, slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a"])],
    options: { clusterCIDR: "" },
    flows: ["10.244.0.11@cni0 → 192.0.2.10:30080 ⇒ 10.244.0.11:8080, masquerade yes"],
  },
  {
    name: "policies are told apart: internal Local and external Cluster",
    guards: ["iptables 1", "iptables 17", "iptables 21", "iptables 22"],
    objects: [
      service("shop/web", {
        type: "NodePort",
        clusterIP: "10.96.0.1",
        internalTrafficPolicy: "Local",
        ports: ["http:80:30080"],
      }),
      TWO,
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080, masquerade no",
      `198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ ${EITHER}, masquerade yes`,
    ],
  },
  {
    name:
      "both policies Local with an endpoint elsewhere: cluster IP dropped for all, node port open to pods and node",
    guards: ["iptables 2", "iptables 9", "iptables 16"],
    objects: [
      service("shop/web", {
        type: "NodePort",
        clusterIP: "10.96.0.1",
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
        ports: ["http:80:30080"],
      }),
      REMOTE,
    ],
    flows: [
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:80 ⇒ dropped",
        instead: { ipvs: "10.244.1.12:8080, masquerade no", userspace: "closed" },
      },
      {
        flow: "192.0.2.10@node → 10.96.0.1:80 ⇒ dropped",
        instead: { ipvs: "10.244.1.12:8080, masquerade yes", userspace: "closed" },
      },
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ dropped",
        instead: { ipvs: "10.244.1.12:8080, masquerade no", userspace: "closed" },
      },
      "10.244.0.5@cni0 → 192.0.2.10:30080 ⇒ 10.244.1.12:8080, masquerade no",
      {
        flow: "192.0.2.10@node → 192.0.2.10:30080 ⇒ 10.244.1.12:8080, masquerade yes",
        instead: { ipvs: "10.244.1.12:8080, masquerade no" },
      },
    ],
  },
];
