/**
 * Walks a virtual packet through nftables tables, hook by hook and chain by chain in the order of their priorities, following
 * every branch of a random choice.
 *
 * What it knows of the kernel: which hooks a packet passes, that an accepting verdict ends only its own base chain, that chains of
 * type nat see only a connection's first packet and translate it once per direction, routing by the node's own addresses, and
 * that a packet to the node itself comes back in through `lo`.
 *
 * @module
 */
import type { NftTable } from "../../netfilter/nft_tables.ts";
import type { NftHook } from "../../netfilter/parse_nft_spec.ts";
import { type Flow, mergeOutcomes, type Packet } from "../flow.ts";
import {
  acceptedWalk,
  type EndedWalk,
  isNodeAddress,
  outcomeOfWalk,
  startOfWalk,
  type Surroundings,
  throughLoopback,
  type Walk,
} from "../packet_walk.ts";
import type { Simulator } from "../simulator.ts";
import { CONNTRACK_PRIORITY, type HookedChain, isShown, NftPass } from "./walk.ts";

/** One family's tables, ready for packets. */
export class NftablesSimulator implements Simulator {
  readonly #hooks: ReadonlyMap<NftHook, readonly HookedChain[]>;

  /**
   * Takes tables of one or both families, in the order in which they were made.
   *
   * @param tables all that the kernel has, in the order in which they were made: of chains with one priority the newest is asked first
   * @throws {RangeError} if a chain is called before connections are tracked
   */
  constructor(tables: readonly NftTable[]) {
    const chains = tables.flatMap((table) =>
      table.chains.values().toArray().flatMap((chain): HookedChain[] =>
        chain.base === null ? [] : [{ table, chain, base: chain.base }]
      )
    );
    for (const { chain, base } of chains) {
      if (base.priority <= CONNTRACK_PRIORITY) {
        throw new RangeError(`Chain ${chain.name} comes before connection tracking`);
      }
    }
    this.#hooks = Map.groupBy(
      chains.toReversed().toSorted((a, b) => a.base.priority - b.base.priority),
      (one) => one.base.hook,
    );
  }

  /**
   * Says what the rules do with the packet.
   *
   * @throws {RangeError} if an address of the packet is none, or a statement stands where the kernel refuses it
   */
  send(packet: Packet, surroundings: Surroundings): Flow {
    const problems = new Set<string>();
    const pass = new NftPass(surroundings, (problem) => void problems.add(problem));
    const hooks = new Hooks(this.#hooks, pass);
    const start = startOfWalk(packet);
    const ended = hooks.hook(packet.inInterface === "" ? "output" : "prerouting", start)
      .flatMap((one) => one.verdict === "accept" ? routed(hooks, one.walk, surroundings) : [one]);
    const outcomes = mergeOutcomes(ended.map((one) => outcomeOfWalk(one, surroundings)));
    return { outcomes, problems: [...problems] };
  }
}

/** Everything after the destination is settled. */
function routed(hooks: Hooks, walk: Walk, surroundings: Surroundings): readonly EndedWalk[] {
  const fromNode = walk.inInterface === "";
  const toNode = isNodeAddress(walk.destination, surroundings);
  if (toNode && !fromNode) return hooks.hook("input", walk);
  const out = hooks.hooks([...(fromNode ? [] : ["forward" as const]), "postrouting"], walk);
  if (!toNode) return out;
  return out.flatMap((one) =>
    one.verdict === "accept"
      ? hooks.hooks(["prerouting", "input"], throughLoopback(one.walk, surroundings))
      : [one]
  );
}

/** One packet's way through the hooks. */
class Hooks {
  readonly #hooks: ReadonlyMap<NftHook, readonly HookedChain[]>;
  readonly #pass: NftPass;

  constructor(hooks: ReadonlyMap<NftHook, readonly HookedChain[]>, pass: NftPass) {
    this.#hooks = hooks;
    this.#pass = pass;
  }

  /** Several hooks, one after the other. */
  hooks(hooks: readonly NftHook[], walk: Walk): readonly EndedWalk[] {
    return hooks.reduce<readonly EndedWalk[]>(
      (walks, hook) => walks.flatMap((one) => one.verdict === "accept" ? this.hook(hook, one.walk) : [one]),
      [acceptedWalk(walk)],
    );
  }

  /** All base chains of a hook, their policies included. */
  hook(hook: NftHook, walk: Walk): readonly EndedWalk[] {
    let walks: readonly EndedWalk[] = [acceptedWalk(walk)];
    for (const hooked of this.#hooks.get(hook) ?? []) {
      walks = walks.flatMap((one) =>
        one.verdict === "accept" && isShown(hooked.base, one.walk)
          ? this.#pass.baseChain(hooked, one.walk)
          : [one]
      );
    }
    return walks;
  }
}
