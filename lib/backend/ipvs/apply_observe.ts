/**
 * Reads what the kernel holds of IPVS mode: four programs, all of them only at the start and after a failure.
 *
 * @module
 */
import type { Exec } from "../../kernel/exec.ts";
import { readDevices } from "../../kernel/ip_address.ts";
import { saveSets } from "../../kernel/ipset.ts";
import type { Iptables } from "../../kernel/iptables.ts";
import type { Ipvsadm } from "../../kernel/ipvsadm.ts";
import { parseIptablesSave } from "../../netfilter/iptables_save.ts";
import { DEVICE, type Observed } from "./ruleset.ts";
import { growingSetName, setNames } from "./sets.ts";

/** How many programs {@linkcode observe} starts. */
export const OBSERVE_COMMANDS = 4;

/** What to read with. */
export interface ObserveTools {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  /** Of the family that is of interest. */
  readonly iptables: Iptables;
}

/**
 * @throws {ExecError} if a program fails
 * @throws {SyntaxError} if its text cannot be read
 */
export async function observe({ exec, ipvs, iptables }: ObserveTools): Promise<Observed> {
  const { family } = iptables;
  const own = new Set([...setNames(family), growingSetName(family)]);
  const [{ virtualServers }, sets, { kinds, addresses }, saved] = await Promise.all([
    ipvs.save(),
    saveSets(exec, (name) => own.has(name)),
    readDevices(exec),
    iptables.save(),
  ]);
  const onDevice = addresses.filter(({ device }) => device === DEVICE).map(({ address }) => address);
  return {
    addresses: kinds.has(DEVICE) ? new Set(onDevice) : null,
    virtualServers,
    sets,
    tables: parseIptablesSave(saved),
  };
}
