/**
 * The kernel settings of a node that may have no program to read them with.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import type { Exec } from "./exec.ts";
import { changeSysctls, readSysctl, readSysctls, type SysctlChange, type SysctlOutcome } from "./sysctl.ts";

/** 1 switches IPv6 off. */
export const DISABLE_IPV6 = "net.ipv6.conf.all.disable_ipv6";

/** How it went to make sure of a setting, unless the kernel refuses the value. */
export type AllowedOutcome = Exclude<SysctlOutcome, { readonly kind: "refused" }>;

/** The kernel settings of this node, as far as they can be read. None is read twice while a node is prepared. */
export interface NodeSysctls {
  /** False if there is no program to ask. */
  readonly known: boolean;
  /** 1 if IPv6 is switched off; null if the kernel does not have it, or that is unknown. */
  readonly ipv6Disabled: string | null;
  /**
   * Null for settings that this kernel does not have (they are asked for again the next time: a module may bring them); nothing
   * if that is unknown.
   */
  read(names: readonly string[]): Promise<ReadonlyMap<string, string | null>>;
  /** Settings that something else writes: they are read anew. */
  forget(names: readonly string[]): void;
  /**
   * The outcomes in the order of `changes`; null if that is unknown.
   *
   * @throws {ExecError} if the kernel refuses a value for another reason than that it may not be written
   */
  change(changes: readonly SysctlChange[]): Promise<readonly AllowedOutcome[] | null>;
}

/** Those of a node that has no program to ask. */
export const UNKNOWN_SYSCTLS: NodeSysctls = {
  known: false,
  ipv6Disabled: null,
  read: () => Promise.resolve(new Map()),
  forget: () => {},
  change: () => Promise.resolve(null),
};

/**
 * Finds out whether there is a program to ask, and says so in the log if there is none.
 *
 * @param names settings that will be asked for soon: read by the same program
 */
export async function nodeSysctls(
  exec: Exec,
  log: Logger,
  names: readonly string[] = [],
): Promise<NodeSysctls> {
  try {
    const values = await readAhead(exec, names);
    return new KnownSysctls(exec, values.get(DISABLE_IPV6) ?? await readSysctl(exec, DISABLE_IPV6), values);
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
  }
  log.warn("Kernel settings cannot be read: install procps, there is no program sysctl on PATH", {
    assumed: "IPv6 is on if its rules can be written, and INVALID packets must be dropped",
  });
  return UNKNOWN_SYSCTLS;
}

/**
 * Makes sure that IPv6 is on: the kernel takes rules for a family that it was told not to speak. Where that is unknown, nothing
 * says that it is off.
 *
 * @throws {UnsupportedError} if it is not
 */
export function requireIpv6({ known, ipv6Disabled }: NodeSysctls): void {
  if (!known || ipv6Disabled === "0") return;
  throw new UnsupportedError("IPv6", `${DISABLE_IPV6} = 0`, ipv6Disabled ?? "a kernel without IPv6");
}

/** Those that this kernel has; none if a setting cannot be read, so that its reader reports why. */
async function readAhead(exec: Exec, names: readonly string[]): Promise<Map<string, string>> {
  if (names.length === 0) return new Map();
  try {
    const found = await readSysctls(exec, [...new Set([...names, DISABLE_IPV6])]);
    return new Map([...found].filter((entry): entry is [string, string] => entry[1] !== null));
  } catch (error) {
    if (!(error instanceof ExecError) || error.isMissing() || error.isInconclusive()) throw error;
    return new Map();
  }
}

class KnownSysctls implements NodeSysctls {
  readonly known = true;
  readonly ipv6Disabled: string | null;
  readonly #exec: Exec;
  readonly #values: Map<string, string>;

  constructor(exec: Exec, ipv6Disabled: string | null, values: Map<string, string>) {
    this.#exec = exec;
    this.ipv6Disabled = ipv6Disabled;
    this.#values = values;
  }

  async read(names: readonly string[]): Promise<ReadonlyMap<string, string | null>> {
    const found = await readSysctls(this.#exec, names.filter((name) => !this.#values.has(name)));
    for (const [name, value] of found) if (value !== null) this.#values.set(name, value);
    return new Map(names.map((name) => [name, this.#values.get(name) ?? null]));
  }

  forget(names: readonly string[]): void {
    for (const name of names) this.#values.delete(name);
  }

  async change(changes: readonly SysctlChange[]): Promise<readonly AllowedOutcome[]> {
    this.forget(changes.map(({ name }) => name));
    return (await changeSysctls(this.#exec, changes)).map((outcome) => {
      if (outcome.kind === "refused") throw outcome.error;
      return outcome;
    });
  }
}
