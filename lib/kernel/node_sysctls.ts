/**
 * The kernel settings of a node that may have no program to read them with.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import type { Exec } from "./exec.ts";
import {
  changeSysctl,
  changeSysctls,
  readSysctl,
  readSysctls,
  type SysctlChange,
  type SysctlOutcome,
} from "./sysctl.ts";

/** 1 switches IPv6 off. */
export const DISABLE_IPV6 = "net.ipv6.conf.all.disable_ipv6";

/** The kernel settings of this node, as far as they can be read. */
export interface NodeSysctls {
  /** False if there is no program to ask. */
  readonly known: boolean;
  /** 1 if IPv6 is switched off; null if the kernel does not have it, or nobody can tell. */
  readonly ipv6Disabled: string | null;
  /** Null for settings that this kernel does not have; nothing if nobody can tell. */
  read(names: readonly string[]): Promise<ReadonlyMap<string, string | null>>;
  /** `found` is what was read. Null if nobody can tell. */
  change(name: string, found: string | null | undefined, value: string): Promise<SysctlOutcome | null>;
  /** The outcomes in the order of `changes`; null if nobody can tell. */
  changeAll(changes: readonly SysctlChange[]): Promise<readonly SysctlOutcome[] | null>;
}

/** Finds out whether there is a program to ask, and says so in the log if there is none. */
export async function nodeSysctls(exec: Exec, log: Logger): Promise<NodeSysctls> {
  try {
    return {
      known: true,
      ipv6Disabled: await readSysctl(exec, DISABLE_IPV6),
      read: (names) => readSysctls(exec, names),
      change: (name, found = null, value) => changeSysctl(exec, name, { found, value }),
      changeAll: (changes) => changeSysctls(exec, changes),
    };
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
  }
  log.warn("Kernel settings cannot be read: install procps, there is no program sysctl on PATH", {
    assumed: "IPv6 is on if ip6tables works, and INVALID packets must be dropped",
  });
  return {
    known: false,
    ipv6Disabled: null,
    read: () => Promise.resolve(new Map()),
    change: () => Promise.resolve(null),
    changeAll: () => Promise.resolve(null),
  };
}
