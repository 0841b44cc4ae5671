/**
 * Brings one IP family into the kernel: everything once, then only what changes, with one start of each program at most; more of `ipvsadm`
 * where Services name schedulers that were not tried yet, and where one server goes before the entries that another one comes after.
 *
 * @module
 */
import { SyncError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { inTurns, type Mutex, TURN_MS } from "../../../kernel/clock.ts";
import { UnreadableTables } from "../../../kernel/iptables_by_name.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import { sameTexts } from "../../../model/service_port.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { virtualServerKey } from "../../../netfilter/ipvs.ts";
import type { Logger } from "../../../observe/log.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import { writeAll, writeChange } from "../../apply/refusals.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import { planIpvsInSteps } from "../plan/plan.ts";
import type { IpvsOptions, IpvsPlan } from "../plan/ruleset.ts";
import { type ConfiguredIpvs, hostIps, nodePortIps } from "../plan/settings.ts";
import { diffObjects, type HeldObjects, type Ownership } from "../store/objects.ts";
import {
  blame,
  forgetDueParts,
  forgetUnwanted,
  RefusedLinesError,
  withoutRefused,
} from "../store/refusals.ts";
import { IpvsStore } from "../store/store.ts";
import type { IpvsTransaction } from "../store/transaction.ts";
import { CHEAP_TO_LIST, DriftCheck } from "./drift_check.ts";
import type { GracefulTermination } from "./graceful_termination.ts";
import { READ_COMMANDS, readOwn, readRules } from "./reading.ts";
import type { SchedulerProbe } from "./schedulers.ts";
import { IpvsWriter, newProgress, type Progress } from "./writer.ts";

/** How often one sync begins once more, because more is refused: each time a step further. */
const MAX_ROUNDS = 7;

/** What an {@linkcode IpvsProxier} needs. */
export interface IpvsProxierOptions {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  readonly terminations: GracefulTermination;
  /** Both families read and write one IPVS table and one device, one after the other. */
  readonly mutex: Mutex;
  readonly iptables: Iptables;
  readonly schedulers: SchedulerProbe;
  readonly settings: ConfiguredIpvs;
  /** Addresses of the node's devices, both families; asked before each sync. */
  readonly deviceAddresses: () => readonly DeviceAddress[];
  /** See {@linkcode CHEAP_TO_LIST}, the default. */
  readonly cheapToList?: number;
  readonly log: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** IPVS mode for one family. */
export class IpvsProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: IpvsProxierOptions;
  readonly #session: FamilySession<ConfiguredIpvs, IpvsStore>;
  /** What Services ask for and do not get: logged once. */
  readonly #problems = new Map<NamespacedName, readonly string[]>();
  readonly #unreadableTables: UnreadableTables;
  readonly #driftCheck: DriftCheck;
  /** Of the last sync that succeeded: its virtual servers are ours, also where their address is not the node's any more. */
  #known: IpvsStore | null = null;
  /** Keys of those that were to be made or deleted since then: some of them may be there. */
  readonly #touched = new Set<string>();
  /** The node's addresses that the last sync that succeeded was made for. */
  #syncedIps: readonly string[] = [];
  /** Of the sync under way. */
  #progress: Progress = newProgress();

  constructor(options: IpvsProxierOptions) {
    this.#options = options;
    const { exec, ipvs, iptables, settings, cheapToList = CHEAP_TO_LIST, log, nowMs } = options;
    const { family } = iptables;
    this.family = family;
    this.#session = new FamilySession({ mode: "ipvs", family, settings, nowMs });
    this.#unreadableTables = new UnreadableTables({ family, log });
    this.#driftCheck = new DriftCheck({ exec, ipvs, iptables, cheapToList, nowMs });
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: ConfiguredIpvs): boolean {
    return this.#session.configure(settings);
  }

  /**
   * Writes what differs: from what the kernel holds if that is not known or everything was asked for, else from what was written last.
   * What the programs refuse of a Service stays away; everything else goes in.
   *
   * @throws {SyncError} if a program failed; its cause is the `ExecError`
   */
  sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    return this.#options.mutex.run(async () => {
      this.#progress = newProgress();
      const ips = this.#hostIps();
      const all = (): Promise<IpvsStore> => this.#syncAll(state, ips);
      const problem = (error: unknown): string | null => isRefusal(error) ? error.cause.message : null;
      const options = { logger: this.#options.log, family: this.family };
      const { committed } = await this.#session.sync(changed, async (since) => ({
        committed: since === null ? await all() : await writeChange({
          change: () => this.#syncChanged(state, ips, since),
          problem,
          all,
        }, options),
      }));
      this.#known = committed;
      this.#touched.clear();
      this.#syncedIps = ips;
      return this.#session.report({ ...this.#progress, total: { ...committed.counts } });
    });
  }

  async #syncAll(state: ProxyState, ips: readonly string[]): Promise<IpvsStore> {
    let plan: IpvsPlan | undefined;
    const write = async (): Promise<IpvsStore> => {
      const held = await this.#session.run("read", () => this.#read());
      this.#unreadableTables.tell(held.unreadable ?? []);
      this.#options.terminations.found(held.virtualServers, this.family);
      const { transaction, store } = await this.#session.run("plan", async () => {
        plan ??= await this.#plan(state, "all", ips);
        const store = IpvsStore.of(withoutRefused(plan, this.#session.quarantine));
        return { store, transaction: diffObjects(store.objects, held, this.#ownership(ips)) };
      });
      return await this.#write(transaction, plan!, store);
    };
    return await writeAll(this.#session, {
      write,
      isRefusal,
      find: (error) =>
        this.#session.run("apply", () => blame(isRefusal(error) ? error.cause.lines : [], plan!)),
      rounds: MAX_ROUNDS,
    });
  }

  async #read(): Promise<HeldObjects> {
    const { exec, ipvs, iptables } = this.#options;
    this.#progress.commands += READ_COMMANDS;
    const [own, rules] = await Promise.all([readOwn(exec, ipvs), readRules(iptables)]);
    return { ...own, ...rules };
  }

  async #syncChanged(
    state: ProxyState,
    ips: readonly string[],
    { changed, committed }: Since<IpvsStore>,
  ): Promise<IpvsStore> {
    const { quarantine } = this.#session;
    const due = quarantine.due(changed);
    for (const name of due) forgetDueParts(quarantine, name);
    const { plan, transaction } = await this.#session.run("plan", async () => {
      // An address that the node gained or lost concerns every Service.
      const names = sameTexts(ips, this.#syncedIps) ? changed.union(new Set(due)) : "all";
      const plan = await this.#plan(state, names, ips);
      return { plan, transaction: committed.change(withoutRefused(plan, quarantine)) };
    });
    return await this.#write(transaction, plan, committed);
  }

  /** Once per sync: the kernel lists every address of every device, those of all Services among them. */
  #hostIps(): readonly string[] {
    return hostIps(this.family, this.#options.deviceAddresses());
  }

  #ownership(hostIps: readonly string[]): Ownership {
    const known = new Set(this.#touched);
    for (const { key } of this.#known?.servers() ?? []) known.add(key);
    const { excludeCIDRs } = this.#session.settings;
    return { family: this.family, excludeCIDRs, hostIps, known };
  }

  async #plan(state: ProxyState, changed: Changed, ips: readonly string[]): Promise<IpvsPlan> {
    const { iptables } = this.#options;
    const { schedulers, commands } = await this.#options.schedulers.usable(state, changed);
    this.#progress.commands += commands;
    const { settings } = this.#session;
    const options: IpvsOptions = {
      ...settings,
      hostIps: ips,
      nodePortIps: nodePortIps(settings.nodePortAddresses, ips),
      randomFully: iptables.hasRandomFully(),
      schedulers,
    };
    const plan = await inTurns(planIpvsInSteps(state, changed, options), { turnMs: TURN_MS });
    forgetUnwanted(this.#session.quarantine, plan);
    this.#logProblems(plan);
    return plan;
  }

  #logProblems({ all, services, problems }: IpvsPlan): void {
    for (const name of all ? this.#problems.keys() : services.keys()) {
      if (!problems.has(name)) this.#problems.delete(name);
    }
    for (const [name, now] of problems) {
      for (const problem of now.filter((one) => this.#problems.get(name)?.includes(one) !== true)) {
        this.#options.log.warn("A Service does not get what it asks for", { problem });
      }
      this.#problems.set(name, now);
    }
  }

  /** Writes what leads to `store`, which then holds what was not refused of the plan. */
  async #write(transaction: IpvsTransaction, plan: IpvsPlan, store: IpvsStore): Promise<IpvsStore> {
    const { exec, ipvs, terminations, iptables, log } = this.#options;
    if (log.enabled(9)) {
      log.info("Writing IPVS", { family: this.family, operations: transaction.text }, 9);
    }
    for (const { server } of transaction.servers) this.#touched.add(virtualServerKey(server));
    const writer = new IpvsWriter({ exec, ipvs, terminations, iptables, progress: this.#progress });
    await this.#session.run("apply", async () => {
      const refused = await writer.write(transaction.steps);
      if (refused.length === 0) return;
      const { quarantine } = this.#session;
      for (const { item, part, problem } of blame(refused, plan)) {
        quarantine.refused({ service: item, problem }, part);
      }
      store.change(withoutRefused(plan, quarantine));
    });
    return store;
  }

  isOutdated(): boolean {
    // Without a successful sync another one is on its way.
    return this.#session.isCommitted && !sameTexts(this.#hostIps(), this.#syncedIps);
  }

  async findDamage(): Promise<false | Damage> {
    return await this.#session.look((store) =>
      this.#driftCheck.look(store, this.#ownership(this.#syncedIps))
    );
  }
}

function isRefusal(error: unknown): error is SyncError & { readonly cause: RefusedLinesError } {
  return error instanceof SyncError && error.cause instanceof RefusedLinesError;
}
