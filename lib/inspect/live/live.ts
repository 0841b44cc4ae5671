/**
 * What a kernel holds of one family, as it was read from the tools or from saved text, and what could not be read.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import type { DataPlane } from "../desired/desired.ts";
import type { HeldRules } from "../../sim/held_rules.ts";

/** Something that could not be read. */
export interface LiveProblem {
  /** A program (`nft list ruleset`) or a file, then the place in its text, e.g. `rules.txt: table nat`. */
  readonly place: string;
  readonly message: string;
}

/** A proxy whose rules are there. */
export interface FoundProxy {
  readonly mode: DataPlane;
  /** `kube-proxy`: the names that it uses, too; kproxy's own nftables table has a name of its own. */
  readonly layout: "kproxy" | "kube-proxy";
  /** What tells, e.g. `table ip kproxy`. */
  readonly sign: string;
  /** False: nothing leads a packet to its rules. */
  readonly isHooked: boolean;
}

/** One family of a kernel. */
export interface LiveRules extends HeldRules {
  /** Where it was read, e.g. `the kernel`, `files a.txt, b.txt`. */
  readonly from: string;
  /** In the order in which packets meet them; none: no service proxy's rules are there. */
  readonly proxies: readonly FoundProxy[];
  readonly problems: readonly LiveProblem[];
}

/** Both families. */
export type LiveNode = ReadonlyMap<IpFamily, LiveRules>;

/** The mode in force in any family; null: none. */
export function foundPlane(live: LiveNode): DataPlane | null {
  for (const { proxies } of live.values()) {
    const proxy = proxies.find(({ isHooked }) => isHooked) ?? proxies[0];
    if (proxy !== undefined) return proxy.mode;
  }
  return null;
}
