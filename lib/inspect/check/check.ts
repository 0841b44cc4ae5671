/**
 * Desired rules against live ones, of both families: where they differ, by Service.
 *
 * @module
 */
import { FAMILIES, type IpFamily, type NamespacedName } from "../../model/objects.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { type DesiredInput, INSPECTED_MODES, type RulesMode, stateOf } from "../desired/desired.ts";
import type { FoundProxy, LiveNode, LiveProblem, LiveRules } from "../live/live.ts";
import type { KnownPortals } from "../live/portals.ts";
import { compareFront, type PacketSources, packetSources } from "./packets.ts";

export interface CheckInput {
  readonly mode: RulesMode;
  readonly desired: DesiredInput;
  readonly live: LiveNode;
  /** True: the kernel was read, so that a table that is not there is empty. False: files, which may leave something out. */
  readonly isKernel: boolean;
  readonly nodeAddresses: readonly string[];
  readonly podInterface: string;
  /** Services whose rules the kernel has refused, and why; null: not known. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** In mode userspace: the ports that kproxy listens on, or why they are unknown. @default {null} */
  readonly portals?: KnownPortals | string | null;
}

/** Compares the families that the texts are about. One that no Service wants and that has no rules is left out. */
export async function checkNode(input: CheckInput): Promise<readonly FamilyCheck[]> {
  const checks: FamilyCheck[] = [];
  for (const family of FAMILIES) {
    const live = input.live.get(family);
    if (live === undefined) continue;
    const isWanted = stateOf(input.desired, family).services.size > 0;
    // Saved texts are mostly those of one family.
    if (live.proxies.length === 0 && (!isWanted || (!input.isKernel && isSilent(live, input.live)))) continue;
    checks.push(await checkFamily(input, family, live));
  }
  return checks;
}

/** True if the files say nothing of this family, and something of the other. */
function isSilent({ family, iptables, nftables, ipvs }: LiveRules, live: LiveNode): boolean {
  const others = [...live.values()].filter((one) => one.family !== family);
  return iptables.length + nftables.length === 0 && ipvs === null &&
    others.some((other) => other.iptables.length + other.nftables.length > 0);
}

async function checkFamily(input: CheckInput, family: IpFamily, live: LiveRules): Promise<FamilyCheck> {
  const { mode, desired, quarantined } = input;
  const state = stateOf(desired, family);
  const list = new DifferenceList(family, state.services.size);
  list.problems.push(...live.problems);
  list.isRead = !isUnread(mode, live);
  if (!list.isRead) {
    // What is there is not known: the problems say why, and nothing is called missing.
    list.notes.push("The rules could not be read, so nothing is compared");
    return list;
  }
  const sources = packetSources(family, { ...input, config: desired.config });
  const { compare } = await INSPECTED_MODES[mode]();
  await compare({ ...input, family, live, tables: tablesInUse(live), sources }, list);
  compareFront(live, state, sources, list);
  list.leftovers.push(...otherModes(mode, live));
  for (const [service, why] of quarantined ?? []) {
    if (!list.services.has(service)) continue;
    list.notes.push(`The kernel has refused the rules of ${service}: ${why}`);
  }
  return list;
}

/** True if a tool that the mode needs has failed, and no other text says what it should have said. */
function isUnread(
  mode: RulesMode,
  { family, iptables, nftables, sets, ipvs, problems }: LiveRules,
): boolean {
  const has = (program: RegExp): boolean => problems.some(({ place }) => program.test(place));
  if (mode === "nftables") return nftables.length === 0 && has(/^nft /);
  const save = family === "IPv4" ? /^iptables\S*-save/ : /^ip6tables\S*-save/;
  if (iptables.length === 0 && has(save)) return true;
  return mode === "ipvs" && ((ipvs === null && has(/^ipvsadm /)) || (sets.size === 0 && has(/^ipset /)));
}

const OWN_CHAINS: readonly string[] = ["KUBE-SERVICES", "KUBE-PORTALS-CONTAINER"];
const NO_TABLES: IptablesRuleset = new Map();

/** The variant with a proxy's chains, if there is one. */
function tablesInUse({ iptables }: RulesetSnapshot): IptablesRuleset {
  const hasChains = (tables: IptablesRuleset): boolean =>
    OWN_CHAINS.some((chain) => tables.get("nat")?.has(chain) === true);
  return (iptables.find(({ tables }) => hasChains(tables)) ?? iptables[0])?.tables ?? NO_TABLES;
}

/** Rules of modes that are not wanted here, and of kube-proxy beside ours. */
function otherModes(wanted: RulesMode, { proxies }: LiveRules): readonly Difference[] {
  const own = proxies.filter(({ mode }) => mode === wanted);
  const isAlone = (proxy: FoundProxy): boolean =>
    proxy.layout === "kproxy" || !own.some(({ layout }) => layout === "kproxy");
  const [first, ...rest] = own.filter(isAlone);
  const kept = new Set(first === undefined ? [] : [first, ...rest.filter(({ sign }) => sign === first.sign)]);
  return proxies.filter((proxy) => !kept.has(proxy)).map(({ mode, layout, sign, isHooked }): Difference => ({
    kind: "otherMode",
    place: sign,
    cause: `rules of ${mode === "nftables" ? `${layout}'s nftables mode` : `${mode} mode`} ${
      isHooked ? "are in force, too" : "are left; no packet is led to them"
    }: kproxy cleanup ${
      layout === "kube-proxy" && mode === "nftables" ? "--of=kube-proxy " : ""
    }--only=${mode} removes them`,
    wanted: [],
    found: [sign],
  }));
}

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

/** One family of a check. */
export interface Comparison extends Omit<CheckInput, "live"> {
  readonly family: IpFamily;
  readonly live: LiveRules;
  /** Of iptables: the tables of the variant in use. */
  readonly tables: IptablesRuleset;
  /** Where packets come from that stand for others. */
  readonly sources: PacketSources;
}

export class DifferenceList implements FamilyCheck {
  isRead = true;
  readonly base: Difference[] = [];
  readonly services = new Map<NamespacedName, Difference[]>();
  readonly leftovers: Difference[] = [];
  readonly notes: string[] = [];
  readonly problems: LiveProblem[] = [];

  constructor(readonly family: IpFamily, readonly compared: number) {}

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
