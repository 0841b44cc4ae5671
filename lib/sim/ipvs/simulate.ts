/**
 * Walks a virtual packet through iptables rules, sets and virtual servers, following every real server it may get.
 *
 * What it knows of the kernel beside the rules: IPVS sees a packet to an address of the node after filter INPUT, one from
 * the node after nat OUTPUT; a packet with its new destination leaves through filter OUTPUT and nat POSTROUTING and not
 * through FORWARD; a virtual server without real ones refuses; only a connection's first packet is given to a real
 * server. The mangle, raw and security tables are taken as empty, and every scheduler as one that is fair.
 *
 * @module
 */
import type { SavedSet } from "../../netfilter/ipset.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { IpvsTable, SavedVirtualServer } from "../../netfilter/ipvs.ts";
import { type Flow, mergeOutcomes, type Packet } from "../flow.ts";
import { type IptablesPass, IptablesTables } from "../iptables_walk.ts";
import {
  acceptedWalk,
  type EndedWalk,
  isNodeAddress,
  onward,
  outcomeOfWalk,
  rejectedWalk,
  startOfWalk,
  type Surroundings,
  throughLoopback,
  type Walk,
} from "../packet_walk.ts";
import type { Simulator } from "../simulator.ts";
import { conditionsOf, IpvsSchedule, type Scheduled } from "./schedule.ts";

/** What one family of the kernel holds. */
export interface IpvsKernel {
  /** Built-in chains included. */
  readonly tables: IptablesRuleset;
  /** By name. */
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** The virtual servers, with their real ones. */
  readonly ipvs: IpvsTable;
  /** Addresses on our device. */
  readonly bound: readonly string[];
}

/** One family of a node, ready for packets. */
export class IpvsSimulator implements Simulator {
  readonly #kernel: IpvsKernel;
  readonly #tables: IptablesTables;

  /** Takes what one family of a kernel holds. */
  constructor(kernel: IpvsKernel) {
    this.#kernel = kernel;
    this.#tables = new IptablesTables(kernel.tables);
  }

  /**
   * Says what becomes of the packet. Affinity lists are called `ipvs VIRTUAL-SERVER REAL-SERVER`.
   *
   * @throws {RangeError} if an address of the packet is none
   * @throws {SyntaxError} if a rule on its way does not parse
   */
  send(packet: Packet, surroundings: Surroundings): Flow {
    const onNode = {
      ...surroundings,
      nodeAddresses: [...surroundings.nodeAddresses, ...this.#kernel.bound],
    };
    const problems = new Set<string>();
    const trip = new Trip(this.#kernel, this.#tables, onNode, problems);
    const ended = packet.inInterface === ""
      ? trip.fromNode(startOfWalk(packet))
      : trip.fromOutside(startOfWalk(packet));
    const outcomes = ended.map((one) => outcomeOfWalk(one, onNode));
    return { outcomes: mergeOutcomes(outcomes), problems: [...problems] };
  }
}

/** One packet's way. */
class Trip {
  readonly #kernel: IpvsKernel;
  readonly #tables: IptablesTables;
  readonly #surroundings: Surroundings;
  readonly #problems: Set<string>;
  readonly #servers: IpvsSchedule;
  readonly #pass: IptablesPass;

  constructor(
    kernel: IpvsKernel,
    tables: IptablesTables,
    surroundings: Surroundings,
    problems: Set<string>,
  ) {
    this.#kernel = kernel;
    this.#tables = tables;
    this.#surroundings = surroundings;
    this.#problems = problems;
    this.#servers = new IpvsSchedule(kernel.ipvs);
    this.#pass = this.#passThrough(null);
  }

  fromOutside(start: Walk): readonly EndedWalk[] {
    return onward(this.#pass.hook("nat", "PREROUTING", start), (walk) => {
      if (isNodeAddress(walk.destination, this.#surroundings)) return this.#intoNode(walk);
      return onward(this.#pass.hook("filter", "FORWARD", walk), (passed) => this.#leave(this.#pass, passed));
    });
  }

  fromNode(start: Walk): readonly EndedWalk[] {
    return onward(this.#pass.hook("nat", "OUTPUT", start), (walk) => {
      const scheduled = this.#schedule(walk);
      if (scheduled !== null) return this.#toRealServers(walk, scheduled);
      return this.#outOfNode(this.#pass, walk);
    });
  }

  #intoNode(walk: Walk): readonly EndedWalk[] {
    return onward(this.#pass.hook("filter", "INPUT", walk), (passed) => {
      const scheduled = this.#schedule(passed);
      return scheduled === null ? [acceptedWalk(passed)] : this.#toRealServers(passed, scheduled);
    });
  }

  #leave(pass: IptablesPass, walk: Walk): readonly EndedWalk[] {
    return pass.hook("nat", "POSTROUTING", walk);
  }

  /** From a process on the node, past IPVS. */
  #outOfNode(pass: IptablesPass, walk: Walk): readonly EndedWalk[] {
    const out = onward(pass.hook("filter", "OUTPUT", walk), (passed) => this.#leave(pass, passed));
    if (!isNodeAddress(walk.destination, this.#surroundings)) return out;
    return onward(out, (passed) => {
      const back = throughLoopback(passed, this.#surroundings);
      // What IPVS has sent here is known to it; anything else it sees for the first time.
      return walk.translated ? pass.hook("filter", "INPUT", back) : this.#intoNode(back);
    });
  }

  #toRealServers(origin: Walk, { server, walks }: Scheduled): readonly EndedWalk[] {
    // The kernel answers such a packet itself, by ICMP.
    if (walks.length === 0) return [rejectedWalk(origin, null)];
    const pass = this.#passThrough(server);
    return walks.flatMap((walk) => {
      if (!isNodeAddress(walk.destination, this.#surroundings)) {
        return onward(pass.hook("filter", "OUTPUT", walk), (passed) => this.#leave(pass, passed));
      }
      return origin.inInterface === "" ? this.#outOfNode(pass, walk) : [acceptedWalk(walk)];
    });
  }

  #schedule(walk: Walk): Scheduled | null {
    return this.#servers.schedule(walk, this.#surroundings);
  }

  /** Through all rules, for packets that go through the virtual server, if one is named. */
  #passThrough(server: SavedVirtualServer | null): IptablesPass {
    const problems = this.#problems;
    const conditions = conditionsOf(
      this.#kernel.sets,
      server?.server ?? null,
      (one) => void problems.add(one),
    );
    return this.#tables.pass(this.#surroundings, problems, conditions);
  }
}
