/**
 * Removes the virtual servers of IPVS mode and the addresses that lead to them; those of others stay unless it is asked to
 * remove all.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { deleteDevice, readDevices, runIpBatch } from "../../../kernel/ip_address.ts";
import { saveSets } from "../../../kernel/ipset.ts";
import { ipvsAbsence, Ipvsadm, isWithoutIpvs } from "../../../kernel/ipvsadm.ts";
import { parseCidr } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { deleteAddressLine, deleteLinkLine, type DeviceAddress } from "../../../netfilter/ip_batch.ts";
import {
  deleteVirtualServerLine,
  type IpvsTable,
  type VirtualServer,
  virtualServerKey,
} from "../../../netfilter/ipvs.ts";
import type { CleanupContext, Leftover, LeftoverFailure, LeftoverReport } from "../../node/cleanup.ts";
import { isOurs } from "../diff/diff_observed.ts";
import { DEVICE, type Observed } from "../plan/ruleset.ts";
import { setNames } from "../plan/sets.ts";
import { hostIps } from "../plan/settings.ts";

const SERVERS = "IPVS virtual servers";
const ADDRESSES = `addresses of ${DEVICE}`;
const DEVICES = "devices";

/** The shortest wait for connections that are being made, which nothing counts. */
const SETTLE_MS = 1_000;
const DRAIN_POLL_MS = 250;

/** Removes what there is of the families. `setNames`: all sets of the node. */
export async function cleanupServers(
  context: CleanupContext,
  setNames: readonly string[],
): Promise<LeftoverReport> {
  const removed: Leftover[] = [];
  const failed: LeftoverFailure[] = [];
  const attempt = async (place: string, work: () => Promise<readonly Leftover[]>): Promise<boolean> => {
    try {
      removed.push(...await work());
      return true;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      failed.push({ place, error });
      return false;
    }
  };
  const found = await findDevice(context, failed);
  // Asking loads the module, which most nodes do not want: so only where there are signs.
  const hasSigns = found.isThere || hasOwnSets(context, setNames);
  if (hasSigns || context.flushIpvs === true) {
    const done = await attempt("ipvs", () => removeServers(context, found));
    // An address without its servers would be refused by this node.
    if (!done) return { removed, kept: [], failed };
  }
  if (found.isOurs) await attempt(DEVICE, () => removeAddresses(context, found));
  return { removed, kept: [], failed };
}

interface FoundDevice {
  /** True if there is a device of the name, whatever it is. */
  readonly isThere: boolean;
  /** True if it is a dummy device. */
  readonly isOurs: boolean;
  /** Of all devices. */
  readonly addresses: readonly DeviceAddress[];
}

async function findDevice({ exec }: CleanupContext, failed: LeftoverFailure[]): Promise<FoundDevice> {
  try {
    const { kinds, addresses } = await readDevices(exec);
    const kind = kinds.get(DEVICE);
    if (kind !== undefined && kind !== "dummy") {
      const message = `the device is of kind ${kind || "hardware"}, not dummy: it is not a proxy's`;
      failed.push({ place: DEVICE, error: new Error(message) });
    }
    return { isThere: kind !== undefined, isOurs: kind === "dummy", addresses };
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    if (!error.isMissing()) failed.push({ place: DEVICE, error });
    return { isThere: false, isOurs: false, addresses: [] };
  }
}

function hasOwnSets({ families }: CleanupContext, names: readonly string[]): boolean {
  const own = new Set(families.flatMap(setNames));
  return names.some((name) => own.has(name));
}

async function removeServers(context: CleanupContext, found: FoundDevice): Promise<readonly Leftover[]> {
  const { exec, dryRun } = context;
  const ipvs = new Ipvsadm(exec);
  const table = await readTable(ipvs, found);
  if (table === null) return [];
  if (context.flushIpvs === true) {
    const all = [...table.virtualServers.values()].map(({ server }) => leftoverServer(server));
    if (!dryRun) await ipvs.flush();
    const others = table.otherLines.filter((line) => line.startsWith("-A "))
      .map((line) => ({ place: "ipvs", command: line.replace(/^-A (\S+ \S+).*/, "-D $1"), kind: SERVERS }));
    return [...all, ...others];
  }
  const ours: VirtualServer[] = [];
  for (const family of context.families) {
    const observed = await observedOf(context, family, found, table.virtualServers);
    const options = {
      family,
      hostIps: hostIps(family, found.addresses),
      excludeCIDRs: (context.excludeCidrs ?? []).flatMap((text) => parseCidr(text) ?? []),
    };
    for (const { server } of table.virtualServers.values()) {
      if (isOurs(server, observed, options)) ours.push(server);
    }
  }
  if (!dryRun && ours.length > 0) {
    await drain(ipvs, ours, context);
    await ipvs.restore(ours.map(deleteVirtualServerLine));
  }
  return ours.map(leftoverServer);
}

/** Null if there are no virtual servers because there is no IPVS. */
async function readTable(ipvs: Ipvsadm, { isOurs }: FoundDevice): Promise<IpvsTable | null> {
  try {
    return await ipvs.save();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // A device of ours says that there have been servers, which nobody can list without the program.
    if (isWithoutIpvs(error) || (error.isMissing() && !isOurs)) return null;
    throw ipvsAbsence(error) ?? error;
  }
}

async function observedOf(
  { exec }: CleanupContext,
  family: IpFamily,
  { isOurs, addresses }: FoundDevice,
  virtualServers: Observed["virtualServers"],
): Promise<Observed> {
  const own = new Set(setNames(family));
  const onDevice = addresses.filter(({ device }) => device === DEVICE).map(({ address }) => address);
  return {
    addresses: isOurs ? new Set(onDevice) : null,
    virtualServers,
    sets: await readSets(exec, own),
    tables: new Map(),
  };
}

async function readSets(exec: CleanupContext["exec"], own: ReadonlySet<string>): Promise<Observed["sets"]> {
  try {
    return await saveSets(exec, (name) => own.has(name));
  } catch (error) {
    // Without the program or the kernel's part of it there are none.
    if (error instanceof ExecError) return new Map();
    throw error;
  }
}

/** Waits for connections to these servers to end: whoever has begun one before another mode took over finishes it here. */
async function drain(
  ipvs: Ipvsadm,
  servers: readonly VirtualServer[],
  { drain }: CleanupContext,
): Promise<void> {
  if (drain === undefined) return;
  const keys = new Set(servers.map(virtualServerKey));
  const clock: Clock = drain.clock;
  const startMs = clock.nowMs();
  await clock.sleep(Math.min(SETTLE_MS, drain.limitMs));
  while (clock.nowMs() - startMs < drain.limitMs && await activeConnections(ipvs, keys) > 0) {
    await clock.sleep(DRAIN_POLL_MS);
  }
}

async function activeConnections(ipvs: Ipvsadm, keys: ReadonlySet<string>): Promise<number> {
  let count = 0;
  for (const [key, { realServers }] of await ipvs.loads()) {
    if (!keys.has(key)) continue;
    for (const { activeConnections } of realServers.values()) count += activeConnections;
  }
  return count;
}

async function removeAddresses(
  { exec, families, dryRun }: CleanupContext,
  { addresses }: FoundDevice,
): Promise<readonly Leftover[]> {
  const onDevice = addresses.filter(({ device }) => device === DEVICE);
  const going = onDevice.filter(({ family }) => families.includes(family));
  const leftovers: Leftover[] = going.map(({ address }) => ({
    place: DEVICE,
    command: deleteAddressLine(DEVICE, address),
    kind: ADDRESSES,
  }));
  if (going.length === onDevice.length) {
    if (!dryRun) await deleteDevice(exec, DEVICE);
    return [...leftovers, { place: DEVICE, command: deleteLinkLine(DEVICE), kind: DEVICES }];
  }
  if (!dryRun && going.length > 0) {
    await runIpBatch(exec, going.map(({ address }) => deleteAddressLine(DEVICE, address)));
  }
  return leftovers;
}

function leftoverServer(server: VirtualServer): Leftover {
  return { place: "ipvs", command: deleteVirtualServerLine(server), kind: SERVERS };
}
