/**
 * Proxier of IPVS mode for one IP family: everything once, then only changes, with one start of each program at most;
 * more of `ipvsadm` for schedulers not tried yet, and where one server goes before entries that another comes after.
 *
 * @module
 */
import { SyncError } from "../../../errors.ts";
import { inTurns, type Mutex, TURN_MS } from "../../../kernel/clock.ts";
import { UnreadableTables } from "../../../kernel/iptables_by_name.ts";
import { FAMILIES, type NamespacedName } from "../../../model/objects.ts";
import { sameTexts } from "../../../model/service_port.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { virtualServerKey } from "../../../netfilter/ipvs.ts";
import type { Logger } from "../../../observe/log.ts";
import { Proxier } from "../../apply/proxier.ts";
import type { Damage } from "../../backend.ts";
import type { RefusedService } from "../../quarantine.ts";
import { readTables } from "../../iptables/apply/table_reading.ts";
import { type ConfiguredIpvs, hostIps, nodePortIps, planIpvsInSteps } from "../plan/plan.ts";
import { DEVICE, type IpvsOptions, type IpvsPlan } from "../plan/ruleset.ts";
import type { HeldTables } from "../../iptables/store/full_sync.ts";
import type { HeldObjects, Ownership } from "../store/objects.ts";
import {
  blame,
  forgetDueParts,
  forgetUnwanted,
  RefusedLinesError,
  withoutRefused,
} from "../store/refusals.ts";
import { IpvsStore } from "../store/store.ts";
import { type IpvsTransaction, TABLES } from "../store/transaction.ts";
import { DriftCheck } from "./drift_check.ts";
import { readDevices } from "../../../kernel/ip_address.ts";
import { saveSets } from "../../../kernel/ipset.ts";
import { OWN_RULES } from "../plan/base_rules.ts";
import { growingSetName, setNames } from "../plan/sets.ts";
import { type IpvsTools, writeSteps, WRITTEN_KINDS } from "./writer.ts";
import { type Ipvsadm, missingScheduler } from "../../../kernel/ipvsadm.ts";

/** Repetitions of one sync because more is refused: each time a step further. */
const MAX_ROUNDS = 7;

/** Options of an {@linkcode IpvsProxier}. */
export interface IpvsProxierOptions extends IpvsTools {
  /** Both families read and write one IPVS table and one device, one after the other. */
  readonly mutex: Mutex;
  readonly schedulers: SchedulerProbe;
  readonly settings: ConfiguredIpvs;
  /** Addresses of the node's devices, both families; asked before each sync. */
  readonly deviceAddresses: () => readonly DeviceAddress[];
  /** Most that a drift check lists at any time, in entries of sets; a real server counts as two. Default: 60,000. */
  readonly cheapToList?: number;
  readonly log: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** Proxier of IPVS mode for one family. Refused parts of Services are left out; everything else is written. */
export class IpvsProxier extends Proxier<ConfiguredIpvs, IpvsStore> {
  readonly #options: IpvsProxierOptions;
  /** Requests of Services that are not met: logged once. */
  readonly #problems = new Map<NamespacedName, readonly string[]>();
  readonly #unreadableTables: UnreadableTables;
  readonly #driftCheck: DriftCheck;
  /** Keys of virtual servers that were to be made or deleted since the last sync that succeeded: some of them may be there. */
  readonly #touched = new Set<string>();
  /** The node's addresses that the last sync that succeeded was made for. */
  #syncedIps: readonly string[] = [];
  /** The node's addresses for the sync under way. */
  #ips: readonly string[] = [];
  /** Plan of the full sync under way. */
  #full: IpvsPlan | undefined;

  constructor(options: IpvsProxierOptions) {
    const { iptables: { family }, log } = options;
    super({ ...options, mode: "ipvs", family, logger: log, kinds: WRITTEN_KINDS, rounds: MAX_ROUNDS });
    this.#options = options;
    this.#unreadableTables = new UnreadableTables({ family, log });
    this.#driftCheck = new DriftCheck(options);
  }

  protected override begin(): void {
    this.#ips = this.#hostIps();
    this.#full = undefined;
  }

  protected override succeeded(): void {
    this.#touched.clear();
    this.#syncedIps = this.#ips;
  }

  protected override total(store: IpvsStore): Readonly<Record<string, number>> {
    return { ...store.counts };
  }

  protected override describeRefusal(error: unknown): string | null {
    return error instanceof RefusedLinesError ? error.message : null;
  }

  protected override findRefused(error: unknown): Promise<readonly RefusedService[]> {
    return this.run("apply", () => blame(refusedLines(error), this.#full!));
  }

  protected override async writeAll(state: ProxyState): Promise<IpvsStore> {
    const held = await this.run("read", () => this.#read());
    this.#unreadableTables.report(TABLES.filter((table) => held.unreadable.has(table)));
    this.#options.terminations.found(held.virtualServers, this.family);
    const { plan, transaction, store } = await this.run("plan", async () => {
      const plan = this.#full ??= await this.#plan(state, "all");
      const store = new IpvsStore(withoutRefused(plan, this.quarantine));
      return { plan, store, transaction: store.fullSync(held, this.#ownership(this.#ips)) };
    });
    await this.#write(transaction, plan, store);
    this.#driftCheck.fullySynced();
    return store;
  }

  /** Lists rules, and the device, the sets and the IPVS table of both families; a few more programs where iptables cannot read a table. */
  async #read(): Promise<HeldObjects & HeldTables> {
    const { exec, ipvs, iptables } = this.#options;
    const own = new Set(FAMILIES.flatMap((family) => [...setNames(family), growingSetName(family)]));
    this.progress.commands += 4;
    const [{ virtualServers }, sets, { kinds, addresses }, rules] = await Promise.all([
      ipvs.save(),
      saveSets(exec, (name) => own.has(name)),
      readDevices(exec),
      readTables(iptables, OWN_RULES),
    ]);
    const onDevice = addresses.filter(({ device }) => device === DEVICE).map(({ address }) => address);
    return { addresses: kinds.has(DEVICE) ? new Set(onDevice) : null, virtualServers, sets, ...rules };
  }

  protected override async writeChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    store: IpvsStore,
  ): Promise<void> {
    const due = this.quarantine.due(changed);
    for (const name of due) forgetDueParts(this.quarantine, name);
    const { plan, transaction } = await this.run("plan", async () => {
      // An address that the node gained or lost concerns every Service.
      const names = sameTexts(this.#ips, this.#syncedIps) ? changed.union(new Set(due)) : "all";
      const plan = await this.#plan(state, names);
      return { plan, transaction: store.change(withoutRefused(plan, this.quarantine)) };
    });
    await this.#write(transaction, plan, store);
  }

  /** Reads the node's addresses once per sync: the kernel lists those of every device, Services' among them. */
  #hostIps(): readonly string[] {
    return hostIps(this.family, this.#options.deviceAddresses());
  }

  #ownership(hostIps: readonly string[]): Ownership {
    const known = new Set(this.#touched);
    for (const { key } of this.known?.servers() ?? []) known.add(key);
    const { excludeCIDRs } = this.settings;
    return { family: this.family, excludeCIDRs, hostIps, known };
  }

  async #plan(state: ProxyState, changed: Changed): Promise<IpvsPlan> {
    const { schedulers, commands } = await this.#options.schedulers.usable(state, changed);
    this.progress.commands += commands;
    const { settings } = this;
    const options: IpvsOptions = {
      ...settings,
      hostIps: this.#ips,
      nodePortIps: nodePortIps(settings.nodePortAddresses, this.#ips),
      schedulers,
    };
    const plan = await inTurns(planIpvsInSteps(state, changed, options), { turnMs: TURN_MS });
    forgetUnwanted(this.quarantine, plan);
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

  /** Writes the transaction that leads to `store`, which then holds the plan without refused parts. */
  async #write(transaction: IpvsTransaction, plan: IpvsPlan, store: IpvsStore): Promise<void> {
    const { log } = this.#options;
    if (log.enabled(9)) {
      log.info("Writing IPVS", { family: this.family, operations: transaction.text }, 9);
    }
    for (const { server } of transaction.servers) this.#touched.add(virtualServerKey(server));
    await this.run("apply", async () => {
      const refused = await writeSteps(transaction.steps, this.#options, this.progress);
      if (refused.length === 0) return;
      for (const one of blame(refused, plan)) this.quarantine.refused(one);
      store.change(withoutRefused(plan, this.quarantine));
    });
  }

  override isOutdated(): boolean {
    // Without a successful sync another one is on its way.
    return this.isCommitted && !sameTexts(this.#hostIps(), this.#syncedIps);
  }

  protected override checkDrift(store: IpvsStore): Promise<false | Damage> {
    return this.#driftCheck.look(store, this.#ownership(this.#syncedIps));
  }
}

function refusedLines(error: unknown): RefusedLinesError["lines"] {
  return error instanceof SyncError && error.cause instanceof RefusedLinesError ? error.cause.lines : [];
}

/** Tries schedulers when they are first asked for. Only for work that no other sync disturbs. */
export class SchedulerProbe {
  readonly #ipvs: Ipvsadm;
  /** Scheduler → whether the kernel has it. The configured one comes first, and is certain, see {@linkcode require}. */
  readonly #tried: Map<string, boolean>;

  /** @param configured the scheduler of Services that name none */
  constructor(ipvs: Ipvsadm, readonly configured: string) {
    this.#ipvs = ipvs;
    this.#tried = new Map([[configured, true]]);
  }

  /**
   * Makes sure of the configured scheduler. The first use of IPVS: it makes the kernel load it.
   *
   * @throws {UnsupportedError} naming the module, if the kernel does not have it
   * @throws {ExecError} if IPVS does not work here
   */
  async require(): Promise<void> {
    if (!await this.#ipvs.hasScheduler(this.configured)) throw missingScheduler(this.configured);
  }

  /**
   * Schedulers that a sync may use: the configured one, and those of Services that the kernel has. Those that the
   * changed Services name for the first time are tried, with a program each.
   */
  async usable(
    state: ProxyState,
    changed: Changed,
  ): Promise<{ readonly schedulers: readonly string[]; readonly commands: number }> {
    let commands = 0;
    for (const name of changed === "all" ? state.services.keys() : changed) {
      for (const { ipvs: { scheduler } } of state.services.get(name) ?? []) {
        if (scheduler === "" || this.#tried.has(scheduler)) continue;
        this.#tried.set(scheduler, await this.#ipvs.hasScheduler(scheduler));
        commands++;
      }
    }
    const found = [...this.#tried].filter(([, isThere]) => isThere);
    return { schedulers: found.map(([scheduler]) => scheduler), commands };
  }
}
