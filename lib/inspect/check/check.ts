/**
 * Desired rules against live ones, of both families.
 *
 * @module
 */
import { FAMILIES, type IpFamily, type NamespacedName } from "../../model/objects.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { type DesiredInput, INSPECTED_MODES, type RulesMode, stateOf } from "../desired/desired.ts";
import type { FoundProxy, LiveNode, LiveRules } from "../live/live.ts";
import type { KnownPortals } from "../live/portals.ts";
import { type Difference, DifferenceList, type FamilyCheck } from "./difference.ts";
import { compareFront, packetSources } from "./packets.ts";

export interface CheckInput {
  readonly mode: RulesMode;
  readonly desired: DesiredInput;
  readonly live: LiveNode;
  /** True: the kernel was read; false: files, which may leave something out. */
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
  const { mode, desired, isKernel, portals = null, quarantined } = input;
  const state = stateOf(desired, family);
  const list = new DifferenceList();
  list.problems.push(...live.problems);
  const isRead = !isUnread(mode, live);
  if (isRead) {
    const sources = packetSources(family, { ...input, config: desired.config });
    const tables = tablesInUse(live);
    await (await INSPECTED_MODES[mode]()).compare({
      desired,
      family,
      live,
      tables,
      isKernel,
      portals,
      sources,
    }, list);
    compareFront(live, state, sources, list);
    list.leftovers.push(...otherModes(mode, live));
    for (const [service, why] of quarantined ?? []) {
      if (!list.services.has(service)) continue;
      list.notes.push(`The kernel has refused the rules of ${service}: ${why}`);
    }
  } else {
    // What is there is not known: the problems say why, and nothing is called missing.
    list.notes.push("The rules could not be read, so nothing is compared");
  }
  const { base, services, leftovers, notes, problems } = list;
  return { family, compared: state.services.size, isRead, base, services, leftovers, notes, problems };
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
