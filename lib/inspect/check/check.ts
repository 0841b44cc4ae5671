/**
 * Compares desired and live rules of both families, by Service.
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
  /** True: the kernel was read, so that a missing table is empty. False: files, which may leave something out. */
  readonly isKernel: boolean;
  readonly nodeAddresses: readonly string[];
  readonly podInterface: string;
  /** Services whose rules the kernel has refused, and why; null: not known. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** In mode userspace: the ports that kproxy listens on, or why they are unknown. @default {null} */
  readonly portals?: KnownPortals | string | null;
}

/** Compares the families that the live rules cover. One without Services and without live rules is left out. */
export async function checkNode(input: CheckInput): Promise<readonly FamilyCheck[]> {
  const checks: FamilyCheck[] = [];
  for (const family of FAMILIES) {
    const live = input.live.get(family);
    if (live === undefined) continue;
    const isWanted = stateOf(input.desired, family).services.size > 0;
    // Saved texts are usually those of one family.
    if (live.proxies.length === 0 && (!isWanted || (!input.isKernel && isSilent(live, input.live)))) continue;
    checks.push(await checkFamily(input, family, live));
  }
  return checks;
}

/** True if the files hold nothing of this family, and something of the other. */
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
    // The live rules are unknown: the problems say why, and no rule is called missing.
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

/** True if a tool that the mode needs has failed, and no other text has its output. */
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

/** Tables of the variant with a proxy's chains, if there is one. */
function tablesInUse({ iptables }: RulesetSnapshot): IptablesRuleset {
  const hasChains = (tables: IptablesRuleset): boolean =>
    OWN_CHAINS.some((chain) => tables.get("nat")?.has(chain) === true);
  return (iptables.find(({ tables }) => hasChains(tables)) ?? iptables[0])?.tables ?? NO_TABLES;
}

/** Leftover rules of other modes, and of kube-proxy beside ours. */
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
  /** Rules of a deleted Service. */
  | "leftover"
  /** Rules of another mode, or of another proxy. */
  | "otherMode"
  /** A rule of another program that catches packets before ours. */
  | "foreign"
  /** Rules of another layout that treat packets differently. */
  | "behaviour";

export interface Difference {
  readonly kind: DifferenceKind;
  /** Place, e.g. `iptables nat KUBE-SVC-…`, `nftables ip kproxy service-ips`, `IPVS`, `ipset KUBE-CLUSTER-IP`. */
  readonly place: string;
  /** The kind of damage, e.g. `the chain is empty`. */
  readonly cause: string;
  /** Desired rules that are missing, as written. */
  readonly wanted: readonly string[];
  /** Live rules that are not desired, as read. */
  readonly found: readonly string[];
}

export interface FamilyCheck {
  readonly family: IpFamily;
  /** Number of Services with ports of this family. */
  readonly compared: number;
  /** Differences that belong to no Service: base chains, jumps, static rules, sets, the device. */
  readonly base: readonly Difference[];
  readonly services: ReadonlyMap<NamespacedName, readonly Difference[]>;
  /** Leftovers that no Service wants any more. */
  readonly leftovers: readonly Difference[];
  /** False: a tool that is needed has failed, and nothing was compared. */
  readonly isRead: boolean;
  /** Further notes, one sentence each. */
  readonly notes: readonly string[];
  readonly problems: readonly LiveProblem[];
}

/** Input of one family's comparison. */
export interface Comparison extends Omit<CheckInput, "live"> {
  readonly family: IpFamily;
  readonly live: LiveRules;
  /** In iptables: tables of the variant in use. */
  readonly tables: IptablesRuleset;
  /** Sources of the packets that are simulated. */
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

  /** @param service null: the difference belongs to none */
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

/** True if the family was read, and has no differences. */
export function isClean({ isRead, base, services, leftovers }: FamilyCheck): boolean {
  return isRead && base.length === 0 && services.size === 0 && leftovers.length === 0;
}

/**
 * Differences that two checks of the same node have in common. Rules are not read at one moment: meanwhile a running kproxy may write
 * others, and another program's dry run makes nft print rules twice or not at all.
 *
 * Returns the later check without what is new in it: Services without differences before, and shared rules and leftovers of a
 * family that had none. What differs in a Service may have changed since, and is reported as it is now.
 */
export function lastingChecks(
  earlier: readonly FamilyCheck[],
  later: readonly FamilyCheck[],
): readonly FamilyCheck[] {
  const before = new Map<IpFamily, FamilyCheck>(earlier.map((check) => [check.family, check]));
  return later.map((check) => {
    const first = before.get(check.family);
    // The earlier check compared nothing, so it does not speak against this one.
    if (first === undefined || !first.isRead) return check;
    return {
      ...check,
      base: first.base.length > 0 ? check.base : [],
      services: new Map([...check.services].filter(([service]) => first.services.has(service))),
      leftovers: first.leftovers.length > 0 ? check.leftovers : [],
    };
  });
}

/** True if a second check may find less: there are differences in families that were read. */
export function mayPass(checks: readonly FamilyCheck[]): boolean {
  return checks.some((check) => check.isRead && !isClean(check));
}
