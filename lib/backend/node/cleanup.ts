/**
 * How the leftovers of a proxy mode are found and removed: chains by name, and everything else by the mode's own code.
 *
 * @module
 */
import type { CleanupMode, CleanupProxy } from "../../config/types.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { IpFamily } from "../../model/objects.ts";
import {
  CANARY_CHAIN,
  EXTERNAL_SERVICES_CHAIN,
  FIREWALL_JUMP_COMMENT,
  NODE_PORTS_CHAIN,
  SERVICES_CHAIN,
} from "../iptables/plan/chains.ts";
import { CHAINS } from "../userspace/plan/chains.ts";

/** Chains of iptables by table, callers before those they call. */
export interface OwnedChains {
  readonly nat: readonly string[];
  readonly filter: readonly string[];
  readonly mangle: readonly string[];
}

/** One thing of a mode that is gone, or would go. */
export interface Leftover {
  /** Where it is, e.g. `IPv4 nft nat` or `ipset`. */
  readonly place: string;
  /** As a command of the tool of that place. */
  readonly command: string;
  /** What it counts as in a summary, e.g. `chains and jumps of IPv4 nft`. */
  readonly kind: string;
}

/** One thing that stays because something of others needs it. */
export interface KeptLeftover {
  readonly place: string;
  readonly command: string;
  readonly reason: string;
}

/** Something that could not be removed or looked at. */
export interface LeftoverFailure {
  readonly place: string;
  readonly error: Error;
}

/** What a cleanup did, or would do. */
export interface LeftoverReport {
  readonly removed: readonly Leftover[];
  readonly kept: readonly KeptLeftover[];
  readonly failed: readonly LeftoverFailure[];
}

/** What a cleanup works on. */
export interface CleanupContext {
  readonly exec: Exec;
  /** The IP families to look at. */
  readonly families: readonly IpFamily[];
  /** True only lists what would be removed. */
  readonly dryRun: boolean;
  /** The proxy whose things go: only those with names of its own. Without it those of both go. */
  readonly of?: CleanupProxy;
  /** True: all IPVS virtual servers go, also those of other programs. */
  readonly flushIpvs?: boolean;
  /** IPVS virtual servers in these networks belong to other programs, even if they look like a proxy's. */
  readonly excludeCidrs?: readonly string[];
  /** How long connections may go on through what is to go; without it they are cut. */
  readonly drain?: { readonly clock: Clock; readonly limitMs: number };
}

/** How one mode's leftovers are found. */
export interface ModeCleanup {
  readonly mode: CleanupMode;
  /** The proxies whose things have names of their own; none where both use the same names. */
  readonly distinct: readonly CleanupProxy[];
  /** What it alone has in iptables. */
  readonly chains?: OwnedChains;
  /** Comments of its jumps, which no other mode writes, into chains that another mode may have filled since. */
  readonly jumpComments?: readonly string[];
  /** Removes what it has outside of iptables. Called once its rules are gone. */
  readonly removeOthers?: (context: CleanupContext) => Promise<LeftoverReport>;
}

/** How many things of each kind went. */
export function countLeftovers({ removed }: LeftoverReport): readonly (readonly [string, number])[] {
  const counts = new Map<string, number>();
  for (const { kind } of removed) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts];
}

export const IPTABLES_CLEANUP: ModeCleanup = {
  mode: "iptables",
  distinct: [],
  chains: {
    nat: [NODE_PORTS_CHAIN, CANARY_CHAIN],
    filter: [SERVICES_CHAIN, EXTERNAL_SERVICES_CHAIN, NODE_PORTS_CHAIN, CANARY_CHAIN],
    mangle: [CANARY_CHAIN],
  },
  jumpComments: [FIREWALL_JUMP_COMMENT],
};

export const USERSPACE_CLEANUP: ModeCleanup = {
  mode: "userspace",
  distinct: [],
  chains: {
    ...CHAINS,
    mangle: [],
  },
};
