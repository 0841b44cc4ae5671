/**
 * Reads what the kernel holds of IPVS mode: four programs; a few more where iptables cannot read a whole table.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { readDevices } from "../../../kernel/ip_address.ts";
import { saveSets } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { findByName, listChains } from "../../../kernel/iptables_by_name.ts";
import { isLockBusy } from "../../../kernel/tool_errors.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { FAMILIES } from "../../../model/objects.ts";
import { jumpsByChain, type Table } from "../../../netfilter/iptables_jumps.ts";
import { parseIptablesSave, type SavedChain, unreadableTables } from "../../../netfilter/iptables_save.ts";
import { CHAINS, JUMP_RULES } from "../plan/base_rules.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { growingSetName, setNames } from "../plan/sets.ts";
import type { HeldObjects, HeldOwn } from "../store/objects.ts";
import { TABLES } from "../store/transaction.ts";

/** How many programs {@linkcode readOwn} and {@linkcode readRules} start together. */
export const READ_COMMANDS = 4;

/** What iptables holds of one family. */
export type HeldIptables = Omit<HeldObjects, keyof HeldOwn>;

/**
 * The device, the sets and the IPVS table, of both families.
 *
 * @throws {ExecError} if a program fails
 * @throws {SyntaxError} if its text cannot be read
 */
export async function readOwn(exec: Exec, ipvs: Ipvsadm): Promise<HeldOwn> {
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
 * The rules of one family. Of a table that iptables cannot read as a whole, because of rules that were added with nft, our chains and jumps
 * are looked for by name.
 *
 * @throws {ExecError} if a program fails, or cannot tell whether a jump is there
 * @throws {SyntaxError} if its text cannot be read
 */
export async function readRules(iptables: Iptables): Promise<HeldIptables> {
  const saved = await iptables.saveReadable();
  const named = unreadableTables(saved);
  const unreadable = TABLES.filter((table) => named.has(table));
  const tables = new Map<string, ReadonlyMap<string, SavedChain>>(parseIptablesSave(saved));
  const jumpsOnly: Record<Table, ReadonlySet<string>> = { nat: new Set(), filter: new Set() };
  for (const table of unreadable) {
    const jumps = jumpsByChain(JUMP_RULES, table);
    const found = await findByName(iptables, table, { chains: CHAINS[table], jumps });
    tables.set(table, found.chains);
    jumpsOnly[table] = found.jumpsOnly;
  }
  return { tables, jumpsOnly, unreadable: new Set(unreadable) };
}

/**
 * Our chains and those of the kernel with our jumps, without other programs' chains. Null if another process holds iptables' lock, which
 * says nothing of our rules.
 *
 * @param without a chain that is not listed
 * @throws {ExecError} as {@linkcode readRules}, which tells where a chain is missing or cannot be read
 */
export async function listRules(iptables: Iptables, without?: string): Promise<HeldIptables | null> {
  const asked = TABLES.map((table): readonly [string, readonly string[]] => [
    table,
    [...jumpsByChain(JUMP_RULES, table).keys(), ...CHAINS[table].filter((chain) => chain !== without)],
  ]);
  try {
    return { tables: await listChains(iptables, asked) };
  } catch (error) {
    if (!(error instanceof ExecError) || error.isMissing()) throw error;
    return isLockBusy(error) ? null : await readRules(iptables);
  }
}
