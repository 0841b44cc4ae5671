/**
 * Flow cases of the endpoints' choice: readiness, termination, topology hints, merged slices. The node is
 * `node-a` in zone `z1`.
 */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const WEB = service("s/web", { clusterIP: "10.96.0.1", ports: ["http:80"] });
const INTERNAL_LOCAL = service("s/web", {
  clusterIP: "10.96.0.1",
  internalTrafficPolicy: "Local",
  ports: ["http:80"],
});
const EXTERNAL_LOCAL = service("s/web", {
  type: "NodePort",
  clusterIP: "10.96.0.1",
  externalTrafficPolicy: "Local",
  ports: ["http:80:30080"],
});

function endpoints(...texts: readonly string[]) {
  return slice("s/web.1", ["http:8080"], texts);
}

/** What a pod gets from the cluster IP. */
function pod(result: string): string {
  return `10.244.9.9@cni0 → 10.96.0.1:80 ⇒ ${result}`;
}

/** What a client outside gets from the node port. */
function client(result: string): string {
  return `198.51.100.9@eth0 → 192.0.2.10:30080 ⇒ ${result}`;
}

const A = "10.244.0.1:8080";
const B = "10.244.0.2:8080";
const EITHER = `${A} (1/2) | ${B} (1/2)`;

const CLUSTER_CASES: readonly FlowCase[] = [
  {
    name: "ready endpoints on any node take cluster traffic",
    guards: ["vector 1"],
    objects: [WEB, endpoints("10.244.0.1@node-a ready", "10.244.0.2@node-b ready")],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "a draining endpoint takes traffic while none is ready",
    guards: ["vector 2"],
    objects: [WEB, endpoints("10.244.0.1@node-a draining", "10.244.0.2@node-b unready")],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "a draining endpoint takes nothing while another is ready",
    guards: ["vector 2"],
    objects: [WEB, endpoints("10.244.0.1@node-a draining", "10.244.0.2@node-b ready")],
    flows: [pod(`${B}, masquerade no`)],
  },
  {
    name: "terminating endpoints that no longer serve count for nothing",
    guards: ["vector 2", "vector 14"],
    objects: [WEB, endpoints("10.244.0.1@node-a gone", "10.244.0.2@node-b unready")],
    flows: [pod("rejected")],
  },
  {
    name: "an endpoint that is not ready and not terminating is no fallback, even if it serves",
    guards: ["vector 2"],
    objects: [WEB, endpoints("10.244.0.1@node-a silent", "10.244.0.2@node-b draining")],
    flows: [pod(`${B}, masquerade no`)],
  },
  {
    name: "an endpoint that does not say is ready",
    guards: ["vector 1"],
    objects: [WEB, endpoints("10.244.0.1@node-a", "10.244.0.2@node-b unready")],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "zone hints keep traffic in the node's zone",
    guards: ["vector 3"],
    objects: [WEB, endpoints("10.244.0.1 zones=z1", "10.244.0.2 zones=z2")],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "an endpoint may be meant for several zones",
    guards: ["vector 3"],
    objects: [WEB, endpoints("10.244.0.1 zones=z2,z1", "10.244.0.2 zones=z1", "10.244.0.3 zones=z2,z3")],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "one ready endpoint without a zone hint switches zone hints off",
    guards: ["vector 4"],
    objects: [WEB, endpoints("10.244.0.1 zones=z1", "10.244.0.2")],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "zone hints are ignored where none names the node's zone",
    guards: ["vector 5"],
    objects: [WEB, endpoints("10.244.0.1 zones=z2", "10.244.0.2 zones=z3")],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "zone hints are ignored on a node without a zone",
    guards: ["vector 5"],
    objects: [WEB, endpoints("10.244.0.1 zones=z1", "10.244.0.2 zones=z2")],
    options: { zone: "" },
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "hints of endpoints that are not ready neither help nor hinder",
    guards: ["vector 6"],
    objects: [
      WEB,
      endpoints("10.244.0.1 ready zones=z2", "10.244.0.2 unready zones=z1", "10.244.0.3 draining zones=z1"),
    ],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "an endpoint that is not ready and has no hint does not switch hints off",
    guards: ["vector 6"],
    objects: [WEB, endpoints("10.244.0.1 zones=z1", "10.244.0.2 zones=z2", "10.244.0.3 unready")],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "draining endpoints are used whatever their hints",
    guards: ["vector 2"],
    objects: [WEB, endpoints("10.244.0.1 draining zones=z1", "10.244.0.2 draining zones=z2")],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "node hints come before zone hints",
    guards: ["vector 7"],
    objects: [
      WEB,
      endpoints("10.244.0.1@node-a nodes=node-a zones=z1", "10.244.0.2@node-b nodes=node-b zones=z1"),
    ],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "where no node hint names the node zone hints decide",
    guards: ["vector 8"],
    objects: [WEB, endpoints("10.244.0.1 nodes=node-c zones=z1", "10.244.0.2 nodes=node-b zones=z2")],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "one ready endpoint without a node hint leaves it to the zone hints",
    guards: ["vector 7", "vector 8"],
    objects: [
      WEB,
      endpoints(
        "10.244.0.1 nodes=node-a zones=z1",
        "10.244.0.2 zones=z1",
        "10.244.0.3 nodes=node-b zones=z2",
      ),
    ],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "hints are looked at per port of a Service",
    guards: ["vector 4"],
    objects: [
      service("s/web", { clusterIP: "10.96.0.1", ports: ["http:80", "admin:81"] }),
      endpoints("10.244.0.1 zones=z1", "10.244.0.2 zones=z2"),
      slice("s/web.2", ["admin:8080"], ["10.244.0.1 zones=z1", "10.244.0.2"]),
    ],
    flows: [
      pod(`${A}, masquerade no`),
      `10.244.9.9@cni0 → 10.96.0.1:81 ⇒ ${EITHER}, masquerade no`,
    ],
  },
];

const POLICY_CASES: readonly FlowCase[] = [
  {
    name: "under external policy Local a draining endpoint of the node still serves clients outside",
    guards: ["vector 9"],
    objects: [EXTERNAL_LOCAL, endpoints("10.244.0.1@node-a draining", "10.244.0.2@node-b ready")],
    flows: [client(`${A}, masquerade no`), pod(`${B}, masquerade no`)],
  },
  {
    name: "under external policy Local a ready endpoint of the node comes before a draining one",
    guards: ["vector 9"],
    objects: [
      EXTERNAL_LOCAL,
      endpoints("10.244.0.1@node-a draining", "10.244.0.2@node-a ready", "10.244.0.3@node-b ready"),
    ],
    flows: [client(`${B}, masquerade no`)],
  },
  {
    name:
      "under external policy Local with an endpoint elsewhere only, clients outside are dropped, not refused",
    guards: ["vector 10"],
    objects: [EXTERNAL_LOCAL, endpoints("10.244.0.2@node-b ready")],
    flows: [
      { flow: client("dropped"), instead: { ipvs: "10.244.0.2:8080, masquerade no", userspace: "closed" } },
      pod(`${B}, masquerade no`),
    ],
  },
  {
    name: "under external policy Local a draining endpoint elsewhere is a reason to drop, not to refuse",
    guards: ["vector 10"],
    objects: [EXTERNAL_LOCAL, endpoints("10.244.0.2@node-b draining")],
    flows: [
      { flow: client("dropped"), instead: { ipvs: "10.244.0.2:8080, masquerade no", userspace: "closed" } },
      pod(`${B}, masquerade no`),
    ],
  },
  {
    name: "under external policy Local an endpoint that is not ready anywhere is a reason to refuse",
    guards: ["vector 14"],
    objects: [EXTERNAL_LOCAL, endpoints("10.244.0.2@node-b unready")],
    flows: [client("rejected"), pod("rejected")],
  },
  {
    name: "under internal policy Local an endpoint elsewhere is a reason to drop",
    guards: ["vector 11"],
    objects: [INTERNAL_LOCAL, endpoints("10.244.0.2@node-b ready")],
    flows: [{ flow: pod("dropped"), instead: { ipvs: "rejected", userspace: "closed" } }],
  },
  {
    name: "under internal policy Local endpoints that are not ready are a reason to refuse",
    guards: ["vector 11", "vector 14"],
    objects: [INTERNAL_LOCAL, endpoints("10.244.0.1@node-a unready", "10.244.0.2@node-b unready")],
    flows: [pod("rejected")],
  },
  {
    name: "under internal policy Local a draining endpoint elsewhere is a reason to drop",
    guards: ["vector 11"],
    objects: [INTERNAL_LOCAL, endpoints("10.244.0.2@node-b draining")],
    flows: [{ flow: pod("dropped"), instead: { ipvs: "rejected", userspace: "closed" } }],
  },
  {
    name:
      "under internal policy Local a draining endpoint of the node serves while the node has no ready one",
    guards: ["vector 11"],
    objects: [INTERNAL_LOCAL, endpoints("10.244.0.1@node-a draining", "10.244.0.2@node-b ready")],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "internal policy Local does not look at hints",
    guards: ["vector 17"],
    objects: [
      INTERNAL_LOCAL,
      endpoints("10.244.0.1@node-a zones=z2 nodes=node-b", "10.244.0.2@node-b zones=z2"),
    ],
    flows: [pod(`${A}, masquerade no`)],
  },
  {
    name: "external policy Local does not look at hints, the cluster IP does",
    guards: ["vector 18"],
    objects: [EXTERNAL_LOCAL, endpoints("10.244.0.1@node-a zones=z2", "10.244.0.2@node-b zones=z1")],
    flows: [client(`${A}, masquerade no`), pod(`${B}, masquerade no`)],
  },
  {
    name: "an endpoint whose node is not known is not of this node",
    guards: ["vector 10"],
    objects: [EXTERNAL_LOCAL, endpoints("10.244.0.1", "10.244.0.2@node-a.example")],
    flows: [{
      flow: client("dropped"),
      instead: { ipvs: "10.244.0.1:8080 (1/2) | 10.244.0.2:8080 (1/2), masquerade no", userspace: "closed" },
    }, pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "external policy Local without anything external for this family is as good as Cluster",
    guards: ["vector 13"],
    objects: [
      service("s/web", {
        type: "LoadBalancer",
        clusterIP: "10.96.0.1",
        externalTrafficPolicy: "Local",
        ports: ["http:80"],
        ingress: [{ ip: "fd00:203::1" }],
      }),
      endpoints("10.244.0.1@node-a", "10.244.0.2@node-b"),
    ],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
];

const SLICE_CASES: readonly FlowCase[] = [
  {
    name: "the slices of a Service are merged",
    guards: ["vector 15"],
    objects: [
      WEB,
      slice("s/web.1", ["http:8080"], ["10.244.0.1"]),
      slice("s/web.2", ["http:8080"], ["10.244.0.2"]),
      slice("s/other.1", ["http:8080"], ["10.244.0.3"]),
      slice("t/web.1", ["http:8080"], ["10.244.0.4"]),
    ],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "of an endpoint in two slices the one that is not terminating counts",
    guards: ["vector 15"],
    objects: [
      WEB,
      slice("s/web.1", ["http:8080"], ["10.244.0.1@node-a draining"]),
      slice("s/web.2", ["http:8080"], ["10.244.0.1@node-a ready"]),
      slice("s/web.3", ["http:8080"], ["10.244.0.2@node-b ready"]),
    ],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "of an endpoint in two slices the one that is not terminating counts, also if it comes first",
    guards: ["vector 15"],
    objects: [
      WEB,
      slice("s/web.1", ["http:8080"], ["10.244.0.1@node-a ready"]),
      slice("s/web.2", ["http:8080"], ["10.244.0.1@node-a draining"]),
      slice("s/web.3", ["http:8080"], ["10.244.0.2@node-b ready"]),
    ],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "an endpoint that is ready in two slices is one endpoint",
    guards: ["vector 15"],
    objects: [
      WEB,
      slice("s/web.1", ["http:8080"], ["10.244.0.1@node-a", "10.244.0.2@node-b"]),
      slice("s/web.2", ["http:8080"], ["10.244.0.1@node-a"]),
    ],
    flows: [pod(`${EITHER}, masquerade no`)],
  },
  {
    name: "the same address with two ports is two endpoints",
    guards: ["vector 15"],
    objects: [
      WEB,
      slice("s/web.1", ["http:8080"], ["10.244.0.1"]),
      slice("s/web.2", ["http:9090"], ["10.244.0.1"]),
    ],
    flows: [pod(`${A} (1/2) | 10.244.0.1:9090 (1/2), masquerade no`)],
  },
  {
    name: "a slice port without a name is skipped",
    guards: ["vector 16"],
    objects: [
      WEB,
      service("s/plain", { clusterIP: "10.96.0.2", ports: [":80"] }),
      ...["web", "plain"].map((name) => ({
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { namespace: "s", name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
        addressType: "IPv4",
        ports: [{ port: 8080, protocol: "TCP" }],
        endpoints: [{ addresses: ["10.244.0.1"] }],
      })),
    ],
    flows: [pod("rejected"), "10.244.9.9@cni0 → 10.96.0.2:80 ⇒ rejected"],
  },
  {
    name: "only the first address of an endpoint is used",
    guards: ["vector 15"],
    objects: [
      WEB,
      {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { namespace: "s", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
        addressType: "IPv4",
        ports: [{ name: "http", port: 8080, protocol: "TCP" }],
        endpoints: [{ addresses: ["10.244.0.1", "10.244.0.2"] }],
      },
    ],
    flows: [pod(`${A}, masquerade no`)],
  },
];

export const ENDPOINT_CASES: readonly FlowCase[] = [...CLUSTER_CASES, ...POLICY_CASES, ...SLICE_CASES];
