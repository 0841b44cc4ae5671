/**
 * Reads the kernel settings that matter, each program once.
 *
 * @module
 */
import {
  BE_LIBERAL,
  CONN_REUSE_MODE,
  IP_FORWARD,
  ROUTE_LOCALNET,
} from "../../../backend/node/mode_sysctls.ts";
import { neededIpvsSysctls } from "../../../backend/ipvs/node/preflight_sysctls.ts";
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { conntrackNames } from "../../../conntrack/settings.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { DISABLE_IPV6 } from "../../../kernel/node_sysctls.ts";
import { readSysctls } from "../../../kernel/sysctl.ts";
import {
  BRIDGE_NETFILTER,
  BRIDGE_NETFILTER_6,
  CONNTRACK_COUNT,
  CONNTRACK_MAX,
  IPV6_FORWARD,
} from "../settings.ts";

/** Setting → value; null where this kernel does not have it. */
export type Settings = ReadonlyMap<string, string | null>;

/** The settings of the node as a whole. */
export async function readSettings(exec: Exec, config: KubeProxyConfiguration): Promise<Settings> {
  const names = [
    IP_FORWARD,
    IPV6_FORWARD,
    DISABLE_IPV6,
    BRIDGE_NETFILTER,
    BRIDGE_NETFILTER_6,
    CONNTRACK_COUNT,
    CONNTRACK_MAX,
    BE_LIBERAL,
    ROUTE_LOCALNET,
    CONN_REUSE_MODE,
    ...neededIpvsSysctls(config).map(({ name }) => name),
    ...conntrackNames(config.conntrack),
  ];
  return await readSysctls(exec, [...new Set(names)]);
}
