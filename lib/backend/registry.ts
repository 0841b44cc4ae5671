/**
 * Which code stands behind a proxy mode. A new mode is a folder beside this file and a line in it.
 *
 * @module
 */
import type { ProxyMode } from "../config/types.ts";
import { prepareIptables } from "./iptables/proxier.ts";
import { prepareIpvs } from "./ipvs/proxier.ts";
import { prepareNftables } from "./nftables/proxier.ts";
import type { PrepareMode } from "./mode.ts";

/** The modes that have an implementation. Which of them a node runs is decided in `choose_mode.ts`. */
export const MODES: ReadonlyMap<ProxyMode, PrepareMode> = new Map<ProxyMode, PrepareMode>([
  ["nftables", prepareNftables],
  ["iptables", prepareIptables],
  ["ipvs", prepareIpvs],
]);

/** Names of the implemented modes. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = [...MODES.keys()];
