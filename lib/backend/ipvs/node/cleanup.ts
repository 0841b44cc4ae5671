/**
 * Leftovers of IPVS mode: virtual servers, the device with their addresses, sets. Virtual servers of others
 * stay unless it is asked to remove all, sets as long as a rule uses them.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import { deleteDevice, type Devices, readDevices, runIpBatch } from "../../../kernel/ip_address.ts";
import { destroySets, isSetInUse, listSets, saveSets } from "../../../kernel/ipset.ts";
import { ipvsAbsence, Ipvsadm, isWithoutIpvs } from "../../../kernel/ipvsadm.ts";
import { parseCidr } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { deleteAddressLine, deleteLinkLine, type DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { SET_TYPES } from "../../../netfilter/ipset.ts";
import { deleteVirtualServerLine, type VirtualServer, virtualServerKey } from "../../../netfilter/ipvs.ts";
import type {
  CleanupContext,
  KeptLeftover,
  Leftover,
  LeftoverFailure,
  LeftoverReport,
  ModeCleanup,
} from "../../node/cleanup.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { FIREWALL_JUMP_COMMENT, growingSetName, PROBE_CHAIN, probeSetName, setNames } from "../plan/sets.ts";
import { hostIps } from "../plan/plan.ts";
import { diffObjects, type HeldObjects, type WantedObjects } from "../store/objects.ts";

const SERVERS = "IPVS virtual servers";

/** The shortest wait for connections that are being made, which are not counted. */
const SETTLE_MS = 1_000;
const DRAIN_POLL_MS = 250;

export const IPVS_CLEANUP: ModeCleanup = {
  mode: "ipvs",
  distinct: [],
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
  removeOthers: (context) => new Cleanup(context).run(),
};

const NO_DEVICES: Devices = { kinds: new Map(), addresses: [] };

/** Removes leftovers, and records which were removed, which stay and which failed. */
class Cleanup {
  readonly #context: CleanupContext;
  readonly #removed: Leftover[] = [];
  readonly #kept: KeptLeftover[] = [];
  readonly #failed: LeftoverFailure[] = [];

  constructor(context: CleanupContext) {
    this.#context = context;
  }

  async run(): Promise<LeftoverReport> {
    const { exec, families } = this.#context;
    const own = new Set(families.flatMap(ownSetNames));
    const sets = (await this.#attempt("ipset", () => listSets(exec)) ?? []).filter((name) => own.has(name));
    const devices =
      await this.#attempt(DEVICE, () => readDevices(exec).catch(orElse(NO_DEVICES, isMissing))) ??
        NO_DEVICES;
    await this.#removeServersAndAddresses(devices, sets.length > 0);
    // Sets show which servers are ours, so they go last.
    if (sets.length > 0) await this.#attempt("ipset", () => this.#removeSets(sets));
    return { removed: this.#removed, kept: this.#kept, failed: this.#failed };
  }

  /** Result of `work`; undefined: it failed, which is reported. */
  async #attempt<T>(place: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      this.#failed.push({ place, error });
      return undefined;
    }
  }

  async #removeServersAndAddresses(devices: Devices, hasSets: boolean): Promise<void> {
    const kind = devices.kinds.get(DEVICE);
    if (kind !== undefined && kind !== "dummy") {
      const message = `the device is of kind ${kind || "hardware"}, not dummy: it is not a proxy's`;
      this.#failed.push({ place: DEVICE, error: new Error(message) });
    }
    // Asking loads the module, which most nodes do not want: so only where there are signs.
    if (kind !== undefined || hasSets || this.#context.flushIpvs === true) {
      const removed = await this.#attempt("ipvs", () => this.#removeServers(devices));
      // An address without its servers would be refused by this node.
      if (removed === undefined) return;
      const leftover = (command: string): Leftover => ({ place: "ipvs", command, kind: SERVERS });
      this.#removed.push(...removed.map(leftover));
    }
    if (kind === "dummy") await this.#attempt(DEVICE, () => this.#removeAddresses(devices));
  }

  /** @returns the commands that would do the same */
  async #removeServers({ kinds, addresses }: Devices): Promise<readonly string[]> {
    const { exec, families, dryRun, flushIpvs, excludeCidrs = [] } = this.#context;
    const ipvs = new Ipvsadm(exec);
    const isDeviceOurs = kinds.get(DEVICE) === "dummy";
    // A device of ours says that there have been servers, which cannot be listed without the program.
    const table = await ipvs.save().catch(
      orElse(null, (error) => isWithoutIpvs(error) || (error.isMissing() && !isDeviceOurs)),
    );
    if (table === null) return [];
    const { virtualServers, otherLines } = table;
    if (flushIpvs === true) {
      if (!dryRun) await ipvs.flush();
      const others = otherLines.filter((line) => line.startsWith("-A "))
        .map((line) => line.replace(/^-A (\S+ \S+).*/, "-D $1"));
      return [...virtualServers.values().map(({ server }) => deleteVirtualServerLine(server)), ...others];
    }
    const names = new Set(families.flatMap(setNames));
    const held: HeldObjects = {
      addresses: isDeviceOurs ? new Set(onDevice(addresses).map(({ address }) => address)) : null,
      virtualServers,
      // Without the program or the kernel's part of it there are none.
      sets: await saveSets(exec, (name) => names.has(name)).catch(orElse(new Map(), () => true)),
    };
    const excludeCIDRs = excludeCidrs.flatMap((text) => parseCidr(text) ?? []);
    const ours = families.flatMap((family) => {
      const ownership = { family, hostIps: hostIps(family, addresses), excludeCIDRs };
      return diffObjects(nothingWanted(family), held, ownership).servers.map(({ server }) => server);
    });
    const lines = ours.map(deleteVirtualServerLine);
    if (!dryRun && ours.length > 0) {
      await drain(ipvs, ours, this.#context);
      await ipvs.restore(lines);
    }
    return lines;
  }

  async #removeAddresses({ addresses }: Devices): Promise<void> {
    const { exec, families, dryRun } = this.#context;
    const all = onDevice(addresses);
    const lines = all.filter(({ family }) => families.includes(family))
      .map(({ address }) => deleteAddressLine(DEVICE, address));
    const leftovers = lines.map((command) => ({ place: DEVICE, command, kind: `addresses of ${DEVICE}` }));
    if (lines.length === all.length) {
      if (!dryRun) await deleteDevice(exec, DEVICE);
      leftovers.push({ place: DEVICE, command: deleteLinkLine(DEVICE), kind: "devices" });
    } else if (!dryRun && lines.length > 0) await runIpBatch(exec, lines);
    this.#removed.push(...leftovers);
  }

  /** Removes sets together, or one by one if one of them cannot be removed. */
  async #removeSets(names: readonly string[]): Promise<void> {
    const { exec, dryRun } = this.#context;
    const areGone = dryRun ||
      await destroySets(exec, names).then(() => true, orElse(false, () => true));
    const left = areGone ? [] : await listSets(exec);
    for (const name of names) {
      const leftover = { place: "ipset", command: `destroy ${name}`, kind: "sets of ipset" };
      try {
        if (left.includes(name)) await destroySets(exec, [name]);
        this.#removed.push(leftover);
      } catch (error) {
        if (!(error instanceof ExecError)) throw error;
        const { place, command } = leftover;
        if (isSetInUse(error)) this.#kept.push({ place, command, reason: "a rule still uses this set" });
        else this.#failed.push({ place, error });
      }
    }
  }
}

/** Value for failures of a program that mean that there is nothing; other failures are thrown. */
function orElse<T>(value: T, isFine: (error: ExecError) => boolean): (error: unknown) => T {
  return (error) => {
    if (!(error instanceof ExecError)) throw error;
    if (isFine(error)) return value;
    throw ipvsAbsence(error) ?? error;
  };
}

function isMissing(error: ExecError): boolean {
  return error.isMissing();
}

function onDevice(addresses: readonly DeviceAddress[]): readonly DeviceAddress[] {
  return addresses.filter(({ device }) => device === DEVICE);
}

/** Names of sets that a family may have, temporary ones included. */
function ownSetNames(family: IpFamily): readonly string[] {
  return [
    ...setNames(family),
    growingSetName(family),
    ...SET_TYPES.map((type) => probeSetName(type, family)),
  ];
}

function nothingWanted(family: IpFamily): WantedObjects {
  return { family, sets: [], servers: [], addresses: [] };
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
  const isBusy = async (): Promise<boolean> =>
    (await ipvs.loads()).entries().some(([key, { realServers }]) =>
      keys.has(key) && realServers.values().some(({ activeConnections }) => activeConnections > 0)
    );
  await clock.sleep(Math.min(SETTLE_MS, limitMs));
  while (clock.nowMs() - startMs < limitMs && await isBusy()) await clock.sleep(DRAIN_POLL_MS);
}
