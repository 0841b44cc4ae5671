/**
 * The objects of IPVS mode, wanted and held, and their difference: sets with their entries, virtual servers with their real ones, addresses
 * of the device. Its rules of iptables are those of mode iptables' store.
 *
 * A full sync compares what is wanted with what the tools list, a change with what is known to be held, the drift check what is known to be held
 * with what the tools list. Only what is ours is taken away. Sets and chains are ours by name, addresses by their device. A virtual server
 * is ours if its address is on the device, or if the sets, which are written before it and emptied after it, say so.
 *
 * @module
 */
import { type Cidr, cidrContains, parseIp } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import {
  addEntryLine,
  createSetLine,
  deleteEntryLine,
  destroySetLine,
  ipPortEntry,
  portEntry,
  type SavedSet,
  type SetEntry,
  swapSetsLine,
} from "../../../netfilter/ipset.ts";
import {
  addRealServerLine,
  addVirtualServerLine,
  deleteRealServerLine,
  deleteVirtualServerLine,
  type RealServer,
  sameTreatment,
  type SavedVirtualServer,
  updateRealServerLine,
  updateVirtualServerLine,
  type VirtualServer,
} from "../../../netfilter/ipvs.ts";
import type { WantedServer } from "../plan/ruleset.ts";
import { capacityFor, growingSetName, setDefinition, type SetKind, setName } from "../plan/sets.ts";
import { IpvsTransaction } from "./transaction.ts";

/** A set that is wanted. */
export interface WantedSet {
  readonly kind: SetKind;
  /** All of its entries, or those that a change is about. */
  readonly entries: readonly SetEntry[];
  /** All of its entries, by which it is replaced where it is too small. */
  readonly all: ReadonlyMap<SetEntry, unknown>;
}

/** Wanted objects: all, or those that a change is about. */
export interface WantedObjects {
  readonly family: IpFamily;
  readonly sets: readonly WantedSet[];
  readonly servers: Iterable<WantedServer>;
  /** Addresses of the device. */
  readonly addresses: Iterable<string>;
}

/** Objects in the kernel. Only the own family counts; others may be among them. */
export interface HeldObjects {
  /** Addresses of the device; null: it is missing. */
  readonly addresses: ReadonlySet<string> | null;
  /** Virtual servers by `virtualServerKey`. */
  readonly virtualServers: ReadonlyMap<string, SavedVirtualServer>;
  /** Sets by name. */
  readonly sets: ReadonlyMap<string, SavedSet>;
}

/** Distinguishes our objects from those of others. */
export interface Ownership {
  readonly family: IpFamily;
  /** Virtual servers in these networks are others'. */
  readonly excludeCIDRs: readonly Cidr[];
  /** Addresses of the node's other devices. */
  readonly hostIps: readonly string[];
  /** Keys of virtual servers that this process has made: they are ours wherever they are. */
  readonly known?: ReadonlySet<string>;
}

/** Transaction from `held` to `wanted`: unwanted objects of ours go. Real servers that leave already go once more. */
export function diffObjects(
  wanted: WantedObjects,
  held: HeldObjects,
  ownership: Ownership,
): IpvsTransaction {
  const transaction = new IpvsTransaction();
  diffSets(transaction, wanted, held);
  diffServers(transaction, wanted.servers, held, ownership);
  diffAddresses(transaction, wanted, held);
  return transaction;
}

/** Changes that a full sync would write, but for rules, and real servers that leave, which are no damage. */
export function findDrift(wanted: WantedObjects, held: HeldObjects, ownership: Ownership): IpvsTransaction {
  const drift = diffObjects(wanted, held, ownership);
  drift.servers = drift.servers.filter((change) => change.kind !== "removeReal" || change.real.weight !== 0);
  return drift;
}

function diffSets(
  { sets }: IpvsTransaction,
  { family, sets: wanted }: WantedObjects,
  held: HeldObjects,
): void {
  // The replacement set was left by a process that was killed while a set grew.
  const growing = growingSetName(family);
  if (held.sets.has(growing)) sets.push({ set: growing, lines: [destroySetLine(growing)], deletions: [] });
  for (const { kind, entries, all } of wanted) {
    const set = setName(kind, family);
    const found = held.sets.get(set);
    const surplus = new Set(found?.entries);
    const missing = entries.filter((entry) => !surplus.delete(entry));
    const definition = setDefinition(kind, family, capacityFor(all.size));
    const { type, maxElements } = definition;
    const add = (entry: SetEntry): string => addEntryLine(set, entry);
    if (found?.definition?.type !== type) {
      // If a set of this name but another type exists, ipset refuses this line and says so.
      sets.push({ set, lines: [createSetLine(definition), ...entries.map(add)], deletions: [] });
    } else if (type !== "bitmap:port" && found.definition.maxElements < maxElements) {
      // Replaces the set under the rules that use it.
      const lines = [createSetLine({ ...definition, name: growing })];
      for (const entry of all.keys()) lines.push(addEntryLine(growing, entry));
      lines.push(swapSetsLine(growing, set), destroySetLine(growing));
      sets.push({ set, lines, deletions: [] });
    } else if (missing.length + surplus.size > 0) {
      const deletions = [...surplus].map((entry) => deleteEntryLine(set, entry));
      const hasRoom = type === "bitmap:port" || all.size + surplus.size <= found.definition.maxElements;
      // A server whose entry changes sets is ours all the time. Where there is no room for both, deletions make room.
      sets.push(
        hasRoom
          ? { set, lines: missing.map(add), deletions }
          : { set, lines: [...deletions, ...missing.map(add)], deletions: [] },
      );
    }
  }
}

function diffServers(
  { servers }: IpvsTransaction,
  wanted: Iterable<WantedServer>,
  held: HeldObjects,
  ownership: Ownership,
): void {
  const wantedKeys = new Set<string>();
  for (const { key, server, realServers, graceful } of wanted) {
    wantedKeys.add(key);
    const found = held.virtualServers.get(key);
    if (found === undefined) {
      servers.push({ kind: "addServer", server, line: addVirtualServerLine(server) });
    } else if (!sameTreatment(found.server, server)) {
      servers.push({ kind: "updateServer", server, line: updateVirtualServerLine(server) });
    }
    const surplus = new Map(found?.realServers);
    const missing = realServers.filter((key) => !surplus.delete(key));
    for (const key of realServers) {
      const there = found?.realServers.get(key);
      // An earlier process may have left it at weight 0, another program may have changed it.
      if (there === undefined || isAsWritten(there)) continue;
      const real = realServerOf(key);
      servers.push({ kind: "updateReal", server, real, line: updateRealServerLine(server, real) });
    }
    for (const real of missing.map(realServerOf)) {
      servers.push({ kind: "addReal", server, real, line: addRealServerLine(server, real) });
    }
    for (const real of surplus.values()) {
      servers.push({ kind: "removeReal", server, real, graceful, line: deleteRealServerLine(server, real) });
    }
  }
  for (const [key, { server }] of held.virtualServers) {
    if (wantedKeys.has(key)) continue;
    const evidence = evidenceOf(server, held, ownership);
    if (ownership.known?.has(key) === true || evidence.isBound || evidence.isNamed) {
      servers.push({ kind: "deleteServer", server, evidence, line: deleteVirtualServerLine(server) });
    }
  }
}

function isAsWritten({ weight, otherOptions }: RealServer): boolean {
  return weight === 1 && otherOptions === undefined;
}

/**
 * The real server for a key of a plan.
 *
 * @throws {SyntaxError} if it is no key of a real server
 */
export function realServerOf(key: string): RealServer {
  const colon = key.lastIndexOf(":");
  const ip = parseIp(key.startsWith("[") ? key.slice(1, colon - 1) : key.slice(0, colon));
  if (ip === null) throw new SyntaxError(`"${key}" is no key of a real server`);
  return { address: ip.text, port: Number(key.slice(colon + 1)), weight: 1 };
}

/** Sets whose entries are virtual servers. */
const NAMING_SETS = [
  "KUBE-CLUSTER-IP",
  "KUBE-EXTERNAL-IP",
  "KUBE-EXTERNAL-IP-LOCAL",
  "KUBE-LOAD-BALANCER",
  "KUBE-NODE-PORT-SCTP-HASH",
] as const;

function evidenceOf(
  { address, protocol, port }: VirtualServer,
  { addresses, sets }: Pick<HeldObjects, "addresses" | "sets">,
  { family, excludeCIDRs, hostIps }: Ownership,
): { readonly isBound: boolean; readonly isNamed: boolean } {
  const ip = parseIp(address);
  if (ip?.family !== family || excludeCIDRs.some((cidr) => cidrContains(cidr, ip))) {
    return { isBound: false, isNamed: false };
  }
  const has = (kind: SetKind, entry: string): boolean =>
    sets.get(setName(kind, family))?.entries.has(entry) === true;
  const isNodePort = (): boolean =>
    protocol !== "SCTP" && hostIps.includes(ip.text) && has(`KUBE-NODE-PORT-${protocol}`, portEntry(port));
  const entry = ipPortEntry(ip.text, protocol, port);
  return {
    isBound: addresses?.has(ip.text) === true,
    isNamed: isNodePort() || NAMING_SETS.some((kind) => has(kind, entry)),
  };
}

function diffAddresses(
  transaction: IpvsTransaction,
  { family, addresses }: WantedObjects,
  held: HeldObjects,
): void {
  transaction.makesDevice = held.addresses === null;
  const surplus = new Set(held.addresses);
  for (const address of addresses) if (!surplus.delete(address)) transaction.bound.push(address);
  for (const address of surplus) {
    // The kernel itself gives every device that is up a link-local one of IPv6.
    if (parseIp(address)?.family === family && !/^fe[89ab]/.test(address)) transaction.unbound.push(address);
  }
}
