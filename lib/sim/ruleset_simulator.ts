/**
 * Walks a virtual packet through everything that one family of a kernel holds: iptables of every variant, nftables tables and IPVS,
 * hook by hook in the order of the kernel's priorities, through the rules of all programs.
 *
 * What it knows of the kernel beside rules: which hooks a packet passes, that an accepting verdict ends only its own base chain, that
 * nat sees only a connection's first packet and translates it once per direction by whichever rule comes first, and not at all where a
 * rule switches tracking off; routing by the node's own addresses; that a packet to the node itself comes back in through `lo`. IPVS
 * sees a packet to an address of the node after hook input, one from the node after its destination may have been translated; a packet
 * with its new destination leaves through output and postrouting and not through forward; a virtual server without real ones refuses.
 * Forwarding, a source that came the wrong way, a route that is not there, a loopback address on a wire and an interface that is down
 * end a packet's path without any rule. Of chains with one priority the newest comes first; those of iptables, whose age is unknown,
 * are taken to be new.
 *
 * @module
 */
import { type Cidr, isLoopback } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import { virtualServerKey } from "../netfilter/ipvs.ts";
import type { ListedTable } from "../netfilter/nft_listing.ts";
import { baseOf, NftTable } from "../netfilter/nft_ruleset.ts";
import { type BaseChain, ChainWalk, type WalkedTable } from "./chain_walk.ts";
import { type Flow, type FlowHook, mergeOutcomes, type Packet } from "./flow.ts";
import type { IptablesSnapshot, RulesetSnapshot } from "./ruleset_snapshot.ts";
import { IptablesMatcher, iptablesRules } from "./iptables_match.ts";
import { schedule, type Scheduled } from "./ipvs_schedule.ts";
import {
  acceptedWalk,
  type EndedWalk,
  type HostState,
  isNodeAddress,
  leavesThrough,
  onward,
  outcomeOfWalk,
  rejectedWalk,
  startOfWalk,
  throughLoopback,
  type Walk,
} from "./packet_walk.ts";
import { throughPortal } from "./portals.ts";

/** Simulates packets of one IP family under the rules that it was made from. */
export interface Simulator {
  /**
   * All possible outcomes of the packet.
   *
   * @throws {RangeError} if an address of the packet is invalid
   */
  send(packet: Packet, hostState: HostState): Flow;
}

type Hooks = ReadonlyMap<FlowHook, readonly BaseChain[]>;

const BUILTIN: Readonly<Record<FlowHook, string>> = {
  prerouting: "PREROUTING",
  input: "INPUT",
  forward: "FORWARD",
  output: "OUTPUT",
  postrouting: "POSTROUTING",
};
const HOOKS = Object.keys(BUILTIN) as readonly FlowHook[];
/** Priority of IPVS in hook output: after DNAT of the node's own packets. */
const IPVS_OUTPUT_PRIORITY = -98;

/** Priorities of iptables tables by hook. */
const PRIORITIES: Readonly<Record<string, Readonly<Partial<Record<FlowHook, number>>>>> = {
  raw: { prerouting: -300, output: -300 },
  mangle: { prerouting: -150, input: -150, forward: -150, output: -150, postrouting: -150 },
  nat: { prerouting: -100, input: 100, output: -100, postrouting: 100 },
  filter: { input: 0, forward: 0, output: 0 },
  security: { input: 50, forward: 50, output: 50 },
};

/** A simulator of one family's rules on a node. */
export class RulesetSimulator implements Simulator {
  readonly #held: RulesetSnapshot;
  readonly #hooks: Hooks;
  readonly #cidrs = new Map<string, Cidr | null>();

  /** A simulator of a snapshot, which must not change while packets are sent. */
  constructor(held: RulesetSnapshot) {
    this.#held = held;
    this.#hooks = hooksOf(held);
  }

  /**
   * All possible outcomes of the packet.
   *
   * @throws {RangeError} if an address of the packet is invalid
   */
  send(packet: Packet, hostState: HostState): Flow {
    const { portals, sets, ipvs } = this.#held;
    const onNode = {
      ...hostState,
      nodeAddresses: [...hostState.nodeAddresses, ...ipvs?.bound ?? []],
    };
    const problems = new Set<string>();
    const report = (problem: string): void => void problems.add(problem);
    const context = { hostState: onNode, cidrs: this.#cidrs, report };
    const chains = new ChainWalk(context, new IptablesMatcher(context, sets));
    const trip = new Trip(this.#held, this.#hooks, onNode, chains);
    const start = startOfWalk(packet);
    const arrived = packet.inInterface === "" ? trip.fromNode(start) : trip.fromOutside(start);
    const ended = portals === undefined ? arrived : arrived.flatMap((one) => {
      const isHere = one.verdict === "accept" && isNodeAddress(one.walk.destination, onNode);
      return isHere ? throughPortal(one, portals, onNode, (own) => trip.fromNode(own)) : [one];
    });
    const outcomes = mergeOutcomes(ended.map((one) => outcomeOfWalk(one, onNode)));
    return { outcomes, problems: [...problems] };
  }
}

/** Base chains of each hook, in the order in which the kernel calls them. */
function hooksOf({ family, iptables, nftables }: RulesetSnapshot): Hooks {
  const all = [
    ...iptables.flatMap(builtinChains),
    // At equal priority the kernel calls the chain first that was registered last.
    ...nftables.toReversed().flatMap((listed) => nftBaseChains(listed, family)),
  ];
  return Map.groupBy(all.toSorted((a, b) => a.priority - b.priority), ({ hook }) => hook);
}

function builtinChains({ tables }: IptablesSnapshot): BaseChain[] {
  return [...tables].flatMap(([label, chains]) => {
    const table: WalkedTable = {
      label,
      rulesOf: (name) => {
        const chain = chains.get(name);
        return chain === undefined ? undefined : iptablesRules(chain.rules);
      },
      nft: null,
    };
    const type = label === "nat" ? "nat" : "filter";
    return HOOKS.flatMap((hook): BaseChain[] => {
      const name = BUILTIN[hook];
      const priority = PRIORITIES[label]?.[hook];
      const chain = chains.get(name);
      if (priority === undefined || chain === undefined) return [];
      const policy = chain.policy === "DROP" ? "drop" : "accept";
      return [{ table, name, type, hook, priority, policy }];
    });
  });
}

function nftBaseChains(listed: ListedTable, family: IpFamily): BaseChain[] {
  const nft = new NftTable(listed, family);
  const table: WalkedTable = { label: listed.name, rulesOf: (chain) => nft.rulesOf(chain), nft };
  return [...listed.chains.values()].reverse().flatMap(({ name, hook }): BaseChain[] => {
    const base = baseOf(hook);
    return base === null ? [] : [{ ...base, table, name }];
  });
}

/** One packet's path. */
class Trip {
  readonly #held: RulesetSnapshot;
  readonly #hooks: Hooks;
  readonly #hostState: HostState;
  readonly #chains: ChainWalk;

  constructor(held: RulesetSnapshot, hooks: Hooks, hostState: HostState, chains: ChainWalk) {
    this.#held = held;
    this.#hooks = hooks;
    this.#hostState = hostState;
    this.#chains = chains;
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
    // The kernel looks up a route before the rules run, and again once they have changed the destination.
    const lost = this.#isHere(start) ? null : this.#withoutRoute(start);
    if (lost !== null) return [lost];
    const before = (chain: BaseChain): boolean => chain.priority < IPVS_OUTPUT_PRIORITY;
    return onward(this.#hook("output", start, before), (walk) => {
      const scheduled = this.#schedule(walk);
      if (scheduled !== null) return this.#toRealServers(walk, scheduled);
      return this.#outOfNode(walk, (chain) => !before(chain));
    });
  }

  #isHere(walk: Walk): boolean {
    return isNodeAddress(walk.destination, this.#hostState);
  }

  #intoNode(walk: Walk): readonly EndedWalk[] {
    return onward(this.#hook("input", walk), (passed) => {
      const scheduled = this.#schedule(passed);
      return scheduled === null ? [acceptedWalk(passed)] : this.#toRealServers(passed, scheduled);
    });
  }

  /** A packet of a process on the node, after IPVS. */
  #outOfNode(walk: Walk, isPassed: (chain: BaseChain) => boolean): readonly EndedWalk[] {
    const out = onward(this.#hook("output", walk, isPassed), (passed) => {
      const stopped = this.#isHere(passed) ? null : this.#withoutRoute(passed) ??
        this.#notOnLoopback(passed, "source", leavesThrough(passed, this.#hostState));
      return stopped === null ? this.#hook("postrouting", passed) : [stopped];
    });
    if (!this.#isHere(walk)) return out;
    return onward(out, (passed) => {
      const back = throughLoopback(passed, this.#hostState);
      // On the way through lo conntrack keeps its entry: nat does not see the packet again.
      return onward(
        this.#hook("prerouting", back, isFilter),
        (here) => walk.translated ? this.#hook("input", here) : this.#intoNode(here),
      );
    });
  }

  #toRealServers(origin: Walk, { server, walks }: Scheduled): readonly EndedWalk[] {
    // The kernel rejects such a packet itself, by ICMP.
    if (walks.length === 0) {
      const chain = virtualServerKey(server.server);
      const hit = { table: "ipvs", chain, index: 0, rule: "no real server" };
      return [rejectedWalk({ ...origin, hits: [...origin.hits, hit] }, null)];
    }
    const { iptables } = this.#chains;
    const outer = iptables.through;
    iptables.through = server.server;
    const ended = walks.flatMap((walk) => {
      if (!this.#isHere(walk)) {
        return onward(this.#hook("output", walk, isFilter), (passed) => this.#hook("postrouting", passed));
      }
      return origin.inInterface === "" ? this.#outOfNode(walk, isFilter) : [acceptedWalk(walk)];
    });
    iptables.through = outer;
    return ended;
  }

  #schedule(walk: Walk): Scheduled | null {
    const { ipvs } = this.#held;
    return ipvs === null ? null : schedule(ipvs.servers, walk, this.#hostState);
  }

  /** All base chains of a hook that `isPassed` selects. */
  #hook(
    hook: FlowHook,
    walk: Walk,
    isPassed: (chain: BaseChain) => boolean = () => true,
  ): readonly EndedWalk[] {
    let walks: readonly EndedWalk[] = [acceptedWalk(walk)];
    for (const base of this.#hooks.get(hook) ?? []) {
      if (!isPassed(base)) continue;
      const isNat = base.type === "nat";
      walks = onward(
        walks,
        (one) => isNat && isSettled(hook, one) ? [acceptedWalk(one)] : this.#chains.baseChain(base, one),
      );
    }
    return walks;
  }

  #refusedByInterface(walk: Walk): EndedWalk | null {
    const { downInterfaces, strictInterfaces, outInterface } = this.#hostState;
    const { inInterface, source } = walk;
    if (downInterfaces?.has(inInterface) === true) {
      return stoppedAt(walk, "interface", inInterface, "the interface is down");
    }
    const back = strictInterfaces?.has(inInterface) === true ? outInterface?.(source.text) : undefined;
    if (back === undefined || back === inInterface) return null;
    const way = back === null ? "there is no way back" : `the way back is through ${back}`;
    return stoppedAt(walk, "rp_filter", inInterface, `reverse path filter: ${way} to ${source.text}`);
  }

  #notForwarded(walk: Walk): EndedWalk | null {
    const { family } = walk.destination;
    const reason = this.#hostState.notForwarding?.[family] ?? null;
    if (reason === null) return this.#withoutRoute(walk);
    return stoppedAt(walk, "routing", "forwarding", `${family} packets are not forwarded: ${reason}`);
  }

  #withoutRoute(walk: Walk): EndedWalk | null {
    const { text } = walk.destination;
    if (this.#hostState.outInterface?.(text) !== null) return null;
    return stoppedAt(walk, "routing", "routes", `there is no route to ${text}`);
  }

  /** Drops packets of 127.0.0.0/8 outside of `lo`. @param name the interface; undefined: unknown */
  #notOnLoopback(walk: Walk, side: "source" | "destination", name: string | undefined): EndedWalk | null {
    const { localnetInterfaces = null } = this.#hostState;
    const ip = walk[side];
    if (localnetInterfaces === null || ip.family !== "IPv4" || !isLoopback(ip)) return null;
    if (name === undefined || name === "lo" || localnetInterfaces.has(name)) return null;
    const way = side === "source" ? `from ${ip.text} out of` : `to ${ip.text} in from`;
    const setting = `net.ipv4.conf.${name}.route_localnet and that of "all" are 0`;
    return stoppedAt(walk, "routing", "route_localnet", `no packet ${way} ${name}: ${setting}`);
  }
}

/** NAT translates a connection once per direction, by the first rule that matches. */
function isSettled(hook: FlowHook, walk: Walk): boolean {
  if (walk.state !== "NEW") return true;
  if (hook === "prerouting" || hook === "output") return walk.translated || walk.inInterface === "lo";
  return walk.masquerade;
}

function isFilter({ type }: BaseChain): boolean {
  return type !== "nat";
}

/** A path that the kernel itself ends, without any rule. */
function stoppedAt(walk: Walk, table: string, chain: string, rule: string): EndedWalk {
  return {
    walk: { ...walk, hits: [...walk.hits, { table, chain, index: 0, rule }] },
    verdict: "drop",
    rejectWith: "",
  };
}
