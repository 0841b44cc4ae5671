/**
 * The kernel settings of connection tracking that the configuration asks for, and how they are made sure of.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import type { Exec } from "./exec.ts";
import { changeSysctls, type NodeSysctls, readSysctls, type SysctlOutcome } from "./sysctl.ts";
import type { ConntrackConfig } from "../config/types.ts";

/** One kernel setting, as `sysctl` names it. */
export interface ConntrackSetting {
  readonly name: string;
  readonly value: number;
  /** True: a higher value that is already there stays. */
  readonly atLeast: boolean;
}

/** The size of the table to which the number of CPUs can lead; from there on `min` is ignored (kube-proxy 1.36). */
const MAX_SCALED_ENTRIES = 1_048_576;
/** Entries per hash bucket that kube-proxy allows for. */
const ENTRIES_PER_BUCKET = 4;
const PREFIX = "net.netfilter.nf_conntrack_";

/**
 * The settings to write if they differ, in order: the hash size follows the table's. None for fields that are 0.
 *
 * Source: kube-proxy 1.36; differs: a fraction of a second is rounded up, because 0 would end every flow at once, and
 * limits are raised, never lowered.
 */
export function conntrackSettings(config: ConntrackConfig, cpuCount: number): readonly ConntrackSetting[] {
  const settings: ConntrackSetting[] = [];
  const entries = maxEntries(config, cpuCount);
  if (entries > 0) {
    settings.push(
      { name: `${PREFIX}max`, value: entries, atLeast: true },
      { name: `${PREFIX}buckets`, value: Math.floor(entries / ENTRIES_PER_BUCKET), atLeast: true },
    );
  }
  const timeoutsMs = {
    tcp_timeout_established: config.tcpEstablishedTimeout,
    tcp_timeout_close_wait: config.tcpCloseWaitTimeout,
    udp_timeout: config.udpTimeout,
    udp_timeout_stream: config.udpStreamTimeout,
  };
  for (const [name, ms] of Object.entries(timeoutsMs)) {
    if (ms > 0) settings.push({ name: `${PREFIX}${name}`, value: Math.ceil(ms / 1000), atLeast: false });
  }
  if (config.tcpBeLiberal) settings.push({ name: `${PREFIX}tcp_be_liberal`, value: 1, atLeast: false });
  return settings;
}

/** Names of {@linkcode conntrackSettings}: how many CPUs there are decides only values. */
export function conntrackNames(config: ConntrackConfig): readonly string[] {
  return conntrackSettings(config, 1).map(({ name }) => name);
}

/** Entries the table should hold; 0 if the configuration leaves that alone. */
function maxEntries({ maxPerCore, min }: ConntrackConfig, cpuCount: number): number {
  if (maxPerCore <= 0) return 0;
  const scaled = maxPerCore * cpuCount;
  return scaled > MAX_SCALED_ENTRIES ? MAX_SCALED_ENTRIES : Math.max(scaled, min);
}

/** A setting that is not as wanted. */
export interface RefusedSetting {
  readonly name: string;
  readonly wanted: number;
  /** Null if this kernel does not have it, or it cannot be read. */
  readonly found: string | null;
  readonly problem: string;
}

/**
 * Reads the settings and writes those that differ. One that it cannot read or write is a warning, whatever the reason (a
 * read-only `/proc/sys` or `/sys`, a network namespace that shares its host's table, a missing right): limits that are too low
 * hurt later, if at all, and no rules hurt now.
 *
 * @param sysctls where some of them may have been read before
 * @returns the settings that are not as wanted
 */
export async function applyConntrackSettings(
  exec: Exec,
  settings: readonly ConntrackSetting[],
  log: Logger,
  sysctls: NodeSysctls,
): Promise<readonly RefusedSetting[]> {
  const names = settings.map(({ name }) => name);
  const found = await readEach(exec, names, sysctls);
  const changes = settings.flatMap((setting) => {
    const { name, value } = setting;
    const before = found.get(name);
    const differs = typeof before === "string" && !isAsWanted(setting, before);
    return differs ? [{ name, found: before, value: String(value) }] : [];
  });
  const outcomes = await changeSysctls(exec, changes);
  sysctls.forget(names);
  const outcomeOf = new Map(changes.map(({ name }, index) => [name, outcomes[index]]));
  const refused: RefusedSetting[] = [];
  for (const { name, value } of settings) {
    const before = found.get(name) ?? null;
    const outcome = outcomeOf.get(name);
    if (outcome?.kind === "changed") log.info("Set sysctl", { name, value, before: outcome.found });
    const problem = problemOf(before, outcome);
    if (problem === null) continue;
    const refusal = { name, wanted: value, found: before instanceof ExecError ? null : before, problem };
    refused.push(refusal);
    log.warn("Cannot set sysctl, the node may run out of tracked connections or end them at other times", {
      ...refusal,
      found: refusal.found ?? undefined,
    });
  }
  return refused;
}

/** The value of a setting; null if this kernel does not have it; the error if it cannot be read. */
type Found = string | null | ExecError;

/** Reads settings by one program; one by one if there is none, or a setting cannot be read. */
async function readEach(
  exec: Exec,
  names: readonly string[],
  sysctls: NodeSysctls,
): Promise<ReadonlyMap<string, Found>> {
  try {
    if (sysctls.known) return await sysctls.read(names);
  } catch (error) {
    orThrow(error);
  }
  const found = new Map<string, Found>();
  for (const name of names) {
    found.set(name, await readSysctls(exec, [name]).then((one) => one.get(name) ?? null, orThrow));
  }
  return found;
}

function orThrow(error: unknown): ExecError {
  if (error instanceof ExecError) return error;
  throw error;
}

/** True if the setting need not be written. */
export function isAsWanted({ value, atLeast }: ConntrackSetting, found: string): boolean {
  return atLeast ? Number(found) >= value : Number(found) === value;
}

/** Why a setting is not as wanted; null if it is now. */
function problemOf(found: Found, outcome: SysctlOutcome | undefined): string | null {
  if (found === null) return "this kernel does not have it, or not loaded it";
  const told = found instanceof ExecError ? { error: found } : outcome;
  if (told === undefined || !("error" in told)) return null;
  const { error } = told;
  return error.isMissing() ? error.message : error.stderr;
}
