/**
 * From what the tools found in the kernel to what a plan of all Services wants: a full sync.
 *
 * Only what is ours is taken away. Sets and chains are ours by name, addresses by their device. A virtual server is ours
 * if its address is on the device, or if the sets, which are written before it and emptied after it, say so.
 *
 * @module
 */
import { cidrContains, parseIp } from "../../../model/ip.ts";
import { canonicalRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import { chainHolds, ruleOf } from "../../../netfilter/iptables_chains.ts";
import {
  createSetLine,
  destroySetLine,
  ipPortEntry,
  portEntry,
  type SavedSet,
} from "../../../netfilter/ipset.ts";
import { addDummyLine } from "../../../netfilter/ip_batch.ts";
import {
  chainLine,
  editJumps,
  type JumpRule,
  jumpsByChain,
  leadToServiceChains,
  type Table,
} from "../../../netfilter/iptables_jumps.ts";
import { sameTreatment, type VirtualServer } from "../../../netfilter/ipvs.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import { CommittedIpvs } from "./committed.ts";
import { changeRealServers, type Evidence, OperationsDraft } from "./operations.ts";
import {
  DEVICE,
  type Entry,
  type IpvsOptions,
  type IpvsPlan,
  type Observed,
  type Operations,
} from "../plan/ruleset.ts";
import {
  capacityFor,
  growingSetName,
  SET_KINDS,
  setDefinition,
  type SetKind,
  setName,
} from "../plan/sets.ts";
import { chainBodies } from "./table_text.ts";
import type { ClaimUnion } from "../plan/union.ts";

const TABLES = ["nat", "filter"] as const;

/**
 * What must be written so that a kernel in which `observed` was found holds exactly `plan` of what is ours. Real servers
 * that are on their way out are asked to leave once more.
 *
 * @param known keys of virtual servers that this process has made: they are ours wherever they are
 * @throws {TypeError} if the plan is not one of all Services
 */
export function diffObserved(
  plan: IpvsPlan,
  observed: Observed,
  options: IpvsOptions,
  known: ReadonlySet<string> = new Set(),
): Operations {
  const { union } = CommittedIpvs.of(plan);
  const draft = new OperationsDraft();
  diffSets(union, observed, options, draft);
  for (const table of TABLES) diffTable(plan, union, observed, table, draft);
  diffServers(union, observed, options, known, draft);
  diffAddresses(union, observed, options, draft);
  return draft.finish(servesThroughIptables(observed));
}

/** True if the rules of iptables mode are in force, which translate addresses before IPVS sees them. */
function servesThroughIptables({ tables }: Observed): boolean {
  return leadToServiceChains(tables.get("nat")?.get("KUBE-SERVICES")?.rules ?? []);
}

function entriesBySet(union: ClaimUnion): Map<string, string[]> {
  const bySet = new Map<string, string[]>();
  for (const entry of union.entries) {
    const blank = entry.indexOf(" ");
    const [set, text] = [entry.slice(0, blank), entry.slice(blank + 1)];
    const known = bySet.get(set);
    if (known === undefined) bySet.set(set, [text]);
    else known.push(text);
  }
  return bySet;
}

function diffSets(
  union: ClaimUnion,
  observed: Observed,
  { family }: IpvsOptions,
  draft: OperationsDraft,
): void {
  // Left by a process that was killed while a set grew.
  const growing = growingSetName(family);
  if (observed.sets.has(growing)) draft.ipset(destroySetLine(growing));
  const bySet = entriesBySet(union);
  for (const kind of SET_KINDS) {
    const set = setName(kind, family);
    diffSet(kind, { family, set, wanted: bySet.get(set) ?? [], saved: observed.sets.get(set) }, draft);
  }
}

interface SetChange {
  readonly family: IpvsOptions["family"];
  readonly set: string;
  readonly wanted: readonly string[];
  readonly saved: SavedSet | undefined;
}

function diffSet(kind: SetKind, { family, set, wanted, saved }: SetChange, draft: OperationsDraft): void {
  const full = (text: string): Entry => `${set} ${text}`;
  const needed = capacityFor(wanted.length);
  const definition = setDefinition(kind, family, needed);
  const found = saved?.definition;
  if (saved === undefined || found?.type !== definition.type) {
    // One of this name but another type is in the way: ipset refuses this line and says so.
    draft.ipset(createSetLine(definition));
    for (const text of wanted) draft.addEntry(full(text));
    return;
  }
  if (definition.type !== "bitmap:port" && found.maxElements < needed) {
    draft.growSet(kind, family, needed, wanted.map(full));
    return;
  }
  const surplus = new Set(saved.entries);
  const missing = wanted.filter((text) => !surplus.delete(text));
  const capacity = definition.type === "bitmap:port" ? Infinity : found.maxElements;
  draft.changeEntries(
    { added: missing.map(full), removed: [...surplus].map(full) },
    capacity - saved.entries.size,
  );
}

function diffTable(
  plan: IpvsPlan,
  union: ClaimUnion,
  { tables, jumpsOnly }: Observed,
  table: Table,
  draft: OperationsDraft,
): void {
  const saved = tables.get(table);
  const bodies = chainBodies(plan.base, table, (set) => union.setSize(set) > 0);
  if (table === "filter") {
    bodies.set(OUT_FILTER_CHAIN, union.outFilters().map((rule) => `-A ${OUT_FILTER_CHAIN} ${rule}`));
  }
  const changed = [...bodies].filter(([chain, body]) => {
    const found = saved?.get(chain)?.rules;
    const rules = body.map((line) => canonicalRuleText(ruleOf(line, chain)));
    // Every rule of this one drops something else, so their order says nothing.
    const comparison = chain === OUT_FILTER_CHAIN ? "sameInAnyOrder" : "same";
    return found === undefined || !chainHolds(found, { rules, comparison });
  });
  draft.rules(table, ...changed.map(([chain]) => chainLine(chain)));
  for (const [, body] of changed) draft.rules(table, ...body);
  const [placed, unplaced] = [new Map<string, readonly JumpRule[]>(), new Map<string, readonly JumpRule[]>()];
  for (const [chain, wanted] of jumpsByChain(plan.base.jumps, table)) {
    (jumpsOnly?.[table].has(chain) === true ? unplaced : placed).set(chain, wanted);
  }
  draft.rules(table, ...missingJumps(placed, saved), ...missingUnplacedJumps(unplaced, saved));
}

type SavedRules = ReadonlyMap<string, { readonly rules: readonly string[] }> | undefined;

function missingJumps(jumps: ReadonlyMap<string, readonly JumpRule[]>, saved: SavedRules): string[] {
  return [...jumps].flatMap(([chain, wanted]) => {
    const there = (saved?.get(chain)?.rules ?? []).map(canonicalRuleText);
    const { surplus, missing } = editJumps(there, wanted, { textOf: canonicalRuleText });
    return [
      ...surplus.map((args) => `-D ${chain} ${args}`),
      ...missing.map(({ place, args }) => `-I ${chain} ${place} ${args}`),
    ];
  });
}

/** As {@linkcode missingJumps}; where one is missing the others, whose places nobody knows, are made anew with it. */
function missingUnplacedJumps(jumps: ReadonlyMap<string, readonly JumpRule[]>, saved: SavedRules): string[] {
  return [...jumps].flatMap(([chain, wanted]) => {
    const there = new Set(saved?.get(chain)?.rules.map(canonicalRuleText));
    const isThere = ({ args }: JumpRule): boolean => there.has(canonicalRuleText(args));
    if (wanted.every(isThere)) return [];
    return [
      ...wanted.filter(isThere).map(({ args }) => `-D ${chain} ${args}`),
      ...wanted.map(({ args }) => `-I ${chain} 1 ${args}`),
    ];
  });
}

function diffServers(
  union: ClaimUnion,
  observed: Observed,
  options: IpvsOptions,
  known: ReadonlySet<string>,
  draft: OperationsDraft,
): void {
  const wanted = new Set<string>();
  for (const server of union.servers()) {
    wanted.add(server.key);
    const saved = observed.virtualServers.get(server.key);
    if (saved === undefined) {
      draft.addServer(server);
      continue;
    }
    if (!sameTreatment(saved.server, server.server)) {
      draft.server({ kind: "updateServer", server: server.server });
    }
    changeRealServers(draft, server, saved.realServers.values());
  }
  for (const [key, { server }] of observed.virtualServers) {
    if (wanted.has(key)) continue;
    const evidence = evidenceOf(server, observed, options);
    if (known.has(key) || evidence.isBound || evidence.isNamed) draft.deleteServer(server, evidence);
  }
}

/** True if the server, of this family, is one that IPVS mode has made. */
export function isOurs(server: VirtualServer, observed: Observed, options: OwnershipOptions): boolean {
  const { isBound, isNamed } = evidenceOf(server, observed, options);
  return isBound || isNamed;
}

type OwnershipOptions = Pick<IpvsOptions, "family" | "excludeCIDRs" | "hostIps">;

function evidenceOf(
  { address, protocol, port }: VirtualServer,
  observed: Observed,
  { family, excludeCIDRs, hostIps }: OwnershipOptions,
): Evidence {
  const ip = parseIp(address);
  if (ip?.family !== family || excludeCIDRs.some((cidr) => cidrContains(cidr, ip))) {
    return { isBound: false, isNamed: false };
  }
  const has = (kind: SetKind, entry: string): boolean =>
    observed.sets.get(setName(kind, family))?.entries.has(entry) === true;
  const isNodePort = (): boolean =>
    protocol !== "SCTP" && hostIps.includes(ip.text) && has(`KUBE-NODE-PORT-${protocol}`, portEntry(port));
  const entry = ipPortEntry(ip.text, protocol, port);
  return {
    isBound: observed.addresses?.has(ip.text) === true,
    isNamed: isNodePort() || NAMING_SETS.some((kind) => has(kind, entry)),
  };
}

/** Sets whose entries are virtual servers. */
const NAMING_SETS = [
  "KUBE-CLUSTER-IP",
  "KUBE-EXTERNAL-IP",
  "KUBE-EXTERNAL-IP-LOCAL",
  "KUBE-LOAD-BALANCER",
  "KUBE-NODE-PORT-SCTP-HASH",
] as const;

function diffAddresses(
  union: ClaimUnion,
  observed: Observed,
  { family }: IpvsOptions,
  draft: OperationsDraft,
): void {
  if (observed.addresses === null) draft.device(addDummyLine(DEVICE));
  const surplus = new Set(observed.addresses);
  const ips = setName("KUBE-IPVS-IPS", family);
  for (const entry of union.entries) {
    if (!entry.startsWith(`${ips} `)) continue;
    const address = entry.slice(ips.length + 1);
    if (!surplus.delete(address)) draft.bind(address);
  }
  for (const address of surplus) if (parseIp(address)?.family === family) draft.unbind(address);
}
