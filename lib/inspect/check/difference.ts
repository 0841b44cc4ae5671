/**
 * What `kproxy check` finds: where the live rules of one family are not the desired ones, by Service.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { DesiredInput } from "../desired/desired.ts";
import type { LiveProblem, LiveRules } from "../live/live.ts";
import type { KnownPortals } from "../live/portals.ts";
import type { PacketSources } from "./packets.ts";

export type DifferenceKind =
  | "missing"
  | "surplus"
  | "changed"
  | "order"
  /** Of a Service that is gone. */
  | "leftover"
  /** Of another mode, or of another proxy. */
  | "otherMode"
  /** A rule of another program that takes packets before ours see them. */
  | "foreign"
  /** In another layout, and packets fare otherwise. */
  | "behaviour";

export interface Difference {
  readonly kind: DifferenceKind;
  /** E.g. `iptables nat KUBE-SVC-…`, `nftables ip kproxy service-ips`, `IPVS`, `ipset KUBE-CLUSTER-IP`. */
  readonly place: string;
  /** What is wrong there, e.g. `the chain is empty`. */
  readonly cause: string;
  /** What should be there and is not, as it is written. */
  readonly wanted: readonly string[];
  /** What is there and should not be, as it was read. */
  readonly found: readonly string[];
}

export interface FamilyCheck {
  readonly family: IpFamily;
  /** Services with ports of this family. */
  readonly compared: number;
  /** What carries no Service's name: the kernel's own chains, jumps, static rules, sets, the device. */
  readonly base: readonly Difference[];
  readonly services: ReadonlyMap<NamespacedName, readonly Difference[]>;
  /** What no Service wants (any more). */
  readonly leftovers: readonly Difference[];
  /** False: a tool that is needed has failed, and nothing was compared. */
  readonly isRead: boolean;
  /** What is to be known besides, one sentence each. */
  readonly notes: readonly string[];
  readonly problems: readonly LiveProblem[];
}

export interface Comparison {
  readonly desired: DesiredInput;
  readonly family: IpFamily;
  readonly live: LiveRules;
  /** Of iptables: the tables of the variant in use. */
  readonly tables: IptablesRuleset;
  /** True: the kernel was read, so that a table that is not there is empty. False: it was not saved. */
  readonly isKernel: boolean;
  /** In mode userspace: the ports that kproxy listens on, or why they are unknown. */
  readonly portals: KnownPortals | string | null;
  /** Where packets come from that stand for others. */
  readonly sources: PacketSources;
}

export class DifferenceList {
  readonly base: Difference[] = [];
  readonly services = new Map<NamespacedName, Difference[]>();
  readonly leftovers: Difference[] = [];
  readonly notes: string[] = [];
  readonly problems: LiveProblem[] = [];

  /** @param service null: none in particular */
  add(service: NamespacedName | null, difference: Difference | null): void {
    if (difference === null) return;
    const known = service === null ? this.base : this.services.get(service);
    if (known !== undefined) known.push(difference);
    else if (service !== null) this.services.set(service, [difference]);
  }

  leave(difference: Omit<Difference, "kind">): void {
    this.leftovers.push({ ...difference, kind: "leftover" });
  }
}

/** True if the family was read, and is as it should be. */
export function isClean({ isRead, base, services, leftovers }: FamilyCheck): boolean {
  return isRead && base.length === 0 && services.size === 0 && leftovers.length === 0;
}

/**
 * What two looks at the same node have found both times. Rules are not read in one moment: while they are, a running kproxy may write
 * others, and another program's dry run makes nft print rules twice or not at all.
 *
 * Returns the later look without what the earlier one did not find: Services that were as they should be, and shared rules and leftovers of a
 * family that had none. What differs in a Service may be something else by now, and is reported as it is by now.
 */
export function lastingChecks(
  earlier: readonly FamilyCheck[],
  later: readonly FamilyCheck[],
): readonly FamilyCheck[] {
  const before = new Map<IpFamily, FamilyCheck>(earlier.map((check) => [check.family, check]));
  return later.map((check) => {
    const first = before.get(check.family);
    // Nothing was compared then, so nothing speaks against what was found now.
    if (first === undefined || !first.isRead) return check;
    return {
      ...check,
      base: first.base.length > 0 ? check.base : [],
      services: new Map([...check.services].filter(([service]) => first.services.has(service))),
      leftovers: first.leftovers.length > 0 ? check.leftovers : [],
    };
  });
}

/** True if a second look may find less: something differs that was compared. */
export function mayPass(checks: readonly FamilyCheck[]): boolean {
  return checks.some((check) => check.isRead && !isClean(check));
}
