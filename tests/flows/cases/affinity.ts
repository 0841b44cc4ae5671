/** Flow cases of ClientIP affinity. */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const TWO = slice("shop/cart.1", [":6379"], ["10.244.0.21@node-a", "10.244.1.22@node-b"]);
const EITHER = "10.244.0.21:6379 (1/2) | 10.244.1.22:6379 (1/2)";

function cart(seconds: number) {
  return service("shop/cart", {
    clusterIP: "10.96.0.2",
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds: seconds } },
    ports: [":6379"],
  });
}

export const AFFINITY_CASES: readonly FlowCase[] = [
  {
    name: "with affinity a client stays with its endpoint until the time is over, others choose freely",
    guards: ["affinity lookup", "affinity record", "iptables 21", "iptables 23"],
    objects: [cart(600), TWO],
    flows: [
      { flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, takes: "10.244.1.22:6379" },
      { flow: "10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ 10.244.1.22:6379, masquerade no", atSeconds: 5 },
      { flow: `10.244.0.6@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, atSeconds: 6 },
      { flow: "10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ 10.244.1.22:6379, masquerade no", atSeconds: 599 },
      { flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, atSeconds: 601 },
    ],
  },
  {
    name: "every new connection starts the affinity time afresh",
    guards: ["affinity record"],
    objects: [cart(600), TWO],
    flows: [
      {
        flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`,
        takes: "10.244.0.21:6379",
      },
      {
        flow: "10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ 10.244.0.21:6379, masquerade no",
        atSeconds: 500,
        takes: "10.244.0.21:6379",
      },
      { flow: "10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ 10.244.0.21:6379, masquerade no", atSeconds: 1000 },
    ],
  },
  {
    name: "affinity lasts three hours unless the Service says otherwise",
    guards: ["affinity lookup"],
    objects: [
      service("shop/cart", { clusterIP: "10.96.0.2", sessionAffinity: "ClientIP", ports: [":6379"] }),
      TWO,
    ],
    flows: [
      { flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, takes: "10.244.0.21:6379" },
      { flow: "10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ 10.244.0.21:6379, masquerade no", atSeconds: 10799 },
      { flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, atSeconds: 10801 },
    ],
  },
  {
    name: "without affinity nothing is remembered",
    guards: ["affinity record"],
    objects: [service("shop/cart", { clusterIP: "10.96.0.2", ports: [":6379"] }), TWO],
    flows: [
      { flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, takes: "10.244.0.21:6379" },
      { flow: `10.244.0.5@cni0 → 10.96.0.2:6379 ⇒ ${EITHER}, masquerade no`, atSeconds: 1 },
    ],
  },
  {
    name:
      "a client keeps its endpoint across cluster IP, node port and load-balancer IP, and across policies",
    guards: ["affinity lookup", "iptables 22"],
    objects: [
      service("shop/cart", {
        type: "LoadBalancer",
        clusterIP: "10.96.0.2",
        externalTrafficPolicy: "Local",
        sessionAffinity: "ClientIP",
        ports: [":6379:30379"],
        ingress: [{ ip: "203.0.113.20" }],
      }),
      slice("shop/cart.1", [":6379"], ["10.244.0.21@node-a", "10.244.0.23@node-a", "10.244.1.22@node-b"]),
    ],
    flows: [
      {
        flow:
          "198.51.100.9@eth0 → 192.0.2.10:30379 ⇒ 10.244.0.21:6379 (1/2) | 10.244.0.23:6379 (1/2), masquerade no",
        takes: "10.244.0.23:6379",
      },
      {
        flow: "198.51.100.9@eth0 → 203.0.113.20:6379 ⇒ 10.244.0.23:6379, masquerade no",
        atSeconds: 1,
        instead: { ipvs: "10.244.0.21:6379 (1/2) | 10.244.0.23:6379 (1/2), masquerade no" },
      },
      {
        flow: "198.51.100.9@eth0 → 10.96.0.2:6379 ⇒ 10.244.0.23:6379, masquerade yes",
        atSeconds: 2,
        instead: {
          userspace:
            "10.244.0.21:6379 (1/3) | 10.244.0.23:6379 (1/3) | 10.244.1.22:6379 (1/3), masquerade yes",
          ipvs: "10.244.0.21:6379 (1/3) | 10.244.0.23:6379 (1/3) | 10.244.1.22:6379 (1/3), masquerade yes",
        },
      },
    ],
  },
  {
    name: "affinity is kept per port of a Service",
    guards: ["affinity record"],
    objects: [
      service("shop/cart", {
        clusterIP: "10.96.0.2",
        sessionAffinity: "ClientIP",
        ports: ["a:1000", "b:2000"],
      }),
      slice("shop/cart.1", ["a:6379", "b:6380"], ["10.244.0.21@node-a", "10.244.1.22@node-b"]),
    ],
    flows: [
      { flow: `10.244.0.5@cni0 → 10.96.0.2:1000 ⇒ ${EITHER}, masquerade no`, takes: "10.244.0.21:6379" },
      "10.244.0.5@cni0 → 10.96.0.2:1000 ⇒ 10.244.0.21:6379, masquerade no",
      "10.244.0.5@cni0 → 10.96.0.2:2000 ⇒ 10.244.0.21:6380 (1/2) | 10.244.1.22:6380 (1/2), masquerade no",
    ],
  },
  {
    name: "affinity under internal policy Local chooses among the node's endpoints",
    guards: ["affinity lookup", "affinity record", "iptables 22"],
    objects: [
      service("shop/cart", {
        clusterIP: "10.96.0.2",
        internalTrafficPolicy: "Local",
        sessionAffinity: "ClientIP",
        ports: [":6379/UDP"],
      }),
      slice("shop/cart.1", [":6379/UDP"], [
        "10.244.0.21@node-a",
        "10.244.0.23@node-a",
        "10.244.1.22@node-b",
      ]),
    ],
    flows: [
      {
        flow:
          "10.244.0.5@cni0 → 10.96.0.2:6379/udp ⇒ 10.244.0.21:6379 (1/2) | 10.244.0.23:6379 (1/2), masquerade no",
        takes: "10.244.0.21:6379",
      },
      { flow: "10.244.0.5@cni0 → 10.96.0.2:6379/udp ⇒ 10.244.0.21:6379, masquerade no", atSeconds: 5 },
    ],
  },
  {
    name: "affinity hides clients outside as anything else does",
    guards: ["affinity lookup", "iptables 13"],
    objects: [
      service("shop/cart", {
        type: "NodePort",
        clusterIP: "10.96.0.2",
        sessionAffinity: "ClientIP",
        ports: [":6379:30379"],
      }),
      TWO,
    ],
    flows: [
      {
        flow: `198.51.100.9@eth0 → 192.0.2.10:30379 ⇒ ${EITHER}, masquerade yes`,
        takes: "10.244.0.21:6379",
      },
      { flow: "198.51.100.9@eth0 → 192.0.2.10:30379 ⇒ 10.244.0.21:6379, masquerade yes", atSeconds: 5 },
    ],
  },
  {
    name: "affinity under IPv6",
    guards: ["affinity lookup", "affinity record"],
    objects: [
      service("shop/cart6", { clusterIP: "fd00:10:96::2", sessionAffinity: "ClientIP", ports: [":6379"] }),
      slice("shop/cart6.1", [":6379"], ["fd00:10:244::21@node-a", "fd00:10:244:1::22@node-b"]),
    ],
    flows: [
      {
        flow:
          "fd00:10:244::5@cni0 → [fd00:10:96::2]:6379 ⇒ [fd00:10:244:1::22]:6379 (1/2) | [fd00:10:244::21]:6379 (1/2), masquerade no",
        takes: "[fd00:10:244::21]:6379",
      },
      {
        flow: "fd00:10:244::5@cni0 → [fd00:10:96::2]:6379 ⇒ [fd00:10:244::21]:6379, masquerade no",
        atSeconds: 60,
      },
    ],
  },
];
