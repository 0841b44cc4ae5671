/**
 * Which code stands behind a proxy mode. A new mode is a folder beside this file and a line in it.
 *
 * @module
 */
import type { ProxyMode } from "../config/types.ts";
import type { PrepareMode } from "./mode.ts";

/**
 * The modes that have an implementation. Which of them a node runs is decided in `choose_mode.ts`. Each is loaded when it is
 * tried: a node runs one of them.
 */
export const MODES: ReadonlyMap<ProxyMode, PrepareMode> = new Map<ProxyMode, PrepareMode>([
  ["nftables", async (context) => (await import("./nftables/proxier.ts")).prepareNftables(context)],
  ["iptables", async (context) => (await import("./iptables/proxier.ts")).prepareIptables(context)],
  ["ipvs", async (context) => (await import("./ipvs/proxier.ts")).prepareIpvs(context)],
]);

/** Names of the implemented modes. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = [...MODES.keys()];
