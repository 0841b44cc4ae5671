/**
 * A node's two simulators as what a flow case sends its packets to.
 *
 * @module
 */
import type { IpFamily } from "../../lib/model/objects.ts";
import { type AffinityMemory, type HostState, rememberOutcome } from "../../lib/sim/packet_walk.ts";
import type { Simulator } from "../../lib/sim/ruleset_simulator.ts";
import type { FlowOptions, FlowTable } from "./flow_case.ts";

/** Both families of a node with its affinity lists, ready for packets. @param around what else decides about them */
export function simulatedTable(
  simulators: Readonly<Record<IpFamily, Simulator>>,
  options: FlowOptions,
  around: Partial<HostState> = {},
): FlowTable {
  let affinity: AffinityMemory = new Map();
  return {
    send(packet, nowSeconds) {
      const simulator = simulators[packet.source.includes(":") ? "IPv6" : "IPv4"];
      return simulator.send(packet, { nodeAddresses: options.interfaceIps, affinity, nowSeconds, ...around });
    },
    take(packet, outcome, atSeconds) {
      affinity = rememberOutcome(affinity, packet, outcome, atSeconds);
    },
  };
}
