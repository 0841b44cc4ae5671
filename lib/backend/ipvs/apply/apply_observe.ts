/**
 * Reads what the kernel holds of IPVS mode: four programs, all of them only at the start and after a failure, and one where the mode
 * begins on a node; a few more where iptables cannot read a whole table.
 *
 * @module
 */
import type { Exec } from "../../../kernel/exec.ts";
import { readDevices } from "../../../kernel/ip_address.ts";
import { saveSets } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { FAMILIES } from "../../../model/objects.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { parseIptablesSave, unreadableTables } from "../../../netfilter/iptables_save.ts";
import { observeByName } from "./apply_by_name.ts";
import type { ObservedOwn } from "./apply_fresh.ts";
import { DEVICE, type Observed } from "../plan/ruleset.ts";
import { growingSetName, setNames } from "../plan/sets.ts";

const TABLES: readonly Table[] = ["nat", "filter"];

/** How many programs {@linkcode observeOwn} starts. */
export const OWN_COMMANDS = 3;
/** How many programs {@linkcode observeRules} starts. */
export const RULES_COMMANDS = 1;

/** What to read with. */
export interface ObserveTools {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  /** Of the family that is of interest. */
  readonly iptables: Iptables;
}

/**
 * The device, the sets and the IPVS table, of both families.
 *
 * @throws {ExecError} if a program fails
 * @throws {SyntaxError} if its text cannot be read
 */
export async function observeOwn({ exec, ipvs }: Omit<ObserveTools, "iptables">): Promise<ObservedOwn> {
  const own = new Set(FAMILIES.flatMap((family) => [...setNames(family), growingSetName(family)]));
  const [{ virtualServers }, sets, { kinds, addresses }] = await Promise.all([
    ipvs.save(),
    saveSets(exec, (name) => own.has(name)),
    readDevices(exec),
  ]);
  const onDevice = addresses.filter(({ device }) => device === DEVICE).map(({ address }) => address);
  return { addresses: kinds.has(DEVICE) ? new Set(onDevice) : null, virtualServers, sets };
}

/**
 * The rules of one family.
 *
 * @throws {ExecError} if a program fails
 * @throws {SyntaxError} if its text cannot be read
 */
export async function observeRules(iptables: Iptables): Promise<Omit<Observed, keyof ObservedOwn>> {
  const saved = await iptables.saveReadable();
  const tables = new Map(parseIptablesSave(saved));
  const named = unreadableTables(saved);
  const unreadable = TABLES.filter((table) => named.has(table));
  const jumpsOnly: Record<Table, ReadonlySet<string>> = { nat: new Set(), filter: new Set() };
  for (const table of unreadable) {
    const found = await observeByName(iptables, table);
    tables.set(table, found.chains);
    jumpsOnly[table] = found.jumpsOnly;
  }
  return { tables, jumpsOnly, unreadable };
}
