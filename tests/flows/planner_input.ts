/**
 * What the planners of all modes are given for a flow case.
 *
 * @module
 */
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import {
  type LocalDetector,
  matchingNodeIps,
  type NodePortAddresses,
  nodePortAddresses,
  selectLocalDetector,
} from "../../lib/model/node.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { ProxyState } from "../../lib/model/state.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import type { FlowOptions } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";

/** The state of one family after these objects. */
export function stateOf(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): ProxyState {
  const { nodeName, zone, externalIPPolicy, nodeIps } = options;
  const tracker = new ChangeTracker({ family, node: { name: nodeName, zone }, externalIPPolicy });
  tracker.setNodeAddresses(Object.values(nodeIps));
  for (const json of objects) {
    const decoded = decodeObject(json, "flow case");
    const [rejection] = decoded.rejections;
    if (rejection !== undefined) {
      throw new TypeError(`Object of a flow case is refused: ${JSON.stringify(rejection)}`);
    }
    for (const object of decoded.objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
  }
  return tracker.checkout().state;
}

/** What decides the rules of every mode. */
export interface PlannerOptions {
  readonly family: IpFamily;
  readonly masqueradeMark: number;
  readonly masqueradeAll: boolean;
  readonly detector: LocalDetector;
  readonly nodePortAddresses: NodePortAddresses;
  readonly nodePortIps: readonly string[];
  readonly nodeIp: string;
}

/** @param configured `nodePortAddresses` after the mode's own default */
export function plannerOptions(
  family: IpFamily,
  options: FlowOptions,
  configured: readonly string[] | null,
): PlannerOptions {
  const primaryFamily: IpFamily = "IPv4";
  const ownIps = { primaryFamily, ...options.nodeIps, primaryIsLoopback: false, areMissing: false };
  const addresses = nodePortAddresses(family, configured, ownIps);
  return {
    family,
    masqueradeMark: (1 << options.masqueradeBit) >>> 0,
    masqueradeAll: options.masqueradeAll,
    detector:
      selectLocalDetector(family, { ...options, mode: options.detectLocalMode, podCIDRs: [] }).detector,
    nodePortAddresses: addresses,
    nodePortIps: matchingNodeIps(addresses, options.interfaceIps),
    nodeIp: options.nodeIps[family],
  };
}
