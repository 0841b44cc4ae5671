/**
 * The cluster of a chaos run: a few Services that clients connect to and that never go, and many that come, change and go at random.
 *
 * @module
 */
import { service, type ServiceSpec, slice } from "../flows/objects.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import { raw } from "../support/raw_objects.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import type { Random } from "./random.ts";

/** Pods that really serve, of each family. */
export const SERVING_PODS = [
  ["10.244.0.11", "10.244.0.12", "10.244.0.13"],
  ["fd00:10:244::11", "fd00:10:244::12", "fd00:10:244::13"],
] as const;
/** Ports of the Services that clients connect to, and those of the pods behind them. */
export const [TCP, UDP] = [
  { port: 80, nodePort: 30080, target: 8080 },
  { port: 53, nodePort: 30053, target: 5353 },
];
/** Addresses of `chaos/stable`, whose endpoints stay, and of `chaos/moving`, whose endpoints come and go. */
export const STABLE_IPS = ["10.96.0.1", "fd00:10:96::1"] as const;
export const MOVING_IP = "10.96.0.2";

/** What happens to the objects, once. */
export interface Change {
  /** For people. */
  readonly what: string;
  readonly put: readonly RawApiObject[];
  readonly remove: readonly RawApiObject[];
}

const NAMES = Array.from({ length: 8 }, (_, i) => `c${i}`);
/** Cluster IPs of Services that come and go, each with a port of theirs. */
export const IDLE = NAMES.map((_, at) => [`10.96.1.${10 + at}`, 80] as const);
const PODS = ["10.244.9.1", "10.244.9.2", "10.244.8.1", "10.244.8.2", "10.244.0.11"];
/** Wanted by several Services at once. */
const CONTESTED_IPS = ["198.51.100.101", "198.51.100.102"];
const LB_IPS = ["203.0.113.9", "198.51.100.101"];
const CONTESTED_NODE_PORT = 31999;
const RANGES = ["192.0.2.0/24", "198.18.0.0/15"];
const CONDITIONS = ["", "", "", " unready", " draining", " zones=z1", " zones=z2"];
const ZONES = ["z1", "z2"];
/** The API server takes all of them, unlike loopback and link-local addresses, and what the kernels say is their business. */
const ODD_PODS = ["239.1.1.1", "240.0.0.1", "255.255.255.255"];
const BIRTH_MS = Date.UTC(2026, 0, 1);

function keyOf({ kind, metadata }: RawApiObject): string {
  return `${kind} ${metadata.namespace ?? ""}/${metadata.name}`;
}

/** All objects there are. What it draws follows from the seed and from what was drawn before, never from time. */
export class ChaosCluster {
  readonly #objects = new Map<string, RawApiObject>();
  /** How many objects were ever made: their times of creation. */
  #made = 0;

  constructor() {
    const both = { clusterIP: STABLE_IPS[0], clusterIPs: STABLE_IPS, ipFamilies: ["IPv4", "IPv6"] };
    this.#put([
      raw(NODE_OBJECT),
      this.#service("chaos/stable", {
        type: "NodePort",
        ...both,
        ports: [`http:${TCP.port}:${TCP.nodePort}`, `dns:${UDP.port}:${UDP.nodePort}/UDP`],
      }),
      ...SERVING_PODS.map((pods, i) =>
        raw(slice(
          `chaos/stable.${i}`,
          [`http:${TCP.target}`, `dns:${UDP.target}/UDP`],
          pods.slice(0, 2).map((ip) => `${ip}@node-a`),
        ))
      ),
      this.#service("chaos/moving", { clusterIP: MOVING_IP, ports: [`http:${TCP.port}`] }),
      movingSlice(SERVING_PODS[0]),
    ]);
  }

  /** In a fixed order. */
  get objects(): readonly RawApiObject[] {
    return [...this.#objects].sort(([a], [b]) => a < b ? -1 : 1).map(([, object]) => object);
  }

  /** Draws what happens next and makes it so. */
  change(random: Random): Change {
    const change = this.#draw(random);
    for (const object of change.remove) this.#objects.delete(keyOf(object));
    this.#put(change.put);
    return change;
  }

  #put(objects: readonly RawApiObject[]): void {
    for (const object of objects) this.#objects.set(keyOf(object), object);
  }

  #draw(random: Random): Change {
    const name = random.pick(NAMES);
    const at = random.unit();
    if (at < 0.2) return put("moving endpoints", [movingSlice(random.some(SERVING_PODS[0], 1))]);
    if (at < 0.45) return put(`Service ${name}`, [this.#churnService(random, name)]);
    if (at < 0.7) return put(`endpoints of ${name}`, [churnSlice(random, name, random.whole(1, 2))]);
    if (at < 0.8) return this.#removal(random, name);
    if (at < 0.86) return this.#rename(random, name);
    if (at < 0.92) return this.#duplicate(random);
    if (at < 0.96) return put(`odd endpoints of ${name}`, [oddSlice(random, name)]);
    const labels = { "topology.kubernetes.io/zone": random.pick(ZONES) };
    return put(`the node's zone`, [raw({ ...NODE_OBJECT, metadata: { name: "node-a", labels } })]);
  }

  #service(name: string, spec: ServiceSpec): RawApiObject {
    const made = raw(service(name, spec));
    const creationTimestamp = new Date(BIRTH_MS + 1_000 * this.#made++).toISOString().replace(".000", "");
    return { ...made, metadata: { ...made.metadata, uid: `uid-${this.#made}`, creationTimestamp } };
  }

  #churnService(random: Random, name: string): RawApiObject {
    const type = random.pick(["ClusterIP", "NodePort", "LoadBalancer"] as const);
    const index = NAMES.indexOf(name);
    const nodePort = (at: number): string => {
      if (type === "ClusterIP") return "";
      return `:${random.chance(0.15) ? CONTESTED_NODE_PORT : 31000 + 10 * index + at}`;
    };
    const ports = [`http:80${nodePort(0)}`, `dns:53${nodePort(1)}/UDP`].slice(0, random.whole(1, 2));
    const externalTrafficPolicy = random.pick(["Cluster", "Local"] as const);
    const made = this.#service(`churn/${name}`, {
      type,
      // Two Services may want one address.
      clusterIP: `10.96.1.${random.chance(0.1) ? 1 : 10 + index}`,
      ports,
      externalIPs: random.chance(0.4) ? random.some(CONTESTED_IPS) : [],
      externalTrafficPolicy,
      internalTrafficPolicy: random.pick(["Cluster", "Cluster", "Local"] as const),
      sessionAffinity: random.pick(["None", "None", "ClientIP"] as const),
      loadBalancerSourceRanges: random.chance(0.3) ? random.some(RANGES) : [],
      ...(type !== "LoadBalancer" ? {} : {
        ingress: random.some(LB_IPS).map((ip) => ({ ip, ipMode: "VIP" })),
        ...(externalTrafficPolicy === "Local" ? { healthCheckNodePort: 32000 + index } : {}),
      }),
    });
    const known = this.#objects.get(keyOf(made));
    if (known === undefined) return made;
    // A change makes nothing younger.
    const { creationTimestamp, uid } = known.metadata;
    return { ...made, metadata: { ...made.metadata, uid, creationTimestamp } };
  }

  #removal(random: Random, name: string): Change {
    const svc = `Service churn/${name}`;
    const slices = [1, 2].map((number) => `EndpointSlice churn/${name}.${number}`);
    const keys = random.pick([[svc], slices, [svc, ...slices]]);
    const remove = keys.map((key) => this.#objects.get(key)).filter((object) => object !== undefined);
    return { what: `away with ${remove.map(keyOf).join(", ") || `nothing of ${name}`}`, put: [], remove };
  }

  /** A Service goes and another one of its very spec comes, as when it is renamed in a manifest. */
  #rename(random: Random, name: string): Change {
    const [from, to] = [this.#objects.get(`Service churn/${name}`), random.pick(NAMES)];
    if (from === undefined || to === name) return put(`Service ${name}`, [this.#churnService(random, name)]);
    const made = this.#service(`churn/${to}`, { ports: [] });
    return {
      what: `${name} is called ${to}`,
      put: [{ ...from, metadata: made.metadata }],
      remove: [from],
    };
  }

  /** Something is told again, or in two slices at once. */
  #duplicate(random: Random): Change {
    const objects = this.objects.filter(({ metadata }) => metadata.namespace === "churn");
    if (objects.length === 0) return put("nothing new", [raw(NODE_OBJECT)]);
    const object = random.pick(objects);
    if (object.kind !== "EndpointSlice") return put(`${keyOf(object)} again`, [object, object, object]);
    const name = object.metadata.name.split(".")[0]!;
    const twin = { ...object, metadata: { ...object.metadata, name: `${name}.${random.whole(1, 2)}` } };
    return put(`${keyOf(object)} twice`, [object, twin]);
  }
}

function put(what: string, objects: readonly RawApiObject[]): Change {
  return { what, put: objects, remove: [] };
}

function movingSlice(pods: readonly string[]): RawApiObject {
  return raw(slice("chaos/moving.1", [`http:${TCP.target}`], pods.map((ip) => `${ip}@node-a`)));
}

function churnSlice(random: Random, name: string, number: number): RawApiObject {
  const pods = random.some(PODS, 1).map((ip) => {
    const node = ip.startsWith("10.244.8.") ? "node-b" : "node-a";
    return `${ip}@${node}${random.pick(CONDITIONS)}`;
  });
  return raw(slice(`churn/${name}.${number}`, [`http:${TCP.target}`, `dns:${UDP.target}/UDP`], pods));
}

function oddSlice(random: Random, name: string): RawApiObject {
  const pods = [random.pick(ODD_PODS), random.pick(PODS)];
  return raw(slice(`churn/${name}.2`, [`http:${TCP.target}`], pods.map((ip) => `${ip}@node-a`)));
}
