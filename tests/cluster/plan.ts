/**
 * What a cluster of the tests looks like: its families, addresses and names, and the folder with what it runs.
 *
 * @module
 */
import { pathExists } from "../support/path_exists.ts";
import type { IpFamily } from "../../lib/model/objects.ts";

/** A cluster before it is there. */
export interface ClusterPlan {
  /** Folder with the programs and images that README.md lists. */
  readonly binaries: string;
  /** Where the cluster keeps its files; absolute. */
  readonly folder: string;
  /** One or both, the primary one first. */
  readonly families: readonly IpFamily[];
}

/** What belongs to one IP family. */
interface FamilyPlan {
  readonly gateway: string;
  readonly nodePrefix: number;
  readonly pods: string;
  readonly services: string;
  readonly dns: string;
  readonly api: string;
}

const FAMILY_PLANS: Readonly<Record<IpFamily, FamilyPlan>> = {
  IPv4: {
    gateway: "172.30.0.1",
    nodePrefix: 24,
    pods: "10.244.0.0/16",
    services: "10.96.0.0/16",
    dns: "10.96.0.10",
    api: "10.96.0.1",
  },
  IPv6: {
    gateway: "fd30::1",
    nodePrefix: 64,
    pods: "fd44::/56",
    services: "fd00:10:96::/112",
    dns: "fd00:10:96::a",
    api: "fd00:10:96::1",
  },
};

/** The namespace of API server, controllers and DNS, which is also the nodes' router. */
export const CONTROL_PLANE = "kc-cp";

/** A node's number is 1 to 9. */
export function nodeNetns(node: number): string {
  return `kc-n${node}`;
}

/** A Node's name. */
export function nodeName(node: number): string {
  return `node${node}`;
}

/** What is planned for each family of the cluster, the primary one first. */
export function familyPlans({ families }: ClusterPlan): readonly FamilyPlan[] {
  return families.map((family) => FAMILY_PLANS[family]);
}

/** A node's own address in a family. */
export function nodeAddress(family: IpFamily, node: number): string {
  return family === "IPv4" ? `172.30.0.1${node}` : `fd30::1${node}`;
}

/** The network of a node's Pods in a family. */
export function podNetwork(family: IpFamily, node: number): string {
  return family === "IPv4" ? `10.244.${node}.0/24` : `fd44:0:0:${node}::/64`;
}

/** The configuration's `clusterCIDR`. */
export function clusterCidr(plan: ClusterPlan): string {
  return familyPlans(plan).map(({ pods }) => pods).join(",");
}

/** The API server as nodes and Pods reach it without a proxy. */
export function apiServerUrl(plan: ClusterPlan): string {
  const [first] = familyPlans(plan);
  const host = first?.gateway ?? "";
  return `https://${host.includes(":") ? `[${host}]` : host}:6443`;
}

const PROGRAMS: readonly string[] = [
  "etcd",
  "kube-apiserver",
  "kube-controller-manager",
  "kube-scheduler",
  "coredns",
  "kubelet",
  "kubectl",
  "containerd",
  "containerd-shim-runc-v2",
  "ctr",
  "runc",
  "bridge",
  "host-local",
  "loopback",
  "portmap",
];

/** @throws {Error} naming what the folder lacks */
export async function checkBinaries(folder: string, more: readonly string[]): Promise<void> {
  const missing: string[] = [];
  for (const name of [...PROGRAMS, ...more, "images"]) {
    if (!await pathExists(`${folder}/${name}`)) missing.push(name);
  }
  if (missing.length > 0) {
    throw new Error(`${folder} lacks ${missing.join(", ")}: tests/cluster/README.md says from where`);
  }
}
