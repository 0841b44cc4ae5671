/**
 * Walks a virtual packet through everything that one family of a kernel holds: iptables of every variant, nftables tables and IPVS,
 * hook by hook in the order of the kernel's priorities, whoever wrote the rules.
 *
 * What it knows of the kernel beside what the simulators of the modes know: the priorities of iptables' tables, that a connection is
 * translated once per direction by whichever rule comes first, and not at all where a rule switches tracking off, that forwarding, a
 * source that came the wrong way, a way that is not there, a loopback address on a wire and an interface that is down end a packet's way without any rule. Of chains with one
 * priority the newest comes first; those of iptables, whose age nobody tells, are taken to be new.
 *
 * @module
 */
import { isLoopback } from "../../model/ip.ts";
import type { NftBase } from "../../netfilter/parse_nft_spec.ts";
import { type Flow, type FlowHook, mergeOutcomes, type Packet } from "../flow.ts";
import { type IptablesPass, IptablesTables } from "../iptables_walk.ts";
import { conditionsOf, IpvsSchedule, type Scheduled } from "../ipvs/schedule.ts";
import { type HookedChain, isShown, NftPass } from "../nftables/walk.ts";
import {
  acceptedWalk,
  type EndedWalk,
  isNodeAddress,
  leavesThrough,
  onward,
  outcomeOfWalk,
  rejectedWalk,
  startOfWalk,
  type Surroundings,
  throughLoopback,
  type Walk,
} from "../packet_walk.ts";
import type { Simulator } from "../simulator.ts";
import { throughPortal } from "./held_portals.ts";
import type { HeldRules } from "./held_rules.ts";
import { type NodeSurroundings, plainSurroundings } from "./surroundings.ts";

/** A chain that the kernel calls, whatever it is written in. */
interface Station {
  readonly priority: number;
  readonly isNat: boolean;
  readonly run: (trip: Trip, walk: Walk) => readonly EndedWalk[];
}

type Stations = ReadonlyMap<FlowHook, readonly Station[]>;

const BUILTIN: Readonly<Record<FlowHook, string>> = {
  prerouting: "PREROUTING",
  input: "INPUT",
  forward: "FORWARD",
  output: "OUTPUT",
  postrouting: "POSTROUTING",
};
const HOOKS = Object.keys(BUILTIN) as readonly FlowHook[];
/** IPVS sees a packet of the node itself after the destination may have been translated. */
const IPVS_OUTPUT_PRIORITY = -98;

/** At which priority a table of iptables sees packets of a hook; null: it has no such chain. */
function priorityOf(table: string, hook: FlowHook): number | null {
  switch (table) {
    case "raw":
      return hook === "prerouting" || hook === "output" ? -300 : null;
    case "mangle":
      return -150;
    case "nat":
      if (hook === "forward") return null;
      return hook === "prerouting" || hook === "output" ? -100 : 100;
    case "filter":
      return hook === "prerouting" || hook === "postrouting" ? null : 0;
    case "security":
      return hook === "prerouting" || hook === "postrouting" ? null : 50;
    default:
      return null;
  }
}

/** One family of a node, ready for packets. */
export class NodeSimulator implements Simulator {
  readonly #held: HeldRules;
  readonly #tables: readonly IptablesTables[];
  readonly #stations: Stations;
  readonly #schedule: IpvsSchedule | null;

  constructor(held: HeldRules) {
    this.#held = held;
    this.#tables = held.iptables.map(({ tables }) => new IptablesTables(tables, true));
    this.#stations = stationsOf(held);
    this.#schedule = held.ipvs === null ? null : new IpvsSchedule(held.ipvs.servers);
  }

  /**
   * Says what becomes of the packet.
   *
   * @throws {RangeError} if an address of the packet is none
   */
  send(packet: Packet, surroundings: Surroundings | NodeSurroundings): Flow {
    const around = "notForwarding" in surroundings ? surroundings : plainSurroundings(surroundings);
    const bound = this.#held.ipvs?.bound ?? [];
    const onNode: NodeSurroundings = { ...around, nodeAddresses: [...around.nodeAddresses, ...bound] };
    const problems = new Set<string>();
    const trip = new Trip({
      held: this.#held,
      stations: this.#stations,
      schedule: this.#schedule,
      tables: this.#tables,
      surroundings: onNode,
      problems,
    });
    const start = startOfWalk(packet);
    const arrived = packet.inInterface === "" ? trip.fromNode(start) : trip.fromOutside(start);
    const { portals } = this.#held;
    const ended = portals === undefined ? arrived : arrived.flatMap((one) => {
      const isHere = one.verdict === "accept" && isNodeAddress(one.walk.destination, onNode);
      return isHere ? throughPortal(one, portals, onNode, (own) => trip.fromNode(own)) : [one];
    });
    const outcomes = mergeOutcomes(ended.map((one) => outcomeOfWalk(one, onNode)));
    return { outcomes, problems: [...problems] };
  }
}

/** The chains of each hook, in the order in which the kernel calls them. */
function stationsOf({ iptables, nftables }: HeldRules): Stations {
  const all = new Map<FlowHook, Station[]>(HOOKS.map((hook) => [hook, []]));
  for (const [index, { tables }] of iptables.entries()) {
    for (const [table, chains] of tables) {
      for (const hook of HOOKS) {
        const priority = priorityOf(table, hook);
        if (priority === null || !chains.has(BUILTIN[hook])) continue;
        const isNat = table === "nat";
        const run: Station["run"] = (trip, walk) => trip.iptables(index).hook(table, BUILTIN[hook], walk);
        all.get(hook)?.push({ priority, isNat, run });
      }
    }
  }
  // Of those with one priority the kernel asks the one first that was hooked in last.
  for (const table of nftables.toReversed()) {
    for (const chain of [...table.chains.values()].reverse()) {
      if (chain.base === null) continue;
      const hooked: HookedChain = { table, chain, base: chain.base };
      all.get(chain.base.hook)?.push(nftStation(hooked, chain.base));
    }
  }
  for (const [hook, stations] of all) all.set(hook, stations.toSorted((a, b) => a.priority - b.priority));
  return all;
}

function nftStation(hooked: HookedChain, base: NftBase): Station {
  return {
    priority: base.priority,
    isNat: base.type === "nat",
    run: (trip, walk) => isShown(base, walk) ? trip.throughNft(hooked, walk) : [acceptedWalk(walk)],
  };
}

/** What one packet's way goes by. */
interface TripOptions {
  readonly held: HeldRules;
  readonly stations: Stations;
  readonly schedule: IpvsSchedule | null;
  readonly tables: readonly IptablesTables[];
  readonly surroundings: NodeSurroundings;
  readonly problems: Set<string>;
}

/** One packet's way. */
class Trip {
  readonly #nft: NftPass;
  readonly #options: TripOptions;
  #passes: readonly IptablesPass[];

  constructor(options: TripOptions) {
    this.#options = options;
    this.#nft = new NftPass(options.surroundings, (problem) => void options.problems.add(problem));
    this.#passes = this.#passesThrough(null);
  }

  iptables(index: number): IptablesPass {
    const pass = this.#passes[index];
    if (pass === undefined) throw new RangeError(`There is no iptables ${index}`);
    return pass;
  }

  /** What the kernel would not have taken is told, and costs nothing but that chain. */
  throughNft(hooked: HookedChain, walk: Walk): readonly EndedWalk[] {
    try {
      return this.#nft.baseChain(hooked, walk);
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
      const { table: { family, name, label }, chain } = hooked;
      const table = label ?? `${family === "IPv4" ? "ip" : "ip6"} ${name}`;
      this.#options.problems.add(
        `Table ${table} chain ${chain.name}: ${error.message}; it is taken to let the packet pass`,
      );
      return [acceptedWalk(walk)];
    }
  }

  fromOutside(start: Walk): readonly EndedWalk[] {
    const refused = this.#refusedByInterface(start);
    if (refused !== null) return [refused];
    return onward(this.#hook("prerouting", start), (walk) => {
      if (this.#isHere(walk)) {
        const martian = this.#notOnLoopback(walk, "destination", walk.inInterface);
        return martian === null ? this.#intoNode(walk) : [martian];
      }
      const stopped = this.#notForwarded(walk);
      if (stopped !== null) return [stopped];
      return onward(this.#hook("forward", walk), (passed) => this.#hook("postrouting", passed));
    });
  }

  fromNode(start: Walk): readonly EndedWalk[] {
    // The kernel looks for a way before it asks the rules, and again once they have changed the destination.
    const lost = this.#isHere(start) ? null : this.#withoutRoute(start);
    if (lost !== null) return [lost];
    const before = (station: Station): boolean => station.priority < IPVS_OUTPUT_PRIORITY;
    return onward(this.#hook("output", start, before), (walk) => {
      const scheduled = this.#schedule(walk);
      if (scheduled !== null) return this.#toRealServers(walk, scheduled);
      return this.#outOfNode(walk, (station) => !before(station));
    });
  }

  #isHere(walk: Walk): boolean {
    return isNodeAddress(walk.destination, this.#options.surroundings);
  }

  #intoNode(walk: Walk): readonly EndedWalk[] {
    return onward(this.#hook("input", walk), (passed) => {
      const scheduled = this.#schedule(passed);
      return scheduled === null ? [acceptedWalk(passed)] : this.#toRealServers(passed, scheduled);
    });
  }

  /** From a process on the node, past IPVS. */
  #outOfNode(walk: Walk, isPassed: (station: Station) => boolean): readonly EndedWalk[] {
    const out = onward(this.#hook("output", walk, isPassed), (passed) => {
      const stopped = this.#isHere(passed) ? null : this.#withoutRoute(passed) ??
        this.#notOnLoopback(passed, "source", leavesThrough(passed, this.#options.surroundings));
      return stopped === null ? this.#hook("postrouting", passed) : [stopped];
    });
    if (!this.#isHere(walk)) return out;
    return onward(out, (passed) => {
      const back = throughLoopback(passed, this.#options.surroundings);
      // Conntrack keeps its entry on the way through lo: nat does not see the packet again.
      return onward(
        this.#hook("prerouting", back, ({ isNat }) => !isNat),
        (here) => walk.translated ? this.#hook("input", here) : this.#intoNode(here),
      );
    });
  }

  #toRealServers(origin: Walk, { server, walks }: Scheduled): readonly EndedWalk[] {
    // The kernel answers such a packet itself, by ICMP.
    if (walks.length === 0) {
      const hit = this.#options.schedule?.emptyHit(server);
      return [rejectedWalk(hit === undefined ? origin : { ...origin, hits: [...origin.hits, hit] }, null)];
    }
    const passes = this.#passes;
    this.#passes = this.#passesThrough(server.server);
    const isFilter = ({ isNat }: Station): boolean => !isNat;
    const ended = walks.flatMap((walk) => {
      if (!this.#isHere(walk)) {
        return onward(this.#hook("output", walk, isFilter), (passed) => this.#hook("postrouting", passed));
      }
      return origin.inInterface === "" ? this.#outOfNode(walk, isFilter) : [acceptedWalk(walk)];
    });
    this.#passes = passes;
    return ended;
  }

  #schedule(walk: Walk): Scheduled | null {
    const { schedule, surroundings } = this.#options;
    return schedule?.schedule(walk, surroundings) ?? null;
  }

  #passesThrough(server: Scheduled["server"]["server"] | null): readonly IptablesPass[] {
    const { held, tables, surroundings, problems } = this.#options;
    const conditions = conditionsOf(held.sets, server, (problem) => void problems.add(problem));
    return tables.map((one) => one.pass(surroundings, problems, conditions));
  }

  /** All chains of a hook that are passed; what they did is told with the hook. */
  #hook(
    hook: FlowHook,
    walk: Walk,
    isPassed: (station: Station) => boolean = () => true,
  ): readonly EndedWalk[] {
    let walks: readonly EndedWalk[] = [acceptedWalk(walk)];
    for (const station of this.#options.stations.get(hook) ?? []) {
      if (!isPassed(station)) continue;
      walks = onward(walks, (one) => {
        if (station.isNat && isSettled(hook, one)) return [acceptedWalk(one)];
        const known = one.hits.length;
        return station.run(this, one).map((ended) => ({ ...ended, walk: inHook(hook, ended.walk, known) }));
      });
    }
    return walks;
  }

  #refusedByInterface(walk: Walk): EndedWalk | null {
    const { downInterfaces, strictInterfaces, outInterface } = this.#options.surroundings;
    const { inInterface, source } = walk;
    if (downInterfaces.has(inInterface)) {
      return stoppedAt(walk, "interface", inInterface, "the interface is down");
    }
    const back = strictInterfaces.has(inInterface) ? outInterface(source.text) : undefined;
    if (back === undefined || back === inInterface) return null;
    const way = back === null ? "there is no way back" : `the way back is through ${back}`;
    return stoppedAt(walk, "rp_filter", inInterface, `reverse path filter: ${way} to ${source.text}`);
  }

  #notForwarded(walk: Walk): EndedWalk | null {
    const { family } = walk.destination;
    const reason = this.#options.surroundings.notForwarding[family];
    if (reason === null) return this.#withoutRoute(walk);
    return stoppedAt(walk, "routing", "forwarding", `${family} packets are not forwarded: ${reason}`);
  }

  #withoutRoute(walk: Walk): EndedWalk | null {
    const { text } = walk.destination;
    if (this.#options.surroundings.outInterface(text) !== null) return null;
    return stoppedAt(walk, "routing", "routes", `there is no route to ${text}`);
  }

  /** 127.0.0.0/8 on another way than through `lo`. @param name undefined: not known */
  #notOnLoopback(walk: Walk, side: "source" | "destination", name: string | undefined): EndedWalk | null {
    const { localnetInterfaces } = this.#options.surroundings;
    const ip = walk[side];
    if (localnetInterfaces === null || ip.family !== "IPv4" || !isLoopback(ip)) return null;
    if (name === undefined || name === "lo" || localnetInterfaces.has(name)) return null;
    const way = side === "source" ? `from ${ip.text} out of` : `to ${ip.text} in from`;
    const setting = `net.ipv4.conf.${name}.route_localnet and that of "all" are 0`;
    return stoppedAt(walk, "routing", "route_localnet", `no packet ${way} ${name}: ${setting}`);
  }
}

/** A connection is translated once per direction, by whoever comes first. */
function isSettled(hook: FlowHook, walk: Walk): boolean {
  if (walk.state !== "NEW") return true;
  if (hook === "prerouting" || hook === "output") return walk.translated || walk.inInterface === "lo";
  return hook === "postrouting" && walk.masquerade;
}

function inHook(hook: FlowHook, walk: Walk, known: number): Walk {
  if (walk.hits.length === known) return walk;
  const hits = walk.hits.map((hit, index) => index < known ? hit : { ...hit, hook });
  return { ...walk, hits };
}

/** The end of a way that no rule has decided. */
function stoppedAt(walk: Walk, table: string, chain: string, rule: string): EndedWalk {
  return {
    walk: { ...walk, hits: [...walk.hits, { table, chain, index: 0, rule }] },
    verdict: "drop",
    rejectWith: "",
  };
}
