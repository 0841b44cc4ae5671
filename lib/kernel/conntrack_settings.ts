/**
 * Makes sure of the kernel settings of connection tracking.
 *
 * @module
 */
import type { ConntrackSetting } from "../conntrack/settings.ts";
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import type { Exec } from "./exec.ts";
import type { NodeSysctls } from "./node_sysctls.ts";
import { changeSysctl, readSysctl, writeSysctls } from "./sysctl.ts";

/** A setting that is not as wanted. */
export interface RefusedSetting {
  readonly name: string;
  readonly wanted: number;
  /** Null if this kernel does not have it, or it cannot be read. */
  readonly found: string | null;
  readonly problem: string;
}

/**
 * Reads the settings and writes those that differ. What cannot be read or written is a warning, whatever the reason (a
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
  const refused: RefusedSetting[] = [];
  const known = await readAll(sysctls, settings.map(({ name }) => name));
  const written = await writeTogether(exec, settings, known);
  sysctls.forget(settings.map(({ name }) => name));
  for (const setting of settings) {
    if (written.has(setting)) {
      log.info("Set sysctl", { name: setting.name, value: setting.value, before: known.get(setting.name) });
      continue;
    }
    const refusal = await applySetting(exec, setting, { log, known });
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

/** All values by one program; empty if one of them cannot be read, so that each has to be read by itself. */
async function readAll(
  sysctls: NodeSysctls,
  names: readonly string[],
): Promise<ReadonlyMap<string, string | null>> {
  try {
    return await sysctls.read(names);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    return new Map();
  }
}

function isAsWanted({ value, atLeast }: ConntrackSetting, found: string): boolean {
  return atLeast ? Number(found) >= value : Number(found) === value;
}

/** Those that one program has written, in order; none if the kernel refuses one of them, which is told by writing one at a time. */
async function writeTogether(
  exec: Exec,
  settings: readonly ConntrackSetting[],
  known: ReadonlyMap<string, string | null>,
): Promise<ReadonlySet<ConntrackSetting>> {
  const wanted = settings.filter((setting) => {
    const found = known.get(setting.name) ?? null;
    return found !== null && !isAsWanted(setting, found);
  });
  if (wanted.length < 2) return new Set();
  const areWritten = await writeSysctls(
    exec,
    wanted.map(({ name, value }) => ({ name, value: String(value) })),
  );
  return new Set(areWritten ? wanted : []);
}

async function applySetting(
  exec: Exec,
  setting: ConntrackSetting,
  { log, known }: { readonly log: Logger; readonly known: ReadonlyMap<string, string | null> },
): Promise<RefusedSetting | null> {
  const { name, value } = setting;
  let found: string | null = null;
  try {
    const read = known.get(name);
    found = read === undefined ? await readSysctl(exec, name) : read;
    if (found === null) {
      return { name, wanted: value, found, problem: "this kernel does not have it, or not loaded it" };
    }
    if (isAsWanted(setting, found)) return null;
    const outcome = await changeSysctl(exec, name, { found, value: String(value) });
    if (outcome.kind === "changed") log.info("Set sysctl", { name, value, before: outcome.found });
    return outcome.kind === "readOnly" ? { name, wanted: value, found, problem: outcome.message } : null;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    return { name, wanted: value, found, problem: error.isMissing() ? error.message : error.stderr };
  }
}
