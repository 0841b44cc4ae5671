/**
 * Walks a virtual packet through iptables rules, following every branch of a random choice.
 *
 * What it knows of the kernel: the order of the hooks, that nat sees only a connection's first packet, routing by the node's own
 * addresses, and that a packet to the node itself comes back in through `lo`. The mangle, raw and security tables are
 * taken as empty.
 *
 * @module
 */
import { type Flow, mergeOutcomes, type Packet } from "../flow.ts";
import type { Simulator } from "../simulator.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import { type IptablesPass, IptablesTables } from "../iptables_walk.ts";
import {
  type EndedWalk,
  isNodeAddress,
  outcomeOfWalk,
  startOfWalk,
  type Surroundings,
  throughLoopback,
  type Walk,
} from "../packet_walk.ts";

/** One family's rules, ready for packets. */
export class IptablesSimulator implements Simulator {
  readonly #tables: IptablesTables;

  /** Takes rules as `parseIptablesSave` reads them. */
  constructor(ruleset: IptablesRuleset) {
    this.#tables = new IptablesTables(ruleset);
  }

  /**
   * Says what the rules do with the packet.
   *
   * @throws {RangeError} if an address of the packet is none
   * @throws {SyntaxError} if a rule on its way does not parse
   */
  send(packet: Packet, surroundings: Surroundings): Flow {
    const problems = new Set<string>();
    const pass = this.#tables.pass(surroundings, problems);
    const start = startOfWalk(packet);
    const fromNode = packet.inInterface === "";
    const ended = pass.hook("nat", fromNode ? "OUTPUT" : "PREROUTING", start)
      .flatMap((one) => one.verdict === "accept" ? this.#route(pass, one.walk, surroundings) : [one]);
    const outcomes = ended.map((one) => outcomeOfWalk(one, surroundings));
    return { outcomes: mergeOutcomes(outcomes), problems: [...problems] };
  }

  /** Everything after the destination is settled. */
  #route(pass: IptablesPass, walk: Walk, surroundings: Surroundings): readonly EndedWalk[] {
    const fromNode = walk.inInterface === "";
    const toNode = isNodeAddress(walk.destination, surroundings);
    if (toNode && !fromNode) return pass.hook("filter", "INPUT", walk);
    const out = pass.hook("filter", fromNode ? "OUTPUT" : "FORWARD", walk)
      .flatMap((one) => one.verdict === "accept" ? pass.hook("nat", "POSTROUTING", one.walk) : [one]);
    if (!toNode) return out;
    // Conntrack keeps its entry on the way through lo, so nat PREROUTING does not see the packet again.
    return out.flatMap((one) => {
      if (one.verdict !== "accept") return [one];
      return pass.hook("filter", "INPUT", throughLoopback(one.walk, surroundings));
    });
  }
}
