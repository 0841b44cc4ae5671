/**
 * Objects that an API server takes and that want more of a proxy than their size says: what a tenant may write.
 *
 * @module
 */
import { clusterIp } from "./fake_objects.ts";

/** What is put to the API server at once. */
export interface HostileObjects {
  /** What it is called in the report. */
  readonly title: string;
  /** API JSON; null: none. */
  readonly service: string | null;
  readonly slice: string | null;
}

const NAME = "hostile";
/** Far behind the others. */
const CLUSTER_IP = clusterIp(60_000);

function ip(start: number, index: number): string {
  return [start, index >> 16 & 255, index >> 8 & 255, index & 255].join(".");
}

function many<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

interface ServiceParts {
  readonly ports: number;
  readonly externalIPs?: number;
  readonly vips?: number;
  readonly sourceRanges?: number;
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** A Service of so many parts. */
export function hostileService(
  { ports, externalIPs = 0, vips = 0, sourceRanges = 0, extra }: ServiceParts,
): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: NAME, namespace: "default", uid: NAME, resourceVersion: "9" },
    spec: {
      type: vips > 0 ? "LoadBalancer" : "ClusterIP",
      clusterIP: CLUSTER_IP,
      clusterIPs: [CLUSTER_IP],
      ipFamilies: ["IPv4"],
      ports: many(ports, (index) => ({ name: `p${index}`, port: index + 1 })),
      externalIPs: many(externalIPs, (index) => ip(20, index + 256)),
      loadBalancerSourceRanges: many(sourceRanges, (index) => `${ip(21, index * 4)}/30`),
      ...extra,
    },
    status: { loadBalancer: { ingress: many(vips, (index) => ({ ip: ip(22, index + 256) })) } },
  });
}

interface SliceParts {
  readonly ports: number;
  readonly endpoints: number;
  /** How many different addresses; the same ones come again. */
  readonly addresses?: number;
  /** For each endpoint. */
  readonly zones?: number;
}

/** Its slice. */
export function hostileSlice({ ports, endpoints, addresses = endpoints, zones = 0 }: SliceParts): string {
  return JSON.stringify({
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${NAME}-a`,
      namespace: "default",
      uid: NAME,
      resourceVersion: "9",
      labels: { "kubernetes.io/service-name": NAME },
    },
    addressType: "IPv4",
    ports: many(ports, (index) => ({ name: `p${index}`, port: index + 1 })),
    endpoints: many(endpoints, (index) => ({
      addresses: [ip(30, index % addresses + 256)],
      ...zones === 0 ? {} : { hints: { forZones: many(zones, (zone) => ({ name: `z${zone}` })) } },
    })),
  });
}

/** The attacks, each within the size that the API takes. */
export const HOSTILE_OBJECTS: readonly HostileObjects[] = [
  {
    title: "Service of 2,000 ports × 2,000 external IPs",
    service: hostileService({ ports: 2000, externalIPs: 2000 }),
    slice: null,
  },
  {
    title: "slice of 20,000 ports × 1,000 endpoints, no Service",
    service: null,
    slice: hostileSlice({ ports: 20_000, endpoints: 1000 }),
  },
  {
    title: "20,000 ports, declared, × 1,000 endpoints",
    service: hostileService({ ports: 20_000 }),
    slice: hostileSlice({ ports: 20_000, endpoints: 1000 }),
  },
  {
    title: "20,000 ports, declared, × one address, 1,000 times",
    service: hostileService({ ports: 20_000 }),
    slice: hostileSlice({ ports: 20_000, endpoints: 1000, addresses: 1 }),
  },
  {
    title: "300 ports × 100 load balancer IPs × 20,000 source ranges",
    service: hostileService({ ports: 300, vips: 100, sourceRanges: 20_000 }),
    slice: hostileSlice({ ports: 300, endpoints: 1 }),
  },
  {
    title: "30,000 load balancer IPs",
    service: hostileService({ ports: 1, vips: 30_000 }),
    slice: hostileSlice({ ports: 1, endpoints: 1 }),
  },
  {
    title: "just served: one port, 25,000 endpoints",
    service: hostileService({ ports: 1 }),
    slice: hostileSlice({ ports: 1, endpoints: 25_000 }),
  },
  {
    title: "just served: 25 ports, 1,000 endpoints",
    service: hostileService({ ports: 25 }),
    slice: hostileSlice({ ports: 25, endpoints: 1000 }),
  },
  {
    title: "just served: 98 ports × 101 addresses, 4 endpoints",
    service: hostileService({ ports: 98, externalIPs: 100 }),
    slice: hostileSlice({ ports: 98, endpoints: 4 }),
  },
  {
    title: "just served: 10 ports × 10 load balancer IPs × 480 source ranges",
    service: hostileService({ ports: 10, vips: 10, sourceRanges: 480 }),
    slice: hostileSlice({ ports: 10, endpoints: 10 }),
  },
  {
    title: "1,000 endpoints with 70 zones each",
    service: hostileService({ ports: 1 }),
    slice: hostileSlice({ ports: 1, endpoints: 1000, zones: 70 }),
  },
];
