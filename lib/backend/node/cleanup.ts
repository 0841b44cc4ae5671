/**
 * How the leftovers of a proxy mode are found and removed: chains by name, and everything else by the mode's own code.
 *
 * @module
 */
import type { CleanupMode, CleanupProxy } from "../../config/types.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { IpFamily } from "../../model/objects.ts";

/** Chains of iptables by table, callers before callees. */
export interface OwnedChains {
  readonly nat: readonly string[];
  readonly filter: readonly string[];
  readonly mangle: readonly string[];
}

/** One object of a mode that was removed, or would be. */
export interface Leftover {
  /** Where it is, e.g. `IPv4 nft nat` or `ipset`. */
  readonly place: string;
  /** Its removal, as a command of the tool of that place. */
  readonly command: string;
  /** What it counts as in a summary, e.g. `chains and jumps of IPv4 nft`. */
  readonly kind: string;
}

/** One object that stays because other programs' rules need it. */
export interface KeptLeftover {
  readonly place: string;
  readonly command: string;
  readonly reason: string;
}

/** A place where something could not be removed or read. */
export interface LeftoverFailure {
  readonly place: string;
  readonly error: Error;
}

/** Result of a cleanup, or of a dry run. */
export interface LeftoverReport {
  readonly removed: readonly Leftover[];
  readonly kept: readonly KeptLeftover[];
  readonly failed: readonly LeftoverFailure[];
}

/** Scope and options of a cleanup. */
export interface CleanupContext {
  readonly exec: Exec;
  /** The IP families to look at. */
  readonly families: readonly IpFamily[];
  /** True only lists what would be removed. */
  readonly dryRun: boolean;
  /** The proxy whose objects go: only those with names of its own. Absent: objects of both proxies go. */
  readonly of?: CleanupProxy;
  /** True: all IPVS virtual servers go, also those of other programs. */
  readonly flushIpvs?: boolean;
  /** IPVS virtual servers in these networks belong to other programs, even if they look like a proxy's. */
  readonly excludeCidrs?: readonly string[];
  /** Time for connections through removed objects to drain; without it they are cut. */
  readonly drain?: { readonly clock: Clock; readonly limitMs: number };
}

/** How leftovers of one mode are found and removed. */
export interface ModeCleanup {
  readonly mode: CleanupMode;
  /** The proxies whose objects have names of their own; none where both use the same names. */
  readonly distinct: readonly CleanupProxy[];
  /** iptables chains that only this mode uses. */
  readonly chains?: OwnedChains;
  /** Comments of jumps that only this mode writes, into chains that another mode may have filled since. */
  readonly jumpComments?: readonly string[];
  /** Removes its objects outside of iptables. Called once its rules are gone. */
  readonly removeOthers?: (context: CleanupContext) => Promise<LeftoverReport>;
}

/** Number of removed objects of each kind. */
export function countLeftovers({ removed }: LeftoverReport): readonly (readonly [string, number])[] {
  const counts = new Map<string, number>();
  for (const { kind } of removed) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts];
}
