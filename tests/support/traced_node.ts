/**
 * Traces a packet on a node with one Service of two endpoints, through rules of the test's choice.
 *
 * @module
 */
import { defaultConfig } from "../../lib/config/defaults.ts";
import { parsePacket } from "../../lib/sim/flow.ts";
import type { HostState } from "../../lib/sim/packet_walk.ts";
import { render } from "../../lib/inspect/modes/iptables.ts";
import {
  type DesiredInput,
  desiredRules,
  type RulesMode,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "../../lib/inspect/desired/desired.ts";
import { liveOfTexts, type LiveText } from "../../lib/inspect/live/live.ts";
import { type Trace, tracePacket } from "../../lib/inspect/trace/trace.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";

const PACKET = "10.244.0.5@cni0 → 10.96.10.1:80/tcp";

function objectsOf(
  conditions: readonly Record<string, unknown>[],
): ReturnType<typeof decodeObject>["objects"] {
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: conditions.map((one, index) => ({
      addresses: [`10.244.0.${11 + index}`],
      nodeName: "node-a",
      ...one,
    })),
  };
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name: "web" },
    spec: {
      type: "ClusterIP",
      clusterIP: "10.96.10.1",
      ports: [{ name: "http", port: 80, protocol: "TCP" }],
    },
  };
  const node = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "z1" } },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }] },
  };
  return [service, slice, node].flatMap((json) => decodeObject(json, "test").objects);
}

/** Input of the node's rules, with two endpoints of these conditions. */
export function inputOf(
  conditions: readonly Record<string, unknown>[] = [{}, {}],
  nodeName = "node-a",
): DesiredInput {
  const state = stateOfObjects(objectsOf(conditions), nodeName, () => {});
  const config = { ...defaultConfig(), clusterCIDR: "10.244.0.0/16" };
  return { ...state, config, machine: UNKNOWN_MACHINE, warn: () => {} };
}

/** The rules as `iptables-save` prints them. */
export function printed(input: DesiredInput): string {
  const text = render(input, "IPv4");
  return text.replace(
    "*filter\n",
    "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
  );
}

/** The node on which a packet is traced. */
export interface Node {
  readonly texts: readonly LiveText[];
  readonly around?: Partial<HostState>;
  readonly packet?: string;
  readonly input?: DesiredInput;
  readonly mode?: RulesMode;
  /** Node name as given to the command. */
  readonly nodeName?: string;
}

/** Traces a packet through desired and live rules. */
export async function traced(
  { texts, around = {}, packet = PACKET, nodeName, input = inputOf(undefined, nodeName), mode = "iptables" }:
    Node,
): Promise<Trace> {
  const live = liveOfTexts(texts, { from: "the kernel", bound: [], problems: [] }).get("IPv4");
  return tracePacket({
    family: "IPv4",
    packet: parsePacket(packet),
    hostState: {
      nodeAddresses: ["192.0.2.10"],
      affinity: new Map(),
      nowSeconds: 0,
      ...around,
    },
    desired: {
      from: "files",
      mode,
      state: input,
      rules: await desiredRules(mode, input, "IPv4"),
      quarantined: null,
    },
    live: live ?? null,
    findings: [],
    notes: [],
  });
}

/** Output of `iptables-save` on a sound node. */
export const SOUND = printed(inputOf());
/** A text as output of `iptables-save`. */
export const save = (text: string): LiveText => ({ name: "iptables-save", text });
