/**
 * From what the kernel is known to hold to what a plan wants, in as few lines as possible.
 *
 * @module
 */
import { chainLine, type Table } from "../../../netfilter/iptables_jumps.ts";
import { sameTreatment } from "../../../netfilter/ipvs.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { CommittedIpvs } from "./committed.ts";
import { changeRealServers, OperationsDraft, realServerOf } from "./operations.ts";
import type { Entry, IpvsPlan, Operations } from "../plan/ruleset.ts";
import { capacityFor, SET_KINDS, setName, setOfEntry } from "../plan/sets.ts";
import { chainBodies } from "./table_text.ts";
import type { ServerPair, UnionChange } from "../plan/union.ts";

/**
 * What must be written so that a kernel holding `committed` holds `plan` too. Nothing changed yields no step. What
 * several Services claim stays while one of them claims it.
 */
export function diffIpvs(plan: IpvsPlan, committed: CommittedIpvs): Operations {
  const draft = new OperationsDraft();
  const change = committed.union.change(plan);
  diffSets(plan, committed, change, draft);
  diffStaticChains(plan, committed, change, draft);
  for (const pair of change.servers.values()) {
    diffOutFilter(pair, draft);
    diffServer(pair, draft);
  }
  return draft.finish(false);
}

function diffSets(
  plan: IpvsPlan,
  committed: CommittedIpvs,
  { addedEntries, removedEntries }: UnionChange,
  draft: OperationsDraft,
): void {
  const { family } = plan.base;
  const { union } = committed;
  const added = Map.groupBy(addedEntries, setOfEntry);
  const removed = Map.groupBy(removedEntries, setOfEntry);
  for (const kind of SET_KINDS) {
    const set = setName(kind, family);
    const [toAdd, toRemove] = [added.get(set) ?? [], removed.get(set) ?? []];
    const [before, capacity] = [union.setSize(set), committed.capacity(set)];
    const size = before + toAdd.length - toRemove.length;
    if (size > capacity) {
      const gone = new Set(toRemove);
      const staying = [...union.entries].filter((entry) => setOfEntry(entry) === set && !gone.has(entry));
      draft.growSet(kind, family, capacityFor(size), [...staying, ...toAdd]);
    } else {
      draft.changeEntries({ added: toAdd, removed: toRemove }, capacity - before);
    }
  }
  const ips = setName("KUBE-IPVS-IPS", family);
  const addressOf = (entry: Entry): string => entry.slice(ips.length + 1);
  for (const entry of removed.get(ips) ?? []) draft.unbind(addressOf(entry));
  for (const entry of added.get(ips) ?? []) draft.bind(addressOf(entry));
}

/** Chains in which a rule comes or goes because its set got its first entry or lost its last, or because options changed. */
function diffStaticChains(
  plan: IpvsPlan,
  committed: CommittedIpvs,
  { addedEntries, removedEntries }: UnionChange,
  draft: OperationsDraft,
): void {
  const growth = new Map<string, number>();
  for (const entry of addedEntries) {
    growth.set(setOfEntry(entry), (growth.get(setOfEntry(entry)) ?? 0) + 1);
  }
  for (const entry of removedEntries) {
    growth.set(setOfEntry(entry), (growth.get(setOfEntry(entry)) ?? 0) - 1);
  }
  const { union } = committed;
  const filledBefore = (set: string): boolean => union.setSize(set) > 0;
  const filledAfter = (set: string): boolean => union.setSize(set) + (growth.get(set) ?? 0) > 0;
  for (const table of ["nat", "filter"] as const) {
    rewriteChains(
      table,
      chainBodies(plan.base, table, filledAfter),
      chainBodies(committed.base, table, filledBefore),
      draft,
    );
  }
}

function rewriteChains(
  table: Table,
  bodies: ReadonlyMap<string, readonly string[]>,
  bodiesBefore: ReadonlyMap<string, readonly string[]>,
  draft: OperationsDraft,
): void {
  const changed = [...bodies].filter(([chain, body]) =>
    bodiesBefore.get(chain)?.join("\n") !== body.join("\n")
  );
  draft.rules(table, ...changed.map(([chain]) => chainLine(chain)));
  for (const [, body] of changed) draft.rules(table, ...body);
}

function diffOutFilter({ before, after }: ServerPair, draft: OperationsDraft): void {
  const [old, wanted] = [before?.outFilter ?? "", after?.outFilter ?? ""];
  if (old === wanted) return;
  if (old !== "") draft.rules("filter", `-D ${OUT_FILTER_CHAIN} ${old}`);
  if (wanted !== "") draft.rules("filter", `-A ${OUT_FILTER_CHAIN} ${wanted}`);
}

function diffServer({ before, after }: ServerPair, draft: OperationsDraft): void {
  if (before === null) {
    if (after !== null) draft.addServer(after);
    return;
  }
  if (after === null) {
    draft.deleteServer(before.server, { isBound: before.bind, isNamed: true });
    return;
  }
  if (!sameTreatment(before.server, after.server)) {
    draft.server({ kind: "updateServer", server: after.server });
  }
  if (before.realServers !== after.realServers) {
    changeRealServers(draft, after, before.realServers.map((key) => realServerOf(key)));
  }
}
