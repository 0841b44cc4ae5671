/**
 * Maps each proxy mode to its implementation. A new mode is a folder beside this file and a line in it.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import type { PrepareMode } from "./mode.ts";

/** Each mode is loaded when it is tried: a node runs one mode. */
const LOADERS: ReadonlyMap<ProxyMode, () => Promise<PrepareMode>> = new Map<
  ProxyMode,
  () => Promise<PrepareMode>
>([
  ["nftables", async () => (await import("../nftables/node/preflight.ts")).prepareNftables],
  ["iptables", async () => (await import("../iptables/node/preflight.ts")).prepareIptables],
  ["userspace", async () => (await import("../userspace/node/preflight.ts")).prepareUserspace],
  ["ipvs", async () => (await import("../ipvs/node/preflight.ts")).prepareIpvs],
]);

/** The modes that have an implementation. Which of them a node runs is decided in `choose_mode.ts`. */
export const MODES: ReadonlyMap<ProxyMode, PrepareMode> = new Map<ProxyMode, PrepareMode>(
  [...LOADERS].map(([mode, load]) => [mode, async (context) => await (await load())(context)]),
);

/** Loads a mode's code, while programs run that its preflight waits for. */
export async function loadMode(mode: ProxyMode): Promise<void> {
  await LOADERS.get(mode)?.();
}

/** Names of the implemented modes. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = [...MODES.keys()];
