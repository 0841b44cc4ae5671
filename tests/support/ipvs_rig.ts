/**
 * A proxier of IPVS mode on a fake kernel, with a clock that the test moves.
 *
 * @module
 */
import type { ApplyReport } from "../../lib/backend/backend.ts";
import { IpvsProxier, SchedulerProbe } from "../../lib/backend/ipvs/apply/proxier.ts";
import { GracefulTermination } from "../../lib/backend/ipvs/apply/graceful_termination.ts";
import { type Clock, Mutex } from "../../lib/kernel/clock.ts";
import { Ipvsadm } from "../../lib/kernel/ipvsadm.ts";
import { nodePortAddresses } from "../../lib/model/node.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import type { Changed, ProxyState } from "../../lib/model/state.ts";
import type { DeviceAddress } from "../../lib/netfilter/ip_batch.ts";
import { type Logger, silentLogger } from "../../lib/observe/log.ts";
import { FakeIpvs } from "./fake_ipvs.ts";
import { exampleIpvsOptions } from "./golden_ipvs.ts";
import { syncRequest } from "./nftables_rig.ts";

const { nodePortIps: _1, hostIps: _2, schedulers: _3, ...OPTIONS } = exampleIpvsOptions(
  "IPv4",
);

/** A proxier and its kernel. */
export interface IpvsRig {
  readonly fake: FakeIpvs;
  readonly proxier: IpvsProxier;
  /** Addresses of the node; a test may change them. */
  readonly own: string[];
  readonly clock: { nowMs: number };
  /** Syncs the named Services, by default of namespace `shop` (all without names), to these objects. */
  sync(objects: readonly ApiObject[], changed?: readonly string[]): Promise<ApplyReport>;
  syncState(state: ProxyState, changed: Changed): Promise<ApplyReport>;
}

/** Options of a rig. */
export interface IpvsRigOptions {
  readonly cheapToList?: number;
  readonly log?: Logger;
}

/** A proxier on a new kernel, or on one that another proxier left. Nothing happens between syncs. */
export function ipvsRig(
  fake = new FakeIpvs(),
  { cheapToList, log = silentLogger }: IpvsRigOptions = {},
): IpvsRig {
  const own = ["192.0.2.10"];
  const clock = { nowMs: 0 };
  const ipvs = new Ipvsadm(fake);
  const mutex = new Mutex();
  const nodeClock: Clock = { nowMs: () => 0, sleep: () => new Promise(() => {}) };
  const proxier = new IpvsProxier({
    exec: fake,
    ipvs,
    terminations: new GracefulTermination({ ipvs, clock: nodeClock, log, deadlineMs: 0, mutex }),
    mutex,
    iptables: fake.iptables("IPv4"),
    schedulers: new SchedulerProbe(ipvs, "rr"),
    settings: { ...OPTIONS, nodePortAddresses: nodePortAddresses("IPv4", null) },
    deviceAddresses: () =>
      own.map((address): DeviceAddress => ({
        device: "eth0",
        family: "IPv4",
        address,
        prefixLength: 24,
        scope: "global",
      })),
    ...cheapToList === undefined ? {} : { cheapToList },
    log,
    nowMs: () => clock.nowMs,
  });
  return {
    fake,
    proxier,
    own,
    clock,
    sync: (objects, changed) => proxier.sync(syncRequest(objects, changed)),
    syncState: (state, changed) => proxier.sync({ state, changed }),
  };
}

/** Whole kernel state, without real servers that are being drained. */
export function standing({ kernel }: FakeIpvs): unknown {
  const snapshot = kernel.snapshot() as { readonly servers: readonly string[] };
  return { ...snapshot, servers: snapshot.servers.filter((line) => !line.endsWith(" -w 0")) };
}
