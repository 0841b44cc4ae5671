/**
 * Reads what the kernel holds of IPVS mode: four programs; a few more where iptables cannot read a whole table.
 *
 * @module
 */
import type { Exec } from "../../../kernel/exec.ts";
import { readDevices } from "../../../kernel/ip_address.ts";
import { saveSets } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { FAMILIES } from "../../../model/objects.ts";
import { type OwnRules, readOwnChains, readTables } from "../../iptables/apply/table_reading.ts";
import type { HeldTables } from "../../iptables/store/full_sync.ts";
import { CHAINS, JUMP_RULES } from "../plan/base_rules.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { growingSetName, setNames } from "../plan/sets.ts";
import type { HeldOwn } from "../store/objects.ts";

/** How many programs {@linkcode readOwn} and {@linkcode readTables} start together. */
export const READ_COMMANDS = 4;

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

/** What this mode has in iptables in every state of the cluster. */
export const OWN_RULES: OwnRules = { chains: CHAINS, jumps: JUMP_RULES };

/**
 * Our chains and those of the kernel with our jumps, without other programs' chains. Null if another process holds iptables' lock, which
 * says nothing of our rules.
 *
 * @throws {ExecError} as {@linkcode readTables}, which says where a chain is missing or cannot be read
 */
export async function listRules(iptables: Iptables): Promise<HeldTables | null> {
  const listed = await readOwnChains(iptables, OWN_RULES);
  return listed === "incomplete" ? await readTables(iptables, OWN_RULES) : listed;
}
