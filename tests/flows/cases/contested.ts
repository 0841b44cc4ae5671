/**
 * Flow cases of addresses and node ports that several Services want. Where they run one after the other, each is a change
 * of the one before it: winners come and go.
 */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const OLD = "2024-01-01T00:00:00Z";
const NEW = "2024-06-01T00:00:00Z";
/** The first by name among all, and no younger than the others. */
const GREEDY_SPEC = {
  createdAt: OLD,
  clusterIP: "10.96.0.66",
  externalIPs: ["10.96.0.1", "198.51.100.66"],
  ports: ["tls:443"],
};
const GREEDY = service("a/greedy", GREEDY_SPEC);
const GREEDY_PODS = slice("a/greedy.1", ["tls:6666"], ["10.244.0.41@node-a"]);
const KUBERNETES = service("default/kubernetes", {
  createdAt: NEW,
  clusterIP: "10.96.0.1",
  ports: ["tls:443"],
});
const KUBERNETES_PODS = slice("default/kubernetes.1", ["tls:6443"], ["10.244.1.51@node-b"]);

const balancer = (name: string, clusterIP: string, createdAt?: string) =>
  service(name, {
    ...(createdAt === undefined ? {} : { createdAt }),
    type: "LoadBalancer",
    clusterIP,
    ports: ["http:80:30080"],
    externalIPs: ["198.51.100.7"],
    ingress: [{ ip: "203.0.113.7" }],
  });
const Z_PODS = slice("z/web.1", ["http:8080"], ["10.244.0.11@node-a"]);
const B_PODS = slice("b/web.1", ["http:8080"], ["10.244.0.12@node-a"]);
const C_PODS = slice("c/web.1", ["http:8080"], ["10.244.0.13@node-a"]);
const contested = (pod: string): readonly string[] => [
  `198.51.100.9@eth0 → 198.51.100.7:80 ⇒ ${pod}:8080, masquerade yes`,
  `198.51.100.9@eth0 → 203.0.113.7:80 ⇒ ${pod}:8080, masquerade yes`,
  `198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ ${pod}:8080, masquerade yes`,
];
const CLUSTER_IPS = [
  "10.244.0.5@cni0 → 10.96.0.2:80 ⇒ 10.244.0.12:8080, masquerade no",
  "10.244.0.5@cni0 → 10.96.0.3:80 ⇒ 10.244.0.13:8080, masquerade no",
];

export const CONTESTED_CASES: readonly FlowCase[] = [
  {
    name: "an external IP is served while no Service has it as its cluster IP",
    guards: ["iptables 3"],
    objects: [GREEDY, GREEDY_PODS],
    flows: [
      {
        flow: "10.244.0.5@cni0 → 10.96.0.1:443 ⇒ 10.244.0.41:6666, masquerade yes",
        instead: { userspace: "untranslated" },
      },
      {
        flow: "10.244.0.5@cni0 → 198.51.100.66:443 ⇒ 10.244.0.41:6666, masquerade yes",
        instead: { userspace: "untranslated" },
      },
    ],
  },
  {
    name: "no Service takes another one's cluster IP, not even an older one that is first by name",
    guards: ["iptables 3"],
    objects: [GREEDY, GREEDY_PODS, KUBERNETES, KUBERNETES_PODS],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.1:443 ⇒ 10.244.1.51:6443, masquerade no",
      {
        flow: "10.244.0.5@cni0 → 198.51.100.66:443 ⇒ 10.244.0.41:6666, masquerade yes",
        instead: { userspace: "untranslated" },
      },
      "10.244.0.5@cni0 → 10.96.0.66:443 ⇒ 10.244.0.41:6666, masquerade no",
    ],
  },
  {
    name: "no Service takes the cluster IP of a Service without endpoints",
    guards: ["iptables 2"],
    objects: [GREEDY, GREEDY_PODS, KUBERNETES],
    flows: ["10.244.0.5@cni0 → 10.96.0.1:443 ⇒ rejected"],
  },
  {
    name: "of Services without creation times the first by name has what several want",
    guards: ["iptables 3"],
    objects: [balancer("c/web", "10.96.0.3"), C_PODS, balancer("b/web", "10.96.0.2"), B_PODS],
    flows: [...contested("10.244.0.12"), ...CLUSTER_IPS],
  },
  {
    name:
      "the older of two Services has what both want, and one that has no creation time is younger than any",
    guards: ["iptables 3", "iptables 12"],
    objects: [
      balancer("b/web", "10.96.0.2"),
      B_PODS,
      balancer("c/web", "10.96.0.3", NEW),
      C_PODS,
      balancer("z/web", "10.96.0.9", OLD),
      Z_PODS,
    ],
    flows: [...contested("10.244.0.11"), ...CLUSTER_IPS],
  },
  {
    name: "the next one takes over when the Service goes that had what several want",
    guards: ["iptables 3", "iptables 12"],
    objects: [balancer("b/web", "10.96.0.2"), B_PODS, balancer("c/web", "10.96.0.3", NEW), C_PODS],
    flows: [...contested("10.244.0.13"), ...CLUSTER_IPS],
  },
  {
    name: "the next one takes over what a Service does not want any more",
    guards: ["iptables 3", "iptables 12"],
    objects: [
      balancer("b/web", "10.96.0.2"),
      B_PODS,
      service("c/web", { createdAt: NEW, clusterIP: "10.96.0.3", ports: ["http:80"] }),
      C_PODS,
    ],
    flows: [...contested("10.244.0.12"), ...CLUSTER_IPS],
  },
  {
    name: "the same port of another protocol is another destination",
    guards: ["iptables 3"],
    objects: [
      service("z/dns", {
        createdAt: OLD,
        type: "NodePort",
        clusterIP: "10.96.0.4",
        externalIPs: ["198.51.100.7"],
        ports: ["dns:53:30053/UDP"],
      }),
      slice("z/dns.1", ["dns:5353/UDP"], ["10.244.0.14@node-a"]),
      service("b/dns", {
        createdAt: NEW,
        type: "NodePort",
        clusterIP: "10.96.0.2",
        externalIPs: ["198.51.100.7"],
        ports: ["dns:53:30053"],
      }),
      slice("b/dns.1", ["dns:5353"], ["10.244.0.12@node-a"]),
    ],
    flows: [
      "198.51.100.9@eth0 → 198.51.100.7:53/udp ⇒ 10.244.0.14:5353, masquerade yes",
      "198.51.100.9@eth0 → 198.51.100.7:53 ⇒ 10.244.0.12:5353, masquerade yes",
      "198.51.100.9@eth0 → 192.0.2.10:30053/udp ⇒ 10.244.0.14:5353, masquerade yes",
      "198.51.100.9@eth0 → 192.0.2.10:30053 ⇒ 10.244.0.12:5353, masquerade yes",
    ],
  },
  {
    name: "of two Services with one cluster IP the older is served, and the other not at all",
    guards: ["iptables 1"],
    objects: [
      service("b/web", {
        createdAt: NEW,
        type: "NodePort",
        clusterIP: "10.96.0.2",
        ports: ["http:80:30080"],
      }),
      B_PODS,
      service("z/web", { createdAt: OLD, clusterIP: "10.96.0.2", ports: ["http:80"] }),
      Z_PODS,
      service("c/web", {
        type: "NodePort",
        clusterIP: "10.96.0.3",
        externalIPs: ["198.51.100.7"],
        ports: ["http:80:30080"],
      }),
      C_PODS,
    ],
    flows: [
      "10.244.0.5@cni0 → 10.96.0.2:80 ⇒ 10.244.0.11:8080, masquerade no",
      "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.0.13:8080, masquerade yes",
    ],
  },
  {
    name: "an external IP that is the node's goes before a node port",
    guards: ["iptables 3", "iptables 12"],
    objects: [
      service("b/web", {
        createdAt: OLD,
        type: "NodePort",
        clusterIP: "10.96.0.2",
        ports: ["http:80:30080"],
      }),
      B_PODS,
      service("c/web", {
        createdAt: NEW,
        clusterIP: "10.96.0.3",
        externalIPs: ["192.168.7.10"],
        ports: ["http:30080"],
      }),
      C_PODS,
    ],
    flows: [
      "198.51.100.9@eth1 → 192.168.7.10:30080 ⇒ 10.244.0.13:8080, masquerade yes",
      "198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ 10.244.0.12:8080, masquerade yes",
    ],
  },
  {
    name: "load-balancer IPs of special use are not served",
    guards: ["iptables 3"],
    objects: [
      service("edge/odd", {
        type: "LoadBalancer",
        clusterIP: "10.96.0.8",
        ports: ["http:80"],
        ingress: ["0.0.0.0", "127.0.0.1", "169.254.169.254", "224.0.0.1", "::1", "fe80::1", "203.0.113.8"]
          .map((ip) => ({ ip })),
      }),
      slice("edge/odd.1", ["http:8080"], ["10.244.0.12@node-a"]),
    ],
    flows: [
      "198.51.100.9@eth0 → 203.0.113.8:80 ⇒ 10.244.0.12:8080, masquerade yes",
      "10.244.0.5@cni0 → 169.254.169.254:80 ⇒ untranslated",
    ],
  },
];
