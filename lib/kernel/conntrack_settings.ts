/**
 * Makes sure of the kernel settings of connection tracking.
 *
 * @module
 */
import type { ConntrackSetting } from "../conntrack/settings.ts";
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import type { Exec } from "./exec.ts";
import { changeSysctls, type NodeSysctls, readSysctl, type SysctlOutcome } from "./sysctl.ts";

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

/** The value; null if this kernel does not have it; why it cannot be read. */
type Found = string | null | ExecError;

/** By one program; one by one if there is none, or a setting cannot be read. */
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
  for (const name of names) found.set(name, await readSysctl(exec, name).catch(orThrow));
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

/** Null if it is as wanted now. */
function problemOf(found: Found, outcome: SysctlOutcome | undefined): string | null {
  if (found === null) return "this kernel does not have it, or not loaded it";
  const told = found instanceof ExecError ? { error: found } : outcome;
  if (told === undefined || !("error" in told)) return null;
  const { error } = told;
  return error.isMissing() ? error.message : error.stderr;
}
