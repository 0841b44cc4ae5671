/**
 * The kernel settings that IPVS mode needs, written once at the start.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { UnsupportedError } from "../../../errors.ts";
import type { NodeSysctls } from "../../../kernel/sysctl.ts";
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

/** The settings without which the mode does not start, with this configuration. */
export function neededIpvsSysctls({ ipvs: { strictARP } }: KubeProxyConfiguration): readonly NeededSysctl[] {
  const always: readonly (readonly [name: string, why: string])[] = [
    [VS_CONNTRACK, "connections through IPVS could not be masqueraded"],
    [EXPIRE_NODEST_CONN, "clients of a deleted endpoint would wait for it"],
    [EXPIRE_QUIESCENT_TEMPLATE, "clients with session affinity would stay with an endpoint that leaves"],
    [IP_FORWARD, "packets to pods would not be forwarded"],
  ];
  const arp = { arp_ignore: "1", arp_announce: "2" };
  return [
    ...always.map(([name, why]) => ({ name, value: "1", why })),
    ...Object.entries(strictARP ? arp : {}).map(([name, value]) => {
      return { name: `net.ipv4.conf.all.${name}`, value, why: "strictARP" };
    }),
  ];
}

/** Dependencies of setting sysctls. */
interface SysctlTools {
  readonly sysctls: NodeSysctls;
  /** What `uname -r` prints; null if it is not known. */
  readonly release: string | null;
  readonly log: Logger;
}

/**
 * Writes the settings where they differ.
 *
 * @throws {UnsupportedError} if one is not as needed and cannot be written
 */
export async function setIpvsSysctls(config: KubeProxyConfiguration, tools: SysctlTools): Promise<void> {
  const { sysctls, log } = tools;
  const always = neededIpvsSysctls(config);
  const values = await sysctls.read([...always.map(({ name }) => name), CONN_REUSE_MODE]);
  const needed = [...always, ...neededConnReuse(values.get(CONN_REUSE_MODE) ?? null, tools)];
  const outcomes = await sysctls.change(
    needed.map(({ name, value }) => ({ name, value, found: values.get(name) ?? null })),
  );
  for (const [index, { name, value, why }] of needed.entries()) {
    const outcome = outcomes?.[index] ?? null;
    if (outcome === null) {
      log.warn("A kernel setting cannot be read", {
        name,
        wanted: value,
        otherwise: why,
        advice: "install procps",
      });
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

/** How `conn_reuse_mode` must be set for a kernel. */
export type ConnReuse =
  /** The kernel delays a new connection from a port used before by a second unless the setting is off. */
  | "off"
  /** The kernel does the right thing by itself. */
  | "leave"
  /** The kernel always sends such a connection to the former endpoint, which may be gone. */
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
function neededConnReuse(found: string | null, { log, release }: SysctlTools): readonly NeededSysctl[] {
  const name = CONN_REUSE_MODE;
  const choice = release === null ? null : connReuse(release);
  if (choice === null || choice === "leave" || (found !== "1" && found !== "0" && found !== null)) {
    log.info("Left sysctl as it is", { name, value: found, kernel: release });
  } else if (choice === "too old" || found === null) {
    log.warn("Connections from a port used before may go to an endpoint that is gone", {
      kernel: release,
      advice: "use Linux 5.9 or newer",
    });
  } else {
    return [{ name, value: "0", why: "new connections from a port used before wait a second" }];
  }
  return [];
}
