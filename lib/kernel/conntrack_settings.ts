/**
 * Makes sure of the kernel settings of connection tracking.
 *
 * @module
 */
import type { ConntrackSetting } from "../conntrack/settings.ts";
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import type { Exec } from "./exec.ts";
import { ensureSysctl, readSysctl } from "./sysctl.ts";

/** A setting that is not as wanted. */
export interface RefusedSetting {
  readonly name: string;
  readonly wanted: number;
  /** Null if this kernel does not have it, or it cannot be read. */
  readonly found: string | null;
  readonly problem: string;
}

/**
 * Reads each setting and writes it only if it differs. What cannot be read or written is a warning, whatever the reason (a
 * read-only `/proc/sys` or `/sys`, a network namespace that shares its host's table, a missing right): limits that are too low
 * hurt later, if at all, and no rules hurt now.
 *
 * @returns the settings that are not as wanted
 */
export async function applyConntrackSettings(
  exec: Exec,
  settings: readonly ConntrackSetting[],
  log: Logger,
): Promise<readonly RefusedSetting[]> {
  const refused: RefusedSetting[] = [];
  for (const setting of settings) {
    const refusal = await applySetting(exec, setting, log);
    if (refusal === null) continue;
    refused.push(refusal);
    log.warn("Cannot set sysctl, the node may run out of tracked connections or end them at other times", {
      name: refusal.name,
      wanted: refusal.wanted,
      found: refusal.found ?? undefined,
      problem: refusal.problem,
    });
  }
  return refused;
}

async function applySetting(
  exec: Exec,
  { name, value, atLeast }: ConntrackSetting,
  log: Logger,
): Promise<RefusedSetting | null> {
  let found: string | null = null;
  try {
    found = await readSysctl(exec, name);
    if (found === null) {
      return { name, wanted: value, found, problem: "this kernel does not have it, or not loaded it" };
    }
    if (atLeast && Number(found) >= value) return null;
    const outcome = await ensureSysctl(exec, name, String(value));
    if (outcome.kind === "changed") log.info("Set sysctl", { name, value, before: outcome.found });
    return outcome.kind === "readOnly" ? { name, wanted: value, found, problem: outcome.message } : null;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    return { name, wanted: value, found, problem: error.isMissing() ? error.message : error.stderr };
  }
}
