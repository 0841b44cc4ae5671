/**
 * Objects for tests of the status page: a small shop, a cluster of thousands, and hostile names.
 *
 * @module
 */
import type { ApiObject, Service, SliceEndpoint } from "../../lib/model/objects.ts";
import { testPort, testService, testSlice, testSliceEndpoint, testSlicePort } from "./model_objects.ts";

const HERE = "worker-3";

interface Made {
  readonly namespace: string;
  readonly name: string;
  readonly clusterIP: string;
  readonly fields?: Partial<Service>;
  readonly endpoints: readonly SliceEndpoint[];
  readonly ports?:
    readonly (readonly [name: string, port: number, target: number, protocol?: "TCP" | "UDP"])[];
}

function made(
  { namespace, name, clusterIP, fields = {}, endpoints, ports = [["http", 80, 8080]] }: Made,
): ApiObject[] {
  return [
    testService({
      namespace,
      name,
      clusterIP,
      ports: ports.map(([portName, port, , protocol = "TCP"]) =>
        testPort({ name: portName, port, protocol })
      ),
      ...fields,
    }),
    testSlice({
      namespace,
      name: `${name}-x1`,
      serviceName: name,
      ports: ports.map(([portName, , port, protocol = "TCP"]) =>
        testSlicePort({ name: portName, port, protocol })
      ),
      endpoints,
    }),
  ];
}

/** Endpoints on several nodes, every third on this one. */
export function endpointsOf(network: string, count: number): SliceEndpoint[] {
  return Array.from(
    { length: count },
    (_, index) =>
      testSliceEndpoint(`${network}.${index + 11}`, {
        nodeName: index % 3 === 0 ? HERE : `worker-${index % 3}`,
      }),
  );
}

/** Services of every cluster. */
function systemObjects(): ApiObject[] {
  return [
    ...made({
      namespace: "default",
      name: "kubernetes",
      clusterIP: "10.96.0.1",
      endpoints: endpointsOf("192.168.50", 3),
      ports: [["https", 443, 6443]],
    }),
    ...made({
      namespace: "kube-system",
      name: "kube-dns",
      clusterIP: "10.96.0.10",
      endpoints: endpointsOf("10.244.7", 2),
      ports: [["dns", 53, 53, "UDP"], ["dns-tcp", 53, 53], ["metrics", 9153, 9153]],
    }),
  ];
}

/** A load balancer with endpoints of both families. */
function webObjects(): ApiObject[] {
  const six = ["2001:db8:5::a1", "2001:db8:5::a2"].map((ip) => testSliceEndpoint(ip, { nodeName: HERE }));
  return [
    ...made({
      namespace: "shop",
      name: "web",
      clusterIP: "10.96.14.20",
      endpoints: endpointsOf("10.244.3", 4),
      fields: {
        type: "LoadBalancer",
        ports: [testPort({ name: "http", port: 80, nodePort: 30_080 })],
        loadBalancerIngress: [{
          ip: "203.0.113.40",
          ipMode: "VIP",
        }],
        clusterIPs: ["10.96.14.20", "fd00:96::1420"],
        ipFamilies: ["IPv4", "IPv6"],
      },
    }),
    testSlice({
      namespace: "shop",
      name: "web-v6",
      serviceName: "web",
      addressType: "IPv6",
      ports: [testSlicePort({ name: "http" })],
      endpoints: six,
    }),
  ];
}

/** Services with endpoints that are not ready, or without endpoints. */
function shortObjects(): ApiObject[] {
  return [
    ...made({
      namespace: "shop",
      name: "checkout",
      clusterIP: "10.96.31.7",
      endpoints: [
        testSliceEndpoint("10.244.3.31", { nodeName: HERE }),
        testSliceEndpoint("10.244.5.32", { nodeName: "worker-1" }),
        testSliceEndpoint("10.244.5.33", { nodeName: "worker-1", ready: false, serving: false }),
        testSliceEndpoint("10.244.8.34", { nodeName: "worker-2", ready: false, terminating: true }),
      ],
      fields: { sessionAffinity: "ClientIP" },
    }),
    ...made({ namespace: "shop", name: "recommendations", clusterIP: "10.96.77.3", endpoints: [] }),
    ...made({
      namespace: "shop",
      name: "inventory",
      clusterIP: "10.96.41.9",
      endpoints: endpointsOf("10.244.9", 2).map((one) => ({ ...one, ready: false, serving: false })),
    }),
  ];
}

/** Services that are fully served. */
function servedObjects(): ApiObject[] {
  return [
    ...made({
      namespace: "shop",
      name: "admin",
      clusterIP: "10.96.52.18",
      endpoints: endpointsOf("10.244.3", 1),
      fields: {
        type: "NodePort",
        externalTrafficPolicy: "Local",
        ports: [testPort({ name: "http", port: 80, nodePort: 31_443 })],
      },
    }),
    ...made({
      namespace: "monitoring",
      name: "prometheus",
      clusterIP: "10.96.200.5",
      endpoints: endpointsOf("10.244.6", 2),
      ports: [["web", 9090, 9090]],
      fields: { externalIPs: ["192.0.2.90"] },
    }),
    ...made({
      namespace: "monitoring",
      name: "grafana",
      clusterIP: "10.96.200.8",
      endpoints: endpointsOf("10.244.4", 1),
      ports: [["http", 3000, 3000]],
    }),
    ...made({
      namespace: "shop",
      name: "cart",
      clusterIP: "10.96.18.2",
      endpoints: endpointsOf("10.244.2", 24),
    }),
  ];
}

/** Ten Services of all kinds, the shop. */
export function shopObjects(): ApiObject[] {
  return [...systemObjects(), ...webObjects(), ...shortObjects(), ...servedObjects()];
}

const WORDS = ["api", "web", "cache", "queue", "auth", "search", "billing", "worker", "gateway", "sessions"];

/** `count` Services with ten endpoints each, in forty namespaces. */
export function clusterObjects(count: number): ApiObject[] {
  return Array.from({ length: count }, (_, index) => {
    const word = WORDS[index % WORDS.length] ?? "api";
    const name = `${word}-${String(index).padStart(5, "0")}`;
    const isBroken = index % 97 === 3;
    const endpoints = index % 53 === 7 ? [] : endpointsOf(`10.${128 + (index >> 8)}.${index & 255}`, 10)
      .map((one) => isBroken ? { ...one, ready: false, serving: false } : one);
    return made({
      namespace: `team-${String(index % 40).padStart(2, "0")}`,
      name,
      clusterIP: `10.${100 + (index >> 14)}.${(index >> 8) & 255}.${index & 255}`,
      endpoints,
      fields: index % 11 === 0
        ? { type: "NodePort", ports: [testPort({ name: "http", port: 80, nodePort: 20_000 + index })] }
        : {},
    });
  }).flat();
}

/** Markup that a page must show and never run. */
export const HOSTILE = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;

/** A Service with markup in its names; no API server accepts it, a manifest file might have it. */
export function hostileObjects(): ApiObject[] {
  return made({
    namespace: "evil",
    name: HOSTILE,
    clusterIP: "10.96.66.6",
    endpoints: endpointsOf("10.244.66", 2),
    ports: [[`"><svg onload=alert(1)>`, 80, 8080]],
  });
}
