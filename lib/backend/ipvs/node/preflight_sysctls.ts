/**
 * The kernel settings that IPVS mode needs, written once at the start.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { UnsupportedError } from "../../../errors.ts";
import type { NodeSysctls } from "../../../kernel/node_sysctls.ts";
import type { Logger } from "../../../observe/log.ts";
import {
  CONN_REUSE_MODE,
  EXPIRE_NODEST_CONN,
  EXPIRE_QUIESCENT_TEMPLATE,
  IP_FORWARD,
  VS_CONNTRACK,
} from "../../node/mode_sysctls.ts";

/** A setting and why it is needed. */
export interface NeededSysctl {
  readonly name: string;
  readonly value: string;
  readonly why: string;
}

const ALWAYS: readonly NeededSysctl[] = [
  { name: VS_CONNTRACK, value: "1", why: "connections through IPVS could not be masqueraded" },
  {
    name: EXPIRE_NODEST_CONN,
    value: "1",
    why: "clients of a deleted endpoint would wait for it",
  },
  {
    name: EXPIRE_QUIESCENT_TEMPLATE,
    value: "1",
    why: "clients with session affinity would stay with an endpoint that leaves",
  },
  { name: IP_FORWARD, value: "1", why: "packets to pods would not be forwarded" },
];

const STRICT_ARP: readonly NeededSysctl[] = [
  { name: "net.ipv4.conf.all.arp_ignore", value: "1", why: "strictARP" },
  { name: "net.ipv4.conf.all.arp_announce", value: "2", why: "strictARP" },
];

/** The settings without which the mode does not start, with this configuration. */
export function neededIpvsSysctls({ ipvs: { strictARP } }: KubeProxyConfiguration): readonly NeededSysctl[] {
  return [...ALWAYS, ...(strictARP ? STRICT_ARP : [])];
}

/** What setting the kernel needs. */
interface SysctlTools {
  readonly sysctls: NodeSysctls;
  /** What `uname -r` prints; null if it is not known. */
  readonly release: string | null;
  readonly log: Logger;
}

/**
 * Sees to the settings.
 *
 * @throws {UnsupportedError} if one is not as needed and cannot be written
 */
export async function setIpvsSysctls(config: KubeProxyConfiguration, tools: SysctlTools): Promise<void> {
  const needed = neededIpvsSysctls(config);
  const found = await tools.sysctls.read([...needed.map(({ name }) => name), CONN_REUSE_MODE]);
  await setAll(needed, found, tools);
  await chooseConnReuseMode(found, tools);
}

/** @param found setting → value; null: this kernel does not have it; absent: not known */
async function setAll(
  needed: readonly NeededSysctl[],
  found: ReadonlyMap<string, string | null>,
  { sysctls, log }: SysctlTools,
): Promise<void> {
  const outcomes = await sysctls.change(
    needed.map(({ name, value }) => ({ name, value, found: found.get(name) ?? null })),
  );
  for (const [index, { name, value, why }] of needed.entries()) {
    const outcome = outcomes?.[index] ?? null;
    if (outcome === null) {
      log.warn("Nobody can tell a sysctl", { name, wanted: value, otherwise: why, advice: "install procps" });
    } else if (outcome.kind === "changed") {
      log.info("Set sysctl", { name, value, before: outcome.found });
    } else if (outcome.kind !== "unchanged") {
      const found = outcome.kind === "missing" ? "no such setting in this kernel" : outcome.found;
      throw new UnsupportedError("IPVS", `${name} = ${value}`, found, {
        message: `IPVS needs ${name} = ${value} (otherwise ${why}), found ${found}: ` +
          "set it, or run once with --init-only and enough rights",
      });
    }
  }
}

/** What a kernel wants to have in `conn_reuse_mode`. */
export type ConnReuse =
  /** It delays a new connection from a port used before by a second unless it is told not to look. */
  | "off"
  /** It does the right thing by itself. */
  | "leave"
  /** It always sends such a connection to the former endpoint, which may be gone. */
  | "too old";

/**
 * Linux 5.9 dropped the delay; 4.1 brought the setting.
 *
 * @param release what `uname -r` prints
 * @returns null if that is no version
 */
export function connReuse(release: string): ConnReuse | null {
  const [, major, minor] = (/^(\d+)\.(\d+)/.exec(release.trim()) ?? []).map(Number);
  if (major === undefined || minor === undefined) return null;
  if (major > 5 || (major === 5 && minor >= 9)) return "leave";
  return major === 5 || (major === 4 && minor >= 1) ? "off" : "too old";
}

/** Another value than the kernel's own is an administrator's, and stays. */
async function chooseConnReuseMode(
  values: ReadonlyMap<string, string | null>,
  tools: SysctlTools,
): Promise<void> {
  const { log, release } = tools;
  const name = CONN_REUSE_MODE;
  const choice = release === null ? null : connReuse(release);
  const found = values.get(name) ?? null;
  if (choice === null || choice === "leave" || (found !== "1" && found !== "0" && found !== null)) {
    log.info("Left sysctl as it is", { name, value: found, kernel: release });
  } else if (choice === "too old" || found === null) {
    log.warn("Connections from a port used before may go to an endpoint that is gone", {
      kernel: release,
      advice: "use Linux 5.9 or newer",
    });
  } else {
    const why = "new connections from a port used before wait a second";
    await setAll([{ name, value: "0", why }], values, tools);
  }
}
