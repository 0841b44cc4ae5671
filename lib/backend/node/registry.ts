/**
 * Which code stands behind a proxy mode. A new mode is a folder beside this file and a line in it.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import type { PrepareMode } from "./mode.ts";

/** Each mode is loaded when it is tried: a node runs one of them. */
const LOADERS: ReadonlyMap<ProxyMode, () => Promise<PrepareMode>> = new Map<
  ProxyMode,
  () => Promise<PrepareMode>
>([
  ["nftables", async () => (await import("../nftables/node/proxier.ts")).prepareNftables],
  ["iptables", async () => (await import("../iptables/node/proxier.ts")).prepareIptables],
  ["userspace", async () => (await import("../userspace/node/proxier.ts")).prepareUserspace],
  ["ipvs", async () => (await import("../ipvs/node/proxier.ts")).prepareIpvs],
]);

/** The modes that have an implementation. Which of them a node runs is decided in `choose_mode.ts`. */
export const MODES: ReadonlyMap<ProxyMode, PrepareMode> = new Map<ProxyMode, PrepareMode>(
  [...LOADERS].map(([mode, load]) => [mode, async (context) => (await load())(context)]),
);

/** Loads a mode before it is tried. */
export async function preloadMode(mode: ProxyMode): Promise<void> {
  await LOADERS.get(mode)?.();
}

/** Names of the implemented modes. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = [...MODES.keys()];
