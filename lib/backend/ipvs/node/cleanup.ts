/**
 * What IPVS mode leaves behind: virtual servers, the device with their addresses, sets. Virtual servers of others stay unless it is asked
 * to remove all, sets as long as a rule uses them.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { deleteDevice, type Devices, readDevices, runIpBatch } from "../../../kernel/ip_address.ts";
import { destroySets, isSetInUse, listSets, saveSets } from "../../../kernel/ipset.ts";
import { ipvsAbsence, Ipvsadm, isWithoutIpvs } from "../../../kernel/ipvsadm.ts";
import { parseCidr } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { deleteAddressLine, deleteLinkLine } from "../../../netfilter/ip_batch.ts";
import { SET_TYPES } from "../../../netfilter/ipset.ts";
import {
  deleteVirtualServerLine,
  type IpvsTable,
  type VirtualServer,
  virtualServerKey,
} from "../../../netfilter/ipvs.ts";
import type {
  CleanupContext,
  KeptLeftover,
  Leftover,
  LeftoverFailure,
  ModeCleanup,
} from "../../node/cleanup.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { FIREWALL_JUMP_COMMENT, growingSetName, PROBE_CHAIN, probeSetName, setNames } from "../plan/sets.ts";
import { hostIps } from "../plan/settings.ts";
import { isOurs } from "../store/objects.ts";

const SERVERS = "IPVS virtual servers";

/** The shortest wait for connections that are being made, which are not counted. */
const SETTLE_MS = 1_000;
const DRAIN_POLL_MS = 250;

export const IPVS_CLEANUP: ModeCleanup = {
  mode: "ipvs",
  tellsApart: [],
  chains: {
    // KUBE-FIREWALL in nat is of kube-proxy before 1.24; kubelet's chain of this name is in filter.
    nat: ["KUBE-FIREWALL", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"],
    filter: [
      "KUBE-IPVS-FILTER",
      "KUBE-IPVS-OUT-FILTER",
      "KUBE-NODE-PORT",
      "KUBE-SOURCE-RANGES-FIREWALL",
      PROBE_CHAIN,
    ],
    mangle: [],
  },
  jumpComments: [FIREWALL_JUMP_COMMENT],
  removeOthers: async (context) => {
    const report: Report = { removed: [], kept: [], failed: [] };
    const own = new Set(context.families.flatMap(ownSetNames));
    const listed = await attempt(report, "ipset", () => listSets(context.exec)) ?? [];
    const sets = listed.filter((name) => own.has(name));
    await removeServersAndAddresses(context, sets, report);
    // They tell which servers are ours, so they go last.
    if (sets.length > 0) await attempt(report, "ipset", () => removeSets(context, sets, report));
    return report;
  },
};

/** What was done so far. */
interface Report {
  readonly removed: Leftover[];
  readonly kept: KeptLeftover[];
  readonly failed: LeftoverFailure[];
}

/** Undefined: it failed, which is reported. */
async function attempt<T>({ failed }: Report, place: string, work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    failed.push({ place, error });
    return undefined;
  }
}

/** Sets that a family may have, those that are there for a moment among them. */
function ownSetNames(family: IpFamily): readonly string[] {
  return [
    ...setNames(family),
    growingSetName(family),
    ...SET_TYPES.map((type) => probeSetName(type, family)),
  ];
}

async function removeServersAndAddresses(
  context: CleanupContext,
  sets: readonly string[],
  report: Report,
): Promise<void> {
  const devices = await findDevices(context, report);
  const kind = devices.kinds.get(DEVICE);
  if (kind !== undefined && kind !== "dummy") {
    const message = `the device is of kind ${kind || "hardware"}, not dummy: it is not a proxy's`;
    report.failed.push({ place: DEVICE, error: new Error(message) });
  }
  // Asking loads the module, which most nodes do not want: so only where there are signs.
  const hasSigns = kind !== undefined || sets.length > 0;
  if (hasSigns || context.flushIpvs === true) {
    const removed = await attempt(report, "ipvs", () => removeServers(context, devices));
    // An address without its servers would be refused by this node.
    if (removed === undefined) return;
    report.removed.push(...removed);
  }
  if (kind !== "dummy") return;
  report.removed.push(...await attempt(report, DEVICE, () => removeAddresses(context, devices)) ?? []);
}

async function findDevices({ exec }: CleanupContext, report: Report): Promise<Devices> {
  try {
    return await readDevices(exec);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    if (!error.isMissing()) report.failed.push({ place: DEVICE, error });
    return { kinds: new Map(), addresses: [] };
  }
}

async function removeServers(
  context: CleanupContext,
  { kinds, addresses }: Devices,
): Promise<readonly Leftover[]> {
  const { exec, families, dryRun, flushIpvs, excludeCidrs = [] } = context;
  const ipvs = new Ipvsadm(exec);
  const isDeviceOurs = kinds.get(DEVICE) === "dummy";
  const table = await readTable(ipvs, isDeviceOurs);
  if (table === null) return [];
  const servers = [...table.virtualServers.values()].map(({ server }) => server);
  if (flushIpvs === true) {
    if (!dryRun) await ipvs.flush();
    const others = table.otherLines.filter((line) => line.startsWith("-A "))
      .map((line) => line.replace(/^-A (\S+ \S+).*/, "-D $1"));
    return [...servers.map(deleteVirtualServerLine), ...others].map(leftoverServer);
  }
  const onDevice = addresses.filter(({ device }) => device === DEVICE).map(({ address }) => address);
  const held = { addresses: isDeviceOurs ? new Set(onDevice) : null, sets: await readSets(context) };
  const excludeCIDRs = excludeCidrs.flatMap((text) => parseCidr(text) ?? []);
  const ours = families.flatMap((family) => {
    const ownership = { family, hostIps: hostIps(family, addresses), excludeCIDRs };
    return servers.filter((server) => isOurs(server, held, ownership));
  });
  if (!dryRun && ours.length > 0) {
    await drain(ipvs, ours, context);
    await ipvs.restore(ours.map(deleteVirtualServerLine));
  }
  return ours.map(deleteVirtualServerLine).map(leftoverServer);
}

/** Null if there are no virtual servers because there is no IPVS. */
async function readTable(ipvs: Ipvsadm, isDeviceOurs: boolean): Promise<IpvsTable | null> {
  try {
    return await ipvs.save();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // A device of ours says that there have been servers, which cannot be listed without the program.
    if (isWithoutIpvs(error) || (error.isMissing() && !isDeviceOurs)) return null;
    throw ipvsAbsence(error) ?? error;
  }
}

async function readSets({ exec, families }: CleanupContext): Promise<Awaited<ReturnType<typeof saveSets>>> {
  const own = new Set(families.flatMap(setNames));
  try {
    return await saveSets(exec, (name) => own.has(name));
  } catch (error) {
    // Without the program or the kernel's part of it there are none.
    if (error instanceof ExecError) return new Map();
    throw error;
  }
}

/** Waits for connections to these servers to end: a client that has begun one before another mode took over finishes it here. */
async function drain(
  ipvs: Ipvsadm,
  servers: readonly VirtualServer[],
  { drain }: CleanupContext,
): Promise<void> {
  if (drain === undefined) return;
  const keys = new Set(servers.map(virtualServerKey));
  const { clock, limitMs } = drain;
  const startMs = clock.nowMs();
  await clock.sleep(Math.min(SETTLE_MS, limitMs));
  while (clock.nowMs() - startMs < limitMs && await hasConnections(ipvs, keys)) {
    await clock.sleep(DRAIN_POLL_MS);
  }
}

async function hasConnections(ipvs: Ipvsadm, keys: ReadonlySet<string>): Promise<boolean> {
  const loads = await ipvs.loads();
  return [...keys].some((key) =>
    loads.get(key)?.realServers.values().some(({ activeConnections }) => activeConnections > 0)
  );
}

async function removeAddresses(
  { exec, families, dryRun }: CleanupContext,
  { addresses }: Devices,
): Promise<readonly Leftover[]> {
  const onDevice = addresses.filter(({ device }) => device === DEVICE);
  const lines = onDevice.filter(({ family }) => families.includes(family))
    .map(({ address }) => deleteAddressLine(DEVICE, address));
  const leftovers = lines.map((command) => ({ place: DEVICE, command, kind: `addresses of ${DEVICE}` }));
  if (lines.length === onDevice.length) {
    if (!dryRun) await deleteDevice(exec, DEVICE);
    return [...leftovers, { place: DEVICE, command: deleteLinkLine(DEVICE), kind: "devices" }];
  }
  if (!dryRun && lines.length > 0) await runIpBatch(exec, lines);
  return leftovers;
}

async function removeSets(
  { exec, dryRun }: CleanupContext,
  names: readonly string[],
  report: Report,
): Promise<void> {
  const stay = dryRun ? new Set() : await destroyAll(exec, names, report);
  report.removed.push(...names.filter((name) => !stay.has(name)).map(leftoverSet));
}

/** Resolves to those that stay. */
async function destroyAll(
  exec: Exec,
  names: readonly string[],
  report: Report,
): Promise<ReadonlySet<string>> {
  const stay = new Set<string>();
  try {
    await destroySets(exec, names);
    return stay;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // One of them is in the way; the others go one by one.
  }
  const left = new Set(await listSets(exec));
  for (const name of names.filter((one) => left.has(one))) {
    try {
      await destroySets(exec, [name]);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      stay.add(name);
      const { place, command } = leftoverSet(name);
      if (isSetInUse(error)) report.kept.push({ place, command, reason: "a rule still uses this set" });
      else report.failed.push({ place, error });
    }
  }
  return stay;
}

function leftoverSet(name: string): Leftover {
  return { place: "ipset", command: `destroy ${name}`, kind: "sets of ipset" };
}

function leftoverServer(command: string): Leftover {
  return { place: "ipvs", command, kind: SERVERS };
}
