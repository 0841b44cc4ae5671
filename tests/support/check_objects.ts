/**
 * A node with three Services for `kproxy check`: the input of its rules.
 *
 * @module
 */
import { configForMode, defaultConfig } from "../../lib/config/defaults.ts";
import {
  type DesiredInput,
  type MachineFacts,
  type RulesMode,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "../../lib/inspect/desired/desired.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { assignedPortals } from "./assigned_ports.ts";

/** A Service `shop/<name>` of type NodePort. */
export function service(
  name: string,
  clusterIP: string,
  nodePort: number,
  more: Record<string, unknown> = {},
): unknown {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name },
    spec: {
      type: "NodePort",
      clusterIP,
      ports: [{ name: "http", port: 80, protocol: "TCP", nodePort }],
      ...more,
    },
  };
}

/** The only slice of the Service. */
export function slice(name: string, ips: readonly string[]): unknown {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "shop", name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: ips.map((ip) => ({ addresses: [ip], nodeName: "node-a" })),
  };
}

const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a" },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }] },
};
export const WEB = [
  service("web", "10.96.0.1", 30080),
  slice("web", ["10.244.0.11", "10.244.0.12", "10.244.0.13"]),
];
export const API = [
  service("api", "10.96.0.2", 30081, {
    sessionAffinity: "ClientIP",
    externalIPs: ["203.0.113.5"],
    externalTrafficPolicy: "Local",
  }),
  slice("api", ["10.244.0.21", "10.244.0.22"]),
];
export const EMPTY = [service("empty", "10.96.0.3", 30082)];
/** Objects of a deleted Service. */
export const OLD = [service("old", "10.96.0.9", 30089), slice("old", ["10.244.0.99"])];

/** Input of a mode's rules; the node is `node-a`, 192.0.2.10. */
export function inputOf(
  mode: RulesMode,
  objects: readonly unknown[] = [...WEB, ...API, ...EMPTY],
  machine: MachineFacts = UNKNOWN_MACHINE,
): DesiredInput {
  const read = [...objects, NODE].flatMap((json) => decodeObject(json, "test").objects);
  const config = configForMode({ ...defaultConfig(), clusterCIDR: "10.244.0.0/16" }, mode);
  const input = { ...stateOfObjects(read, "node-a", () => {}), config, machine, warn: () => {} };
  return mode === "userspace" ? { ...input, portals: assignedPortals(input) } : input;
}
