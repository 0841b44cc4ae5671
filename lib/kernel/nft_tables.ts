/**
 * Tables of nftables: which there are, and their removal.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, runOk } from "./exec.ts";

/** One table by nft's words for it. */
export interface NftTable {
  /** `ip`, `ip6`, `inet`, `arp`, `bridge` or `netdev`. */
  readonly family: string;
  readonly name: string;
}

// nft's words where the kernel has no nf_tables.
const NO_NFTABLES_REGEXP = /Protocol not supported|Unable to initialize Netlink socket/;

/**
 * All tables; none where there is no nft program or no nf_tables in the kernel.
 *
 * @throws {ExecError} if they cannot be listed for another reason, such as missing rights
 */
export async function listNftTables(exec: Exec): Promise<readonly NftTable[]> {
  try {
    const text = await runOk(exec, ["nft", "list", "tables"]);
    return [...text.matchAll(/^table (\S+) (\S+)$/gm)].map(([, family = "", name = ""]) => ({
      family,
      name,
    }));
  } catch (error) {
    if (error instanceof ExecError && (error.isMissing() || NO_NFTABLES_REGEXP.test(error.stderr))) return [];
    throw error;
  }
}

/** Removes a table with everything in it, in one transaction; one that is gone already is fine. */
export async function deleteNftTable(exec: Exec, { family, name }: NftTable): Promise<void> {
  try {
    await runOk(exec, ["nft", "delete", "table", family, name]);
  } catch (error) {
    if (!(error instanceof ExecError && error.isNotFound())) throw error;
  }
}
