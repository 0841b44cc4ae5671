/**
 * What `iptables --version` says, and what follows from it.
 *
 * @module
 */

/** Which kernel interface an iptables program speaks: nf_tables, or the older x_tables. */
export type IptablesVariant = "nft" | "legacy";

/** Version and variant of one iptables program. */
export interface IptablesVersion {
  /** Dotted, e.g. `1.8.9`. */
  readonly version: string;
  readonly variant: IptablesVariant;
}

/** The oldest version whose `iptables-restore` waits for the lock by itself. */
export const MIN_IPTABLES_VERSION = "1.6.2";

/** Since this version `-W` only prints that it is ignored. */
const WAIT_INTERVAL_IGNORED_SINCE = "1.8.8";

/** Reads `iptables v1.8.9 (nf_tables)`; null for any other text. Before 1.8 there was only the legacy variant. */
export function parseIptablesVersion(text: string): IptablesVersion | null {
  const match = /v([0-9]+(?:\.[0-9]+)+)(?:\s+\((\w+)\))?/.exec(text);
  if (match === null) return null;
  return { version: match[1] ?? "", variant: match[2] === "nf_tables" ? "nft" : "legacy" };
}

/** True if dotted version `version` is `minimum` or newer. */
export function isAtLeast(version: string, minimum: string): boolean {
  const parts = version.split(".").map(Number);
  const wanted = minimum.split(".").map(Number);
  for (const [i, want] of wanted.entries()) {
    const part = parts[i] ?? 0;
    if (part !== want) return part > want;
  }
  return true;
}

/** The arguments that make `iptables` and `iptables-restore` wait up to 5 s for the xtables lock. */
export function waitArgs(version: string): readonly string[] {
  // Older programs look for the lock once a second unless told to look every 100 ms.
  return isAtLeast(version, WAIT_INTERVAL_IGNORED_SINCE) ? ["-w", "5"] : ["-w", "5", "-W", "100000"];
}
