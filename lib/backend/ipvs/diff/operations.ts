/**
 * What a sync writes, collected by program and put into the order in which it is safe to write it.
 *
 * @module
 */
import type { Entry, Operations, ServerChange, Step, Transaction, WantedServer } from "../plan/ruleset.ts";
import { parseIp } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import {
  addEntryLine,
  createSetLine,
  deleteEntryLine,
  destroySetLine,
  swapSetsLine,
} from "../../../netfilter/ipset.ts";
import { addAddressLine, deleteAddressLine } from "../../../netfilter/ip_batch.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { type RealServer, realServerKey, type VirtualServer } from "../../../netfilter/ipvs.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { growingSetName, setDefinition, type SetKind } from "../plan/sets.ts";

/**
 * The real server behind a key of a plan.
 *
 * @throws {SyntaxError} if it is no key of a real server
 */
export function realServerOf(key: string, weight = 1): RealServer {
  const colon = key.lastIndexOf(":");
  const ip = parseIp(key.startsWith("[") ? key.slice(1, colon - 1) : key.slice(0, colon));
  if (ip === null) throw new SyntaxError(`"${key}" is no key of a real server`);
  return { address: ip.text, port: Number(key.slice(colon + 1)), weight };
}

/** What tells another process that a virtual server is ours. */
export interface Evidence {
  /** Its address is on the device. */
  readonly isBound: boolean;
  /** The sets name it. */
  readonly isNamed: boolean;
}

/** What comes to a set, and what goes. */
export interface EntryChange {
  readonly added: readonly Entry[];
  readonly removed: readonly Entry[];
}

/** Collects changes; each kind keeps the order in which it was told. */
export class OperationsDraft {
  readonly #ipset: string[] = [];
  readonly #removed: string[] = [];
  readonly #tables: Record<Table, string[]> = { nat: [], filter: [] };
  readonly #servers: ServerChange[] = [];
  /** Servers that go while only their entries tell that they are ours. */
  readonly #namedOnly = new Set<ServerChange>();
  readonly #bound: string[] = [];
  readonly #unbound: string[] = [];
  #addsEntries = false;
  /** True if a server goes while only its address on the device tells that it is ours. */
  #dropsBoundOnly = false;

  /** Lines of ipset that neither add nor remove an entry of a set in use. */
  ipset(...lines: readonly string[]): void {
    this.#ipset.push(...lines);
  }

  addEntry(entry: Entry): void {
    this.#ipset.push(entryLine(addEntryLine, entry));
    this.#addsEntries = true;
  }

  /**
   * Entries of one set. Those that go do so when all that come to any set are in: a server whose entry changes sets is ours
   * all the time, and its packets are nobody else's.
   *
   * @param room how many more the set takes: where that is not enough, those that go make room
   */
  changeEntries({ added, removed }: EntryChange, room: number): void {
    const isTight = added.length > room;
    const lines = removed.map((entry) => entryLine(deleteEntryLine, entry));
    if (isTight) this.#ipset.push(...lines);
    for (const entry of added) this.addEntry(entry);
    if (!isTight) this.#removed.push(...lines);
  }

  /** Replaces a set by a larger one with the entries of `entries`, under the rules that use it. */
  growSet(kind: SetKind, family: IpFamily, maxElements: number, entries: Iterable<Entry>): void {
    const definition = setDefinition(kind, family, maxElements);
    const growing = growingSetName(family);
    this.#ipset.push(createSetLine({ ...definition, name: growing }));
    for (const entry of entries) {
      this.#ipset.push(addEntryLine(growing, entry.slice(entry.indexOf(" ") + 1)));
    }
    this.#ipset.push(swapSetsLine(growing, definition.name), destroySetLine(growing));
    this.#addsEntries = true;
  }

  rules(table: Table, ...lines: readonly string[]): void {
    this.#tables[table].push(...lines);
  }

  server(change: ServerChange): void {
    this.#servers.push(change);
  }

  deleteServer(server: VirtualServer, { isBound, isNamed }: Evidence): void {
    const change: ServerChange = { kind: "deleteServer", server };
    this.#servers.push(change);
    if (!isBound) this.#namedOnly.add(change);
    else if (!isNamed) this.#dropsBoundOnly = true;
  }

  /** Everything that makes a server with its real servers. */
  addServer({ server, realServers }: WantedServer): void {
    this.server({ kind: "addServer", server });
    for (const key of realServers) this.server({ kind: "addReal", server, real: realServerOf(key) });
  }

  /** A line of `ip` before all addresses. */
  device(line: string): void {
    this.#bound.unshift(line);
  }

  bind(address: string): void {
    this.#bound.push(addAddressLine(DEVICE, address));
  }

  unbind(address: string): void {
    this.#unbound.push(deleteAddressLine(DEVICE, address));
  }

  /**
   * The steps. Usually sets, rules, servers, addresses: a packet to an address that is not complete is refused or passes
   * untouched. Where things only go, the address goes first. A server goes before the last thing that tells that it is
   * ours, and comes after the first one, so that nothing of ours is left behind if we are killed between two steps.
   *
   * @param rulesLast true if other rules serve the same addresses until ours replace them
   */
  finish(rulesLast: boolean): Operations {
    const transactions: Transaction[] = (["nat", "filter"] as const)
      .map((table) => ({ table, lines: this.#tables[table] }))
      .filter(({ lines }) => lines.length > 0);
    const ipset: Step = { program: "ipset", lines: [...this.#ipset, ...this.#removed] };
    const iptables: Step = { program: "iptables", transactions };
    const ip: Step = { program: "ip", lines: [...this.#unbound, ...this.#bound] };
    const servers = ipvsadmStep(this.#servers);
    const dropsEntriesLater = this.#namedOnly.size > 0;
    if (!rulesLast && !this.#addsEntries && (this.#unbound.length > 0 || dropsEntriesLater)) {
      return nonEmpty(this.#dropsBoundOnly ? [servers, ip, iptables, ipset] : [ip, servers, iptables, ipset]);
    }
    const [before, after] = dropsEntriesLater ? this.#aroundEntries() : [ipvsadmStep([]), servers];
    return nonEmpty(
      rulesLast ? [before, ipset, after, ip, iptables] : [before, ipset, iptables, after, ip],
    );
  }

  /** The changes of servers before and after those of entries: one step where no server comes whose entries come, too. */
  #aroundEntries(): readonly [before: Step, after: Step] {
    if (!this.#addsEntries || !this.#servers.some(({ kind }) => kind === "addServer")) {
      return [ipvsadmStep(this.#servers), ipvsadmStep([])];
    }
    const { before = [], after = [] } = Object.groupBy(
      this.#servers,
      (change) => this.#namedOnly.has(change) ? "before" : "after",
    );
    return [ipvsadmStep(before), ipvsadmStep(after)];
  }
}

/** The line that adds or deletes an entry, as `line` writes it. */
export function entryLine(line: (set: string, text: string) => string, entry: Entry): string {
  const blank = entry.indexOf(" ");
  return line(entry.slice(0, blank), entry.slice(blank + 1));
}

function ipvsadmStep(changes: readonly ServerChange[]): Step {
  return { program: "ipvsadm", changes };
}

function nonEmpty(steps: readonly Step[]): Operations {
  return { steps: steps.filter((step) => !isEmpty(step)) };
}

function isEmpty(step: Step): boolean {
  switch (step.program) {
    case "iptables":
      return step.transactions.length === 0;
    case "ipvsadm":
      return step.changes.length === 0;
    default:
      return step.lines.length === 0;
  }
}

/** The changes of real servers that lead from one list of keys to another. */
export function changeRealServers(
  draft: OperationsDraft,
  { server, realServers, graceful }: WantedServer,
  before: Iterable<RealServer>,
): void {
  const wanted = new Set(realServers);
  const surplus: RealServer[] = [];
  const known = new Set<string>();
  for (const real of before) {
    const key = realServerKey(real);
    known.add(key);
    if (!wanted.has(key)) surplus.push(real);
    // An earlier process may have left it on its way out, somebody else may have changed it.
    else if (real.weight !== 1 || real.otherOptions !== undefined) {
      draft.server({ kind: "updateReal", server, real: realServerOf(key) });
    }
  }
  for (const key of realServers) {
    if (!known.has(key)) draft.server({ kind: "addReal", server, real: realServerOf(key) });
  }
  for (const real of surplus) draft.server({ kind: "removeReal", server, real, graceful });
}
