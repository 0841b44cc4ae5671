/**
 * Brings one IP family into the kernel: everything once, then only what changes, with one start of each program at most; one more of
 * `ipvsadm` where Services name schedulers that were not tried yet.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { deviceAddresses, runIpBatch } from "../../kernel/ip_address.ts";
import { restoreSets, setSizes } from "../../kernel/ipset.ts";
import type { Iptables } from "../../kernel/iptables.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { Changed, ProxyState } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import type { Logger } from "../../observe/log.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../backend.ts";
import { describeProgramFailure, SyncPhases } from "../sync_phases.ts";
import {
  holdsAddresses,
  holdsEntries,
  holdsRules,
  holdsServer,
  holdsServers,
  rulesProbe,
} from "./apply_canary.ts";
import { observe, OBSERVE_COMMANDS } from "./apply_observe.ts";
import type { SchedulerProbe } from "./apply_schedulers.ts";
import type { IpvsNode } from "./apply_terminations.ts";
import { CommittedIpvs } from "./committed.ts";
import { diffIpvs } from "./diff.ts";
import { diffObserved } from "./diff_observed.ts";
import { planIpvs } from "./plan.ts";
import { renderOperations, stepText } from "./render.ts";
import {
  DEVICE,
  type IpvsOptions,
  type IpvsPlan,
  type Operations,
  type Step,
  type WantedServer,
} from "./ruleset.ts";
import { type ConfiguredIpvs, hostIps, nodePortIps } from "./settings.ts";

/** What an {@linkcode IpvsProxier} needs. */
export interface IpvsProxierOptions {
  readonly exec: Exec;
  readonly node: IpvsNode;
  readonly iptables: Iptables;
  readonly schedulers: SchedulerProbe;
  readonly settings: ConfiguredIpvs;
  /** Addresses of the node's devices, both families; asked before each sync. */
  readonly deviceAddresses: () => readonly DeviceAddress[];
  /** How many real servers each check may read on average. */
  readonly maxCheckedRealServers: number;
  readonly log: Logger;
}

/** What was written, per kind. */
type Written = Record<"filter" | "nat" | "servers" | "entries" | "addresses", number>;

/** What the node's devices mean for one family. */
interface DeviceIps extends Pick<IpvsOptions, "hostIps" | "nodePortIps"> {
  /** Differs if they do. */
  readonly key: string;
}

/**
 * What a check may read, taken over the long run: with twice as many real servers every second one reads them all, and so on. The
 * others look at one virtual server, which costs little: what takes one away mostly takes away the whole table.
 */
export const MAX_CHECKED_REAL_SERVERS = 20_000;

/** IPVS mode for one family. */
export class IpvsProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: IpvsProxierOptions;
  #settings: ConfiguredIpvs;
  /** Undefined until a full sync succeeded, and after a failure: then nobody knows what the kernel holds. */
  #committed: CommittedIpvs | undefined;
  /** Of the last sync that succeeded: its virtual servers are ours, also where their address is not the node's any more. */
  #known: CommittedIpvs | null = null;
  /** Counts syncs, so that a check can tell that one went on meanwhile. */
  #syncs = 0;
  /** What the node's devices made of the committed plan. */
  #committedIps = "";
  #told = new Set<string>();
  #checks = 0;
  /** What the samples of the checks come from, and those that had no turn yet. */
  #sampled: { readonly committed: CommittedIpvs; readonly rest: Iterator<WantedServer> } | undefined;
  readonly #phases: SyncPhases;

  constructor(options: IpvsProxierOptions) {
    this.#options = options;
    this.family = options.iptables.family;
    this.#phases = new SyncPhases("ipvs", this.family, describeProgramFailure);
    this.#settings = options.settings;
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: ConfiguredIpvs): boolean {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return false;
    this.#settings = settings;
    this.#committed = undefined;
    return true;
  }

  /**
   * Writes what differs: from what the kernel holds if that is not known or everything was asked for, else from what was written last.
   *
   * @throws {SyncError} if a program failed; its cause is the {@linkcode ExecError}
   */
  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.#options.node.exclusively(() => this.#sync(request));
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const committed = this.#committed;
    this.#committed = undefined;
    this.#syncs++;
    this.#phases.restart();
    return changed === "all" || committed === undefined
      ? await this.#syncAll(state)
      : await this.#syncChanged(state, changed, committed);
  }

  async #syncAll(state: ProxyState): Promise<ApplyReport> {
    const { exec, node, iptables } = this.#options;
    const observed = await this.#phases.run("read", () => observe({ exec, ipvs: node.ipvs, iptables }));
    node.observe(observed.virtualServers, this.family);
    const { plan, options, operations, commands } = await this.#phases.run("plan", async () => {
      const planned = await this.#plan(state, "all", this.#deviceIps());
      const { plan, options } = planned;
      return { ...planned, operations: diffObserved(plan, observed, options, this.#known) };
    });
    const { bytes, written } = await this.#write(operations);
    const committed = CommittedIpvs.of(plan);
    this.#commit(committed, options);
    return this.#report(OBSERVE_COMMANDS + commands + operations.steps.length, bytes, written, committed);
  }

  async #syncChanged(state: ProxyState, changed: Changed, committed: CommittedIpvs): Promise<ApplyReport> {
    const { plan, options, operations, commands } = await this.#phases.run("plan", async () => {
      // An address that the node gained or lost concerns every Service.
      const ips = this.#deviceIps();
      const planned = await this.#plan(state, ips.key === this.#committedIps ? changed : "all", ips);
      return { ...planned, operations: diffIpvs(planned.plan, committed) };
    });
    const { bytes, written } = await this.#write(operations);
    committed.apply(plan);
    this.#commit(committed, options);
    return this.#report(commands + operations.steps.length, bytes, written, committed);
  }

  #commit(committed: CommittedIpvs, { hostIps, nodePortIps }: IpvsOptions): void {
    this.#committed = committed;
    this.#known = committed;
    this.#committedIps = ipsKey(hostIps, nodePortIps);
  }

  /** Once per sync: the kernel lists every address of every device, those of all Services among them. */
  #deviceIps(): DeviceIps {
    const own = hostIps(this.family, this.#options.deviceAddresses());
    const serving = nodePortIps(this.#settings.nodePortAddresses, own);
    return { hostIps: own, nodePortIps: serving, key: ipsKey(own, serving) };
  }

  /** The plan, and how many programs were started for it. */
  async #plan(
    state: ProxyState,
    changed: Changed,
    { hostIps, nodePortIps }: DeviceIps,
  ): Promise<{ readonly plan: IpvsPlan; readonly options: IpvsOptions; readonly commands: number }> {
    const { iptables, log } = this.#options;
    const { schedulers, commands } = await this.#options.schedulers.usable(state, changed);
    const options: IpvsOptions = {
      ...this.#settings,
      hostIps,
      nodePortIps,
      randomFully: iptables.hasRandomFully(),
      schedulers,
    };
    const plan = planIpvs(state, changed, options);
    for (const problem of plan.problems) {
      if (!this.#told.has(problem)) log.warn("A Service does not get what it asks for", { problem });
      this.#told.add(problem);
    }
    return { plan, options, commands };
  }

  async #write(
    operations: Operations,
  ): Promise<{ readonly bytes: number; readonly written: Written }> {
    const { log } = this.#options;
    if (log.enabled(9)) {
      log.info("Writing IPVS", { family: this.family, operations: renderOperations(operations) }, 9);
    }
    const written: Written = { filter: 0, nat: 0, servers: 0, entries: 0, addresses: 0 };
    let bytes = 0;
    await this.#phases.run("apply", async () => {
      for (const step of operations.steps) bytes += await this.#take(step, written);
    });
    return { bytes, written };
  }

  /** Resolves to the number of bytes written. */
  async #take(step: Step, written: Written): Promise<number> {
    const { exec, node, iptables } = this.#options;
    if (step.program === "ipvsadm") {
      const { lines, bytes } = await node.write(step.changes);
      written.servers += lines;
      return bytes;
    }
    const text = stepText(step);
    if (step.program === "ipset") {
      await restoreSets(exec, text);
      written.entries += step.lines.length;
    } else if (step.program === "ip") {
      await runIpBatch(exec, step.lines);
      written.addresses += step.lines.length;
    } else {
      await iptables.restore(text);
      for (const { table, lines } of step.transactions) {
        written[table] += lines.filter((line) => /^-[AI] /.test(line)).length;
      }
    }
    return text.length;
  }

  isOutdated(): boolean {
    // Without a successful sync another one is on its way.
    return this.#committed !== undefined && this.#deviceIps().key !== this.#committedIps;
  }

  async checkCanary(): Promise<boolean> {
    const committed = this.#committed;
    // Without a successful sync there is nothing to lose, and a full one is on its way.
    if (committed === undefined) return false;
    const syncs = this.#syncs;
    const isDamaged = await this.#lostRules(committed) || await this.#lostOthers(committed);
    // What a sync changed meanwhile is no damage.
    return isDamaged && this.#syncs === syncs;
  }

  async #lostRules(committed: CommittedIpvs): Promise<boolean> {
    const probe = rulesProbe(committed);
    try {
      return !holdsRules(await this.#options.iptables.restore(probe.text, { counters: false }), probe);
    } catch (error) {
      if (!(error instanceof ExecError) || error.isMissing()) throw error;
      // A lock that somebody holds says nothing about our rules.
      return !error.isLockHeld();
    }
  }

  async #lostOthers(committed: CommittedIpvs): Promise<boolean> {
    const { exec } = this.#options;
    return !holdsEntries(await setSizes(exec), committed) || await this.#lostServers(committed) ||
      !holdsAddresses(await deviceAddresses(exec, DEVICE), committed);
  }

  async #lostServers(committed: CommittedIpvs): Promise<boolean> {
    const { ipvs } = this.#options.node;
    const { union } = committed;
    if (union.serverCount === 0) return false;
    const turns = Math.max(1, Math.ceil(union.realServerCount / this.#options.maxCheckedRealServers));
    if (this.#checks++ % turns === 0) return !holdsServers(await ipvs.save(), committed);
    const sample = this.#nextSample(committed);
    return !holdsServer(sample, await ipvs.listRealServers(sample.server));
  }

  /** One after the other; those that come meanwhile have their turn as well. */
  #nextSample(committed: CommittedIpvs): WantedServer {
    if (this.#sampled?.committed !== committed) {
      this.#sampled = { committed, rest: committed.union.servers() };
    }
    const next = this.#sampled.rest.next();
    if (next.done !== true) return next.value;
    this.#sampled = undefined;
    return this.#nextSample(committed);
  }

  #report(commands: number, bytes: number, written: Written, committed: CommittedIpvs): ApplyReport {
    return { commands, bytes, written, total: { ...committed.counts() }, phasesMs: this.#phases.elapsedMs };
  }
}

function ipsKey(hostIps: readonly string[], nodePortIps: readonly string[]): string {
  return `${hostIps.join(" ")}|${nodePortIps.join(" ")}`;
}
