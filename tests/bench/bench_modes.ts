/**
 * Modes by the words of a command line.
 *
 * @module
 */
import type { BenchMode } from "./mode.ts";
import { iptablesMode } from "./mode_iptables.ts";
import { IPVS_MODE } from "./mode_ipvs.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";

/** @throws {RangeError} if there is no such mode or variant */
export function parseMode(mode: string | undefined, variant: string | undefined): BenchMode {
  if (mode === "nftables") return NFTABLES_MODE;
  if (mode === "ipvs") return IPVS_MODE;
  if (mode !== "iptables") {
    throw new RangeError(
      `--mode must be iptables, nftables, ipvs or, of the bench task, userspace: got ${mode}`,
    );
  }
  if (variant !== "nft" && variant !== "legacy") {
    throw new RangeError(`--variant must be nft or legacy: got ${variant}`);
  }
  return iptablesMode(variant);
}
