/**
 * Which code stands behind a proxy mode. A new mode is a folder beside this file and a line in it.
 *
 * @module
 */
import { configForMode } from "../../config/defaults.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import type { AheadExec, Look } from "../../kernel/ahead_exec.ts";
import type { PrepareMode } from "./mode.ts";

/** Each mode is loaded when it is tried: a node runs one of them. */
const LOADERS: ReadonlyMap<ProxyMode, () => Promise<LoadedMode>> = new Map<
  ProxyMode,
  () => Promise<LoadedMode>
>([
  ["nftables", async () => {
    const { nftablesLooks, prepareNftables } = await import("../nftables/node/preflight.ts");
    return { prepare: prepareNftables, looks: nftablesLooks };
  }],
  ["iptables", async () => {
    const { iptablesLooks, prepareIptables } = await import("../iptables/node/preflight.ts");
    return { prepare: prepareIptables, looks: iptablesLooks };
  }],
  ["userspace", async () => ({ prepare: (await import("../userspace/node/preflight.ts")).prepareUserspace })],
  ["ipvs", async () => {
    const { ipvsLooks, prepareIpvs } = await import("../ipvs/node/preflight.ts");
    return { prepare: prepareIpvs, looks: ipvsLooks };
  }],
]);

/** Of which rules depend on ServiceCIDRs. */
const OF_SERVICE_CIDRS: readonly ProxyMode[] = ["nftables"];

/** Code of a mode. */
interface LoadedMode {
  readonly prepare: PrepareMode;
  /** What the mode will look at first, whatever the node is like; it gets a configuration with the mode in it. */
  readonly looks?: (config: KubeProxyConfiguration) => readonly Look[];
}

/** The modes that have an implementation. Which of them a node runs is decided in `choose_mode.ts`. */
export const MODES: ReadonlyMap<ProxyMode, PrepareMode> = new Map<ProxyMode, PrepareMode>(
  [...LOADERS].map(([mode, load]) => [mode, async (context) => (await load()).prepare(context)]),
);

/** Loads a mode before it is tried, and starts the programs that it will look with first. */
export async function beginMode(
  mode: ProxyMode,
  config: KubeProxyConfiguration,
  exec: AheadExec,
): Promise<void> {
  const loaded = await LOADERS.get(mode)?.();
  exec.begin(loaded?.looks?.(configForMode(config, mode)) ?? []);
}

/** True for a mode that will want ServiceCIDRs: its `PreparedMode` has `setServiceCidrs`. */
export function usesServiceCidrs(mode: ProxyMode): boolean {
  return OF_SERVICE_CIDRS.includes(mode);
}

/** Names of the implemented modes. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = [...MODES.keys()];
