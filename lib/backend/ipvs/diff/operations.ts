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
import { type RealServer, realServerKey } from "../../../netfilter/ipvs.ts";
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

/** Collects changes; each kind keeps the order in which it was told. */
export class OperationsDraft {
  readonly #ipset: string[] = [];
  readonly #tables: Record<Table, string[]> = { nat: [], filter: [] };
  readonly #servers: ServerChange[] = [];
  readonly #bound: string[] = [];
  readonly #unbound: string[] = [];
  #addsEntries = false;
  /** True if a server goes whose address is or was not on the device, so that only its entries tell that it is ours. */
  #dropsEvidence = false;

  /** Lines of ipset that neither add nor remove an entry of a set in use. */
  ipset(...lines: readonly string[]): void {
    this.#ipset.push(...lines);
  }

  addEntry(entry: Entry): void {
    const blank = entry.indexOf(" ");
    this.#ipset.push(addEntryLine(entry.slice(0, blank), entry.slice(blank + 1)));
    this.#addsEntries = true;
  }

  removeEntry(entry: Entry): void {
    const blank = entry.indexOf(" ");
    this.#ipset.push(deleteEntryLine(entry.slice(0, blank), entry.slice(blank + 1)));
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

  server(change: ServerChange, isBound = true): void {
    this.#servers.push(change);
    if (change.kind === "deleteServer" && !isBound) this.#dropsEvidence = true;
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
   * untouched. Where things only go, the address goes first. A server of which only its entries tell that it is ours
   * goes before them, so that nothing of ours is left behind if we are killed between two steps.
   *
   * @param rulesLast true if other rules serve the same addresses until ours replace them
   */
  finish(rulesLast: boolean): Operations {
    const transactions: Transaction[] = (["nat", "filter"] as const)
      .map((table) => ({ table, lines: this.#tables[table] }))
      .filter(({ lines }) => lines.length > 0);
    const ipset: Step = { program: "ipset", lines: this.#ipset };
    const iptables: Step = { program: "iptables", transactions };
    const ipvsadm: Step = { program: "ipvsadm", changes: this.#servers };
    const ip: Step = { program: "ip", lines: [...this.#unbound, ...this.#bound] };
    const steps = rulesLast
      ? this.#dropsEvidence ? [ipvsadm, ipset, ip, iptables] : [ipset, ipvsadm, ip, iptables]
      : !this.#addsEntries && (this.#unbound.length > 0 || this.#dropsEvidence)
      ? [ip, ipvsadm, iptables, ipset]
      : this.#dropsEvidence
      ? [ipvsadm, ipset, iptables, ip]
      : [ipset, iptables, ipvsadm, ip];
    return { steps: steps.filter((step) => !isEmpty(step)) };
  }
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
