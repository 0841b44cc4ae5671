/** Flow cases of load-balancer IPs: source ranges, IP modes, health-check node ports. */
import type { FlowCase } from "../flow_case.ts";
import { service, type ServiceSpec, slice } from "../objects.ts";

const SPEC: ServiceSpec = {
  type: "LoadBalancer",
  clusterIP: "10.96.0.5",
  ports: ["rest:8080:31080"],
  ingress: [{ ip: "203.0.113.50" }],
};
const ENDPOINT = slice("edge/api.1", ["rest:9090"], ["10.244.1.51@node-b"]);
const TO_ENDPOINT = "10.244.1.51:9090, masquerade yes";

function api(changes: Partial<ServiceSpec> = {}) {
  return service("edge/api", { ...SPEC, ...changes });
}

export const LOAD_BALANCER_CASES: readonly FlowCase[] = [
  {
    name: "a load-balancer IP leads to the endpoints, masqueraded",
    guards: ["iptables 5", "iptables 13", "iptables 17"],
    objects: [api(), ENDPOINT],
    flows: [
      `198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `192.0.2.10@node → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      { flow: "198.51.100.9@eth0 → 203.0.113.50:80 ⇒ untranslated", instead: { ipvs: "rejected" } },
      { flow: "198.51.100.9@eth0 → 203.0.113.50/icmp ⇒ untranslated", instead: { ipvs: "rejected" } },
    ],
  },
  {
    name: "source ranges let their clients in and drop all others",
    guards: ["iptables 6", "iptables 18", "iptables 20"],
    objects: [api({ loadBalancerSourceRanges: ["198.18.0.0/15", " 198.51.100.64/26 "] }), ENDPOINT],
    flows: [
      `198.19.255.1@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `198.51.100.65@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      {
        flow: "198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ dropped",
        counted: "other traffic to edge/api:rest",
        instead: { nftables: "dropped", ipvs: "dropped", userspace: "untranslated" },
      },
      { flow: "10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ dropped", instead: { userspace: "untranslated" } },
      {
        flow: "192.0.2.10@node → 203.0.113.50:8080 ⇒ dropped",
        instead: { ipvs: "10.244.1.51:9090, masquerade yes", userspace: "10.244.1.51:9090, masquerade yes" },
      },
      { flow: "198.51.100.9@eth0 → 203.0.113.50:80 ⇒ untranslated", instead: { ipvs: "rejected" } },
      { flow: "198.51.100.9@eth0 → 203.0.113.50:8080/udp ⇒ untranslated", instead: { ipvs: "rejected" } },
    ],
  },
  {
    name: "source ranges guard a load-balancer IP that is an address of the node",
    guards: ["iptables 6", "iptables 18"],
    objects: [
      api({ loadBalancerSourceRanges: ["198.18.0.0/15"], ingress: [{ ip: "192.168.7.10" }] }),
      ENDPOINT,
    ],
    flows: [
      `198.18.0.1@eth1 → 192.168.7.10:8080 ⇒ ${TO_ENDPOINT}`,
      { flow: "198.51.100.9@eth1 → 192.168.7.10:8080 ⇒ dropped", instead: { userspace: "this node" } },
    ],
  },
  {
    name: "source ranges do not limit cluster IP, node port and external IP",
    guards: ["iptables 3", "iptables 8", "iptables 18"],
    objects: [
      api({ loadBalancerSourceRanges: ["198.18.0.0/15"], externalIPs: ["198.51.100.7"] }),
      ENDPOINT,
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.5:8080 ⇒ 10.244.1.51:9090, masquerade no",
      `198.51.100.9@eth0 → 192.0.2.10:31080 ⇒ ${TO_ENDPOINT}`,
      `198.51.100.9@eth0 → 198.51.100.7:8080 ⇒ ${TO_ENDPOINT}`,
      { flow: "198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ dropped", instead: { userspace: "untranslated" } },
    ],
  },
  {
    name: "a source range with the node in it lets the node in, also with the load-balancer IP as its source",
    guards: ["iptables 18", "iptables 19"],
    objects: [
      api({
        loadBalancerSourceRanges: ["198.18.0.0/15", "192.0.2.0/24"],
        ingress: [{ ip: "203.0.113.50" }, { ip: "203.0.113.52" }],
      }),
      ENDPOINT,
    ],
    flows: [
      `192.0.2.10@node → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `203.0.113.50@node → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `203.0.113.52@node → 203.0.113.52:8080 ⇒ ${TO_ENDPOINT}`,
      {
        flow: "203.0.113.51@node → 203.0.113.50:8080 ⇒ dropped",
        instead: { ipvs: "10.244.1.51:9090, masquerade yes", userspace: "10.244.1.51:9090, masquerade yes" },
      },
    ],
  },
  {
    name: "a source range without the node keeps the load-balancer IP as a source out",
    guards: ["iptables 19"],
    objects: [api({ loadBalancerSourceRanges: ["198.18.0.0/15"] }), ENDPOINT],
    flows: [{
      flow: "203.0.113.50@node → 203.0.113.50:8080 ⇒ dropped",
      instead: { userspace: "10.244.1.51:9090, masquerade yes" },
    }],
  },
  {
    name: "a source range of zero length is no restriction",
    guards: ["iptables 5", "iptables 18"],
    objects: [api({ loadBalancerSourceRanges: ["198.18.0.0/15", "0.0.0.0/0"] }), ENDPOINT],
    flows: [
      `198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
    ],
  },
  {
    name: "source ranges of the other family only are no restriction",
    guards: ["iptables 5", "iptables 18"],
    objects: [api({ loadBalancerSourceRanges: ["2001:db8::/32"] }), ENDPOINT],
    flows: [`198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`],
  },
  {
    name: "source ranges mean nothing while there is no load-balancer IP",
    guards: ["iptables 18"],
    objects: [api({ loadBalancerSourceRanges: ["198.18.0.0/15"], ingress: [] }), ENDPOINT],
    flows: [
      `198.51.100.9@eth0 → 192.0.2.10:31080 ⇒ ${TO_ENDPOINT}`,
      "198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ untranslated",
    ],
  },
  {
    name: "a Service that is no longer a load balancer keeps its address but not its external policy",
    guards: ["vector 13", "iptables 5"],
    objects: [
      service("edge/api", {
        type: "ClusterIP",
        clusterIP: "10.96.0.5",
        externalTrafficPolicy: "Local",
        ports: ["rest:8080"],
        ingress: [{ ip: "203.0.113.50" }],
      }),
      ENDPOINT,
    ],
    flows: [`198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`],
  },
  {
    name: "a source range is its whole network",
    guards: ["iptables 18"],
    objects: [api({ loadBalancerSourceRanges: ["198.18.1.2/15"] }), ENDPOINT],
    flows: [
      `198.19.9.9@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      { flow: "198.20.0.1@eth0 → 203.0.113.50:8080 ⇒ dropped", instead: { userspace: "untranslated" } },
    ],
  },
  {
    name: "what the source ranges refuse stays refused even if something marked it for masquerading",
    guards: ["jump order", "iptables 6"],
    objects: [api({ loadBalancerSourceRanges: ["198.18.0.0/15"] }), ENDPOINT],
    flows: [{
      flow: "198.51.100.9@eth0 → 203.0.113.50:8080 mark 0x4000 ⇒ dropped",
      instead: { userspace: "untranslated, mark 0x4000 left" },
    }],
  },
  {
    name: "a load-balancer IP in mode Proxy is none of our business",
    guards: ["iptables 5", "iptables 7"],
    objects: [
      api({
        loadBalancerSourceRanges: ["198.18.0.0/15"],
        ingress: [{ ip: "203.0.113.50", ipMode: "VIP" }, { ip: "203.0.113.51", ipMode: "Proxy" }, {
          hostname: "lb.example",
        }],
      }),
      ENDPOINT,
    ],
    flows: [
      `198.18.0.1@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      "198.18.0.1@eth0 → 203.0.113.51:8080 ⇒ untranslated",
      "198.51.100.9@eth0 → 203.0.113.51:8080 ⇒ untranslated",
      "10.244.0.5@cni0 → 203.0.113.51:8080 ⇒ untranslated",
    ],
  },
  {
    name: "a load-balancer IP in mode Proxy is not refused without endpoints either",
    guards: ["iptables 7"],
    objects: [api({ ingress: [{ ip: "203.0.113.51", ipMode: "Proxy" }] })],
    flows: ["10.244.0.5@cni0 → 203.0.113.51:8080 ⇒ untranslated"],
  },
  {
    name: "a load-balancer IP without endpoints refuses, source ranges or not",
    guards: ["iptables 7", "vector 14"],
    objects: [
      api({
        loadBalancerSourceRanges: ["198.18.0.0/15"],
        ingress: [{ ip: "203.0.113.50" }, { ip: "203.0.113.52" }],
      }),
    ],
    flows: [
      "198.18.0.1@eth0 → 203.0.113.50:8080 ⇒ rejected",
      {
        flow: "198.51.100.9@eth0 → 203.0.113.52:8080 ⇒ rejected",
        instead: { nftables: "dropped", ipvs: "dropped", userspace: "untranslated" },
      },
      {
        flow: "10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ rejected",
        instead: { nftables: "dropped", ipvs: "dropped", userspace: "untranslated" },
      },
    ],
  },
  {
    name: "a load-balancer IP under external policy Local keeps the client and to the node's endpoints",
    guards: ["iptables 5", "iptables 14", "iptables 16", "iptables 22"],
    objects: [
      api({ externalTrafficPolicy: "Local" }),
      slice("edge/api.1", ["rest:9090"], ["10.244.0.50@node-a", "10.244.1.51@node-b"]),
    ],
    flows: [
      "198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ 10.244.0.50:9090, masquerade no",
      {
        flow:
          "10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ 10.244.0.50:9090 (1/2) | 10.244.1.51:9090 (1/2), masquerade no",
        instead: { ipvs: "10.244.0.50:9090, masquerade no" },
      },
      {
        flow:
          "192.0.2.10@node → 203.0.113.50:8080 ⇒ 10.244.0.50:9090 (1/2) | 10.244.1.51:9090 (1/2), masquerade yes",
        instead: { ipvs: "10.244.0.50:9090, masquerade no" },
      },
    ],
  },
  {
    name: "UDP to a load-balancer IP under external policy Local is shared by the node's endpoints",
    guards: ["iptables 5", "iptables 22"],
    objects: [
      api({ externalTrafficPolicy: "Local", ports: ["rest:8080:31080/UDP"] }),
      slice("edge/api.1", ["rest:9090/UDP"], [
        "10.244.0.50@node-a",
        "10.244.1.51@node-b",
        "10.244.0.52@node-a",
      ]),
    ],
    flows: [
      "198.51.100.9@eth0 → 203.0.113.50:8080/udp ⇒ 10.244.0.50:9090 (1/2) | 10.244.0.52:9090 (1/2), masquerade no",
      "198.51.100.9@eth0 → 192.0.2.10:31080/udp ⇒ 10.244.0.50:9090 (1/2) | 10.244.0.52:9090 (1/2), masquerade no",
      "198.51.100.9@eth0 → 192.0.2.10:31080 ⇒ this node",
    ],
  },
  {
    name:
      "a load-balancer IP under external policy Local without an endpoint on the node drops clients outside",
    guards: ["iptables 7", "iptables 17"],
    objects: [api({ externalTrafficPolicy: "Local" }), ENDPOINT],
    flows: [
      {
        flow: "198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ dropped",
        instead: { ipvs: "10.244.1.51:9090, masquerade no", userspace: "closed" },
      },
      "10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ 10.244.1.51:9090, masquerade no",
      {
        flow: "192.0.2.10@node → 203.0.113.50:8080 ⇒ 10.244.1.51:9090, masquerade yes",
        instead: { ipvs: "10.244.1.51:9090, masquerade no" },
      },
    ],
  },
  {
    name: "source ranges and external policy Local together: in range and a local endpoint, or nothing",
    guards: ["iptables 6", "iptables 18", "iptables 22"],
    objects: [
      api({ externalTrafficPolicy: "Local", loadBalancerSourceRanges: ["198.18.0.0/15"] }),
      slice("edge/api.1", ["rest:9090"], ["10.244.0.50@node-a", "10.244.1.51@node-b"]),
    ],
    flows: [
      "198.18.0.1@eth0 → 203.0.113.50:8080 ⇒ 10.244.0.50:9090, masquerade no",
      { flow: "198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ dropped", instead: { userspace: "untranslated" } },
      // The ranges come first: pods and the node are no exception to them.
      { flow: "10.244.0.5@cni0 → 203.0.113.50:8080 ⇒ dropped", instead: { userspace: "untranslated" } },
      {
        flow: "192.0.2.10@node → 203.0.113.50:8080 ⇒ dropped",
        instead: {
          ipvs: "10.244.0.50:9090, masquerade no",
          userspace: "10.244.0.50:9090 (1/2) | 10.244.1.51:9090 (1/2), masquerade yes",
        },
      },
    ],
  },
  {
    name: "internal policy Local and no endpoint on the node leave the load balancer's own path open",
    guards: ["vector 12", "iptables 2"],
    objects: [api({ internalTrafficPolicy: "Local" }), ENDPOINT],
    flows: [
      {
        flow: "10.244.0.5@cni0 → 10.96.0.5:8080 ⇒ dropped",
        instead: { ipvs: "10.244.1.51:9090, masquerade no", userspace: "closed" },
      },
      `198.51.100.9@eth0 → 203.0.113.50:8080 ⇒ ${TO_ENDPOINT}`,
      `198.51.100.9@eth0 → 192.0.2.10:31080 ⇒ ${TO_ENDPOINT}`,
    ],
  },
  {
    name: "the health-check node port is open through a closed host firewall, endpoints or not",
    guards: ["iptables 10"],
    objects: [
      api({ externalTrafficPolicy: "Local", healthCheckNodePort: 32001 }),
      service("edge/dns", {
        type: "LoadBalancer",
        clusterIP: "10.96.0.6",
        externalTrafficPolicy: "Local",
        healthCheckNodePort: 32002,
        ports: ["dns:53:31053/UDP"],
      }),
      ENDPOINT,
    ],
    options: { policies: { INPUT: "DROP", FORWARD: "ACCEPT" } },
    flows: [
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:32001 ⇒ this node",
        instead: { nftables: "dropped", userspace: "dropped" },
      },
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:32002 ⇒ this node",
        instead: { nftables: "dropped", userspace: "dropped" },
      },
      { flow: "198.51.100.9@eth0 → 192.0.2.10:32002/udp ⇒ dropped", instead: { ipvs: "this node" } },
      "198.51.100.9@eth0 → 192.0.2.10:32003 ⇒ dropped",
    ],
  },
  {
    name: "a health-check node port counts only for a load balancer under external policy Local",
    guards: ["iptables 10"],
    objects: [api({ healthCheckNodePort: 32001 }), ENDPOINT],
    options: { policies: { INPUT: "DROP", FORWARD: "ACCEPT" } },
    flows: ["198.51.100.9@eth0 → 192.0.2.10:32001 ⇒ dropped"],
  },
];
