/**
 * The ways of packets through the toy's rules: pure.
 *
 * @module
 */
import { joinHostPort, parseIp } from "../../lib/model/ip.ts";
import { type Flow, type FlowOutcome, mergeOutcomes, type Packet } from "../../lib/sim/flow.ts";
import type { HostState } from "../../lib/sim/packet_walk.ts";
import type { Simulator } from "../../lib/sim/ruleset_simulator.ts";
import type { ToyRules } from "./toy_plan.ts";

/** Rules of one family, ready for packets. */
export class ToySimulator implements Simulator {
  readonly #rules: ToyRules;

  constructor(rules: ToyRules) {
    this.#rules = rules;
  }

  send(packet: Packet, { nodeAddresses }: HostState): Flow {
    const to = parseIp(packet.destination);
    if (to === null) throw new RangeError(`${packet.destination} is no address`);
    const destination = `${packet.protocol}/${joinHostPort(to.text, packet.port)}`;
    const endpoints = packet.state === "NEW" ? this.#rules.get(destination) : undefined;
    const untouched: FlowOutcome = {
      probability: { numerator: 1n, denominator: 1n },
      verdict: "accept",
      rejectWith: "",
      translatedTo: "",
      toNode: nodeAddresses.includes(to.text),
      masquerade: false,
      mark: packet.mark,
      remembered: [],
      hits: [],
    };
    if (endpoints === undefined) return { outcomes: [untouched], problems: [] };
    const hits = [{ table: "toy", chain: "toy", index: 1, rule: `${destination} ${endpoints}` }];
    if (endpoints === "") {
      const refused = { ...untouched, verdict: "reject" as const, rejectWith: "icmp-port-unreachable", hits };
      return { outcomes: [refused], problems: [] };
    }
    const all = endpoints.split(",");
    const probability = { numerator: 1n, denominator: BigInt(all.length) };
    return {
      outcomes: mergeOutcomes(all.map((translatedTo) => ({ ...untouched, probability, translatedTo, hits }))),
      problems: [],
    };
  }
}
