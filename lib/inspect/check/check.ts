/**
 * Desired rules against live ones, of both families.
 *
 * @module
 */
import { NO_TABLE } from "../../netfilter/nft_listing.ts";
import { FAMILIES, type IpFamily, type NamespacedName } from "../../model/objects.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import { nftFamily } from "../../netfilter/nft_words.ts";
import type { HeldRules } from "../../sim/held_rules.ts";
import {
  ALL_ABILITIES,
  type DataPlane,
  type DesiredInput,
  desiredRules,
  stateOf,
} from "../desired/desired.ts";
import { portalKey } from "../../sim/portals.ts";
import { few } from "../../text/words.ts";
import type { FoundProxy, LiveNode, LiveProblem, LiveRules } from "../live/live.ts";
import { judgePortals, type KnownPortals } from "../live/portals.ts";
import { PacketComparison } from "./by_packets.ts";
import { type Difference, DifferenceList, type FamilyCheck } from "./difference.ts";
import { compareFront } from "./foreign.ts";
import { type ProbeSources, probeSources } from "./probes.ts";

/** What is compared. */
export interface CheckInput {
  readonly plane: DataPlane;
  readonly desired: DesiredInput;
  readonly live: LiveNode;
  /** True: the kernel was read; false: files, which may leave something out. */
  readonly isKernel: boolean;
  readonly nodeAddresses: readonly string[];
  readonly podInterface: string;
  /** Services whose rules the kernel has refused, and why; null: not known. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** In mode userspace: the ports that kproxy listens on, or why nobody tells them. @default {null} */
  readonly portals?: KnownPortals | string | null;
}

/** Compares the families that the texts are about: of those that nobody wants and nobody has, nothing is told. */
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
  const { plane, desired, nodeAddresses, quarantined } = input;
  const list = new DifferenceList();
  const notes: string[] = [];
  const state = stateOf(desired, family);
  const sources = probeSources(family, { ...input, config: desired.config });
  const problems = [...live.problems];
  const facts = { family, compared: state.services.size, problems };
  if (isUnread(plane, live)) {
    // Nobody knows what is there: that is told among the problems, and nothing is called missing.
    notes.push("The rules could not be read, so nothing is compared");
    return { ...facts, isRead: false, base: [], services: new Map(), leftovers: [], notes };
  }
  switch (plane) {
    case "iptables":
      await checkIptables(input, family, live, list);
      break;
    case "nftables":
      await checkNftables(input, family, live, sources, list, notes);
      break;
    case "ipvs":
      await checkIpvs(input, family, live, list);
      break;
    case "userspace":
      problems.push(...await checkUserspace(input, family, live, list));
  }
  compareFront(live, state, nodeAddresses, sources, list);
  list.leftovers.push(...otherModes(plane, live));
  for (const [service, why] of quarantined ?? []) {
    if (list.services.has(service)) notes.push(`The kernel has refused the rules of ${service}: ${why}`);
  }
  return {
    ...facts,
    isRead: true,
    base: list.base,
    services: list.services,
    leftovers: list.leftovers,
    notes,
  };
}

/** True if a tool that the mode needs has failed, and nobody else has said what it should have. */
function isUnread(
  plane: DataPlane,
  { family, iptables, nftables, sets, ipvs, problems }: LiveRules,
): boolean {
  const has = (program: RegExp): boolean => problems.some(({ place }) => program.test(place));
  if (plane === "nftables") return nftables.length === 0 && has(/^nft /);
  const save = family === "IPv4" ? /^iptables\S*-save/ : /^ip6tables\S*-save/;
  if (iptables.length === 0 && has(save)) return true;
  return plane === "ipvs" && ((ipvs === null && has(/^ipvsadm /)) || (sets.size === 0 && has(/^ipset /)));
}

const OWN_CHAINS: readonly string[] = ["KUBE-SERVICES", "KUBE-PORTALS-CONTAINER"];
const NO_TABLES: IptablesRuleset = new Map();

/** The variant with a proxy's chains, if there is one. */
function tablesInUse({ iptables }: HeldRules): IptablesRuleset {
  const hasChains = (tables: IptablesRuleset): boolean =>
    OWN_CHAINS.some((chain) => tables.get("nat")?.has(chain) === true);
  return (iptables.find(({ tables }) => hasChains(tables)) ?? iptables[0])?.tables ?? NO_TABLES;
}

function namesCounters(tables: IptablesRuleset): boolean {
  const places = [["nat", "KUBE-NODEPORTS"], ["filter", "KUBE-FORWARD"]] as const;
  return places.some(([table, chain]) =>
    tables.get(table)?.get(chain)?.rules.some((rule) => rule.includes("--nfacct-name"))
  );
}

async function checkIptables(
  input: CheckInput,
  family: IpFamily,
  live: LiveRules,
  list: DifferenceList,
): Promise<void> {
  const { iptablesPlan } = await import("../desired/iptables.ts");
  const { compareIptables, WantedIptables } = await import("./iptables.ts");
  const tables = tablesInUse(live);
  // Whether rules add to counters is no fault: it depends on what the machine had when they were written.
  const nfacct = namesCounters(tables);
  const { desired } = input;
  const plan = iptablesPlan({ ...desired, machine: { ...desired.machine, nfacct } }, family);
  compareIptables({ wanted: new WantedIptables(plan, family), live: tables, isKernel: input.isKernel }, list);
}

async function checkNftables(
  input: CheckInput,
  family: IpFamily,
  live: LiveRules,
  sources: ProbeSources,
  list: DifferenceList,
  notes: string[],
): Promise<void> {
  const word = nftFamily(family);
  // Tables of family `inet` are nobody's of ours.
  const own = live.nftables.find(({ name }) => name === `${word} kproxy`);
  const kubeProxys = live.nftables.find(({ name }) => name === `${word} kube-proxy`);
  if (own === undefined && kubeProxys !== undefined) {
    notes.push("These rules are kube-proxy's: they are compared by what they do");
    const rules = await desiredRules(input.plane, input.desired, family);
    const comparison = new PacketComparison(rules, live, input.nodeAddresses, sources);
    const state = stateOf(input.desired, family);
    for (const [service, ports] of state.services) {
      for (const port of ports) {
        for (const one of comparison.port(port)) list.add(service, one);
      }
    }
    return;
  }
  const { nftablesPlan } = await import("../desired/nftables.ts");
  const { compareNftables } = await import("./nftables.ts");
  if (own === undefined) {
    const place = `nftables ${word} kproxy`;
    list.add(null, {
      kind: "missing",
      place,
      cause: "the table is gone",
      wanted: [`table ${word} kproxy`],
      found: [],
    });
  }
  compareNftables(nftablesPlan(input.desired, family), own ?? { ...NO_TABLE, name: `${word} kproxy` }, list);
}

async function checkIpvs(
  input: CheckInput,
  family: IpFamily,
  live: LiveRules,
  list: DifferenceList,
): Promise<void> {
  const { ipvsOptions, ipvsPlan } = await import("../desired/ipvs.ts");
  const { compareIpvs } = await import("./ipvs.ts");
  const { desired, isKernel } = input;
  const options = ipvsOptions(desired, family);
  const plan = ipvsPlan(desired, family, options);
  compareIpvs({ plan, options, rules: tablesInUse(live), live, isKernel }, list);
}

/** @returns what could not be found out */
async function checkUserspace(
  input: CheckInput,
  family: IpFamily,
  live: LiveRules,
  list: DifferenceList,
): Promise<readonly LiveProblem[]> {
  const { portalsOf, portsOfPlan, userspacePlan } = await import("../desired/userspace.ts");
  const { compareUserspace } = await import("./userspace.ts");
  const { desired, isKernel, portals = null } = input;
  const plan = userspacePlan(desired, family);
  const ports = portsOfPlan(plan, desired, family);
  const known = portals ?? "nobody was asked";
  const keys = [...portalsOf(plan)].flatMap(([id, { protocol }]) => {
    const port = ports.get(id);
    return port === undefined ? [] : [portalKey(protocol, port)];
  });
  const judged = await judgePortals(known, family, keys, isKernel);
  const deaf = new Set([...judged.portals].flatMap(([key, portal]) => portal === "nobody" ? [key] : []));
  const untold = typeof known === "string" ? known : null;
  const has = desired.ports?.get(family)?.has ?? ALL_ABILITIES;
  compareUserspace({ plan, ports, has, untold, live: tablesInUse(live), deaf }, list);
  if (untold === null || judged.unsure.length === 0) return [];
  const where = `${few([...new Set(keys)])} (${family})`;
  return [{
    place: "kproxy",
    message: `who listens on ${where}, and where it leads, is not known: ${untold}`,
  }];
}

/** Rules of modes that are not wanted here, and of kube-proxy beside ours. */
function otherModes(plane: DataPlane, { proxies }: LiveRules): readonly Difference[] {
  const own = proxies.filter(({ mode }) => mode === plane);
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
