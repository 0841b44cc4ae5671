/**
 * Repairs kproxy's own rules: writes all rules of the damaged families.
 *
 * @module
 */
import type { Modes } from "../../backend/node/choose_mode.ts";
import { MODES } from "../../backend/node/registry.ts";
import { selectedPeriods } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import type { Exec } from "../../kernel/exec.ts";
import { splitHostPort } from "../../model/ip.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import { addressHolder } from "../../serve/http_get.ts";
import type { StatusDocument } from "../../serve/status/status_document.ts";
import { type DesiredInput, portalName, portsByName, type RulesMode } from "../desired/desired.ts";
import { type AskOptions, NotRunningError, RunningKproxy } from "../running/running.ts";
import { writeRules } from "../write_rules.ts";
import type { FamilyCheck } from "./check.ts";

export type RepairLeave =
  | { readonly isAllowed: true; readonly note: string | null }
  | { readonly isAllowed: false; readonly reason: string };

/** Whether `--repair` may write: asks the proxy that runs here whether it repairs damage itself. */
export async function repairLeave(
  config: KubeProxyConfiguration,
  mode: RulesMode,
  options: AskOptions = {},
): Promise<RepairLeave> {
  try {
    const running = new RunningKproxy(config.kproxy.socket, options);
    return leaveBeside(await running.status(), running.address, config, mode);
  } catch (error) {
    if (!(error instanceof NotRunningError)) throw error;
    if (error.reason === "nothing" || error.reason === "no address") return await leaveBesideOthers(config);
    return {
      isAllowed: false,
      reason:
        `a kproxy may run here, and it is not known whether it fixes its rules itself: ${error.message}`,
    };
  }
}

/** What answers at a port may be any user's program. It is not trusted, but it suffices to leave rules alone. */
async function leaveBesideOthers({ metricsBindAddress }: KubeProxyConfiguration): Promise<RepairLeave> {
  if (metricsBindAddress === "") return { isAllowed: true, note: null };
  const [host, port] = splitHostPort(metricsBindAddress);
  const holder = await addressHolder({ host, port, signal: new AbortController().signal });
  if (!holder.startsWith("another proxy")) return { isAllowed: true, note: null };
  return {
    isAllowed: false,
    reason:
      `on ${metricsBindAddress} ${holder}; it is not known whether that one fixes its rules itself: end it first`,
  };
}

export function leaveBeside(
  { mode: { used }, families, drift }: Pick<StatusDocument, "mode" | "families" | "drift">,
  address: string,
  config: KubeProxyConfiguration,
  mode: RulesMode,
): RepairLeave {
  const who = `the kproxy on ${address}`;
  if (used !== mode) {
    return {
      isAllowed: false,
      reason: `${who} runs mode ${used}, and rules of mode ${mode} were asked for`,
    };
  }
  for (const [family, { lastSync, lastFailure }] of Object.entries(families)) {
    if (lastFailure === null || (lastSync !== null && lastSync.time > lastFailure.time)) continue;
    const note = `${who} does not fix it: its last sync of ${family} failed: ${lastFailure.error}`;
    return { isAllowed: true, note };
  }
  const last = drift.recent.at(-1);
  if (last?.outcome === "lasting") {
    const note = `${who} does not fix it: it has tried, and ${last.damaged.join(", ")} stayed damaged`;
    return { isAllowed: true, note };
  }
  const seconds = selectedPeriods(config, mode).syncPeriod / 1000;
  return {
    isAllowed: false,
    reason: `${who} looks at its rules every ${seconds} s and fixes them itself: look again after that`,
  };
}

export interface RepairInput {
  readonly exec: Exec;
  readonly mode: RulesMode;
  readonly desired: DesiredInput;
  readonly checks: readonly FamilyCheck[];
  readonly log: Logger;
  /** Mode implementations. @default those of this release */
  readonly modes?: Modes | undefined;
}

export interface Repaired {
  readonly families: readonly IpFamily[];
  readonly refused: readonly { readonly service: string; readonly problem: string }[];
}

/** Differences in other programs' rules, which are not repaired. */
const OTHERS: ReadonlySet<string> = new Set(["foreign", "otherMode"]);

export function damagedFamilies(checks: readonly FamilyCheck[]): readonly IpFamily[] {
  return checks.filter(({ base, services, leftovers }) =>
    [...base, ...leftovers, ...[...services.values()].flat()].some(({ kind }) => !OTHERS.has(kind))
  ).map(({ family }) => family);
}

/** In mode userspace rules lead to ports of the running kproxy: no port is opened here. */
function modesFor(mode: RulesMode, { portals }: DesiredInput): Modes {
  if (mode !== "userspace") return MODES;
  const known = new Map(FAMILIES.map((family) => [family, portsByName(portals, family)]));
  return new Map([["userspace", async (context) => {
    const { prepareBesideAnother } = await import("../../backend/userspace/node/preflight.ts");
    return await prepareBesideAnother(
      context,
      (family, { text, protocol, policy }) => known.get(family)?.get(portalName(text, protocol, policy)),
    );
  }]]);
}

/**
 * Writes the rules of damaged families. Rules of other programs and other modes stay.
 *
 * @throws {UnsupportedError} if the node cannot run the mode, or rights are missing
 * @throws {SyncError} if the rules could not be written
 */
export async function repair(
  { exec, mode, desired, checks, log, modes = modesFor(mode, desired) }: RepairInput,
): Promise<Repaired> {
  const families = damagedFamilies(checks);
  if (families.length === 0) return { families, refused: [] };
  const kproxy = { ...desired.config.kproxy, proxyModeFallback: false };
  const config: KubeProxyConfiguration = { ...desired.config, mode, kproxy };
  const written = await writeRules({ exec, config, modes, desired, families, log });
  for (const { error } of written.failures) throw error;
  return { families: written.families, refused: written.quarantined };
}
