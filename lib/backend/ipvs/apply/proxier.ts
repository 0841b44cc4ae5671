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
import type { Mutex } from "../../../kernel/mutex.ts";
import { inTurns, TURN_MS } from "../../../kernel/turns.ts";
import { UnreadableTables } from "../../../kernel/unreadable_tables.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { sameTexts } from "../../../model/service_port.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { virtualServerKey } from "../../../netfilter/ipvs.ts";
import type { Logger } from "../../../observe/log.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import { planIpvsInSteps } from "../plan/plan.ts";
import type { IpvsOptions, IpvsPlan } from "../plan/ruleset.ts";
import { type ConfiguredIpvs, hostIps, nodePortIps } from "../plan/settings.ts";
import { fullSync } from "../store/full_sync.ts";
import type { HeldObjects, Ownership } from "../store/objects.ts";
import { isEndpoint, Refusals, type RefusedLine } from "../store/refusals.ts";
import type { IpvsStore } from "../store/store.ts";
import type { IpvsTransaction } from "../store/transaction.ts";
import { CHEAP_TO_LIST, DriftCheck } from "./drift_check.ts";
import type { GracefulTermination } from "./graceful_termination.ts";
import { READ_COMMANDS, readOwn, readRules } from "./reading.ts";
import { LoggedProblems, type SchedulerProbe } from "./schedulers.ts";
import { IpvsWriter, newProgress, type Progress } from "./writer.ts";

/** How often one sync reads everything, because more and more is refused. */
const MAX_READS = 8;

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

/** What the node's devices mean for one family. */
type DeviceIps = Pick<IpvsOptions, "hostIps" | "nodePortIps">;

/** IPVS mode for one family. */
export class IpvsProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: IpvsProxierOptions;
  readonly #session: FamilySession<ConfiguredIpvs, IpvsStore>;
  readonly #loggedProblems = new LoggedProblems();
  readonly #unreadableTables: UnreadableTables;
  readonly #refusals: Refusals;
  readonly #driftCheck: DriftCheck;
  /** Of the last sync that succeeded: its virtual servers are ours, also where their address is not the node's any more. */
  #known: IpvsStore | null = null;
  /** Keys of those that were to be made or deleted since then: some of them may be there. */
  readonly #touched = new Set<string>();
  /** What the last sync that succeeded was made for. */
  #syncedIps: DeviceIps = { hostIps: [], nodePortIps: [] };
  /** Of the sync under way. */
  #progress: Progress = newProgress();

  constructor(options: IpvsProxierOptions) {
    this.#options = options;
    const { exec, ipvs, iptables, settings, cheapToList = CHEAP_TO_LIST, log, nowMs } = options;
    const { family } = iptables;
    this.family = family;
    this.#session = new FamilySession({ mode: "ipvs", family, settings, nowMs });
    this.#refusals = new Refusals(nowMs);
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
      const { committed } = await this.#session.sync(changed, async (since) => {
        if (since === null) this.#refusals.retryAll();
        const ips = this.#deviceIps();
        const committed = since === null
          ? await this.#syncAll(state, ips)
          : await this.#syncChanged(state, ips, since);
        this.#known = committed;
        this.#touched.clear();
        this.#syncedIps = ips;
        return { committed };
      });
      return this.#session.report({ ...this.#progress, total: { ...committed.counts } });
    });
  }

  /** Once; again without what is refused, as long as there is something new of that. */
  async #syncAll(state: ProxyState, ips: DeviceIps): Promise<IpvsStore> {
    let plan: IpvsPlan | undefined;
    for (let reads = 1;; reads++) {
      const held = await this.#session.run("read", () => this.#read());
      this.#unreadableTables.tell(held.unreadable ?? []);
      this.#options.terminations.found(held.virtualServers, this.family);
      const wanted = plan ??= await this.#session.run("plan", () => this.#plan(state, "all", ips));
      const { transaction, store } = await this.#session.run(
        "plan",
        () => fullSync(this.#refusals.without(wanted), held, this.#ownership(ips)),
      );
      const written = await this.#write(transaction, wanted);
      if (written.isReached) {
        // Without the real servers that were refused just now.
        if (written.refused.length > 0) store.change(this.#refusals.without(wanted));
        this.#quarantineRefused(wanted);
        return store;
      }
      if (written.unknown.length > 0 || reads === MAX_READS) throw this.#refusedError(written.unknown);
    }
  }

  async #read(): Promise<HeldObjects> {
    const { exec, ipvs, iptables } = this.#options;
    this.#progress.commands += READ_COMMANDS;
    const [own, rules] = await Promise.all([readOwn(exec, ipvs), readRules(iptables)]);
    return { ...own, ...rules };
  }

  async #syncChanged(
    state: ProxyState,
    ips: DeviceIps,
    { changed, committed }: Since<IpvsStore>,
  ): Promise<IpvsStore> {
    const due = this.#session.quarantine.due(changed);
    for (const name of due) this.#refusals.retry(name);
    const { plan, transaction } = await this.#session.run("plan", async () => {
      // An address that the node gained or lost concerns every Service.
      const names = sameIps(ips, this.#syncedIps) ? changed.union(new Set(due)) : "all";
      const plan = await this.#plan(state, names, ips);
      return { plan, transaction: committed.change(this.#refusals.without(plan)) };
    });
    const { isReached, refused } = await this.#write(transaction, plan);
    // Where more than real servers is refused, it is not known what the kernel holds.
    if (!isReached) return await this.#syncAll(state, ips);
    // Without the real servers that were refused just now.
    if (refused.length > 0) committed.change(this.#refusals.without(plan));
    this.#quarantineRefused(plan);
    return committed;
  }

  #quarantineRefused({ all, services }: IpvsPlan): void {
    if (all) this.#session.quarantine.replace([]);
    for (const service of all ? this.#refusals.services : services.keys()) {
      const problem = this.#refusals.problemOf(service);
      if (problem === null) this.#session.quarantine.release(service);
      else this.#session.quarantine.refused({ service, problem });
    }
  }

  /** Once per sync: the kernel lists every address of every device, those of all Services among them. */
  #deviceIps(): DeviceIps {
    const own = hostIps(this.family, this.#options.deviceAddresses());
    return { hostIps: own, nodePortIps: nodePortIps(this.#session.settings.nodePortAddresses, own) };
  }

  #ownership({ hostIps }: DeviceIps): Ownership {
    const known = new Set(this.#touched);
    for (const { key } of this.#known?.servers() ?? []) known.add(key);
    const { excludeCIDRs } = this.#session.settings;
    return { family: this.family, excludeCIDRs, hostIps, known };
  }

  async #plan(state: ProxyState, changed: Changed, ips: DeviceIps): Promise<IpvsPlan> {
    const { iptables, log } = this.#options;
    const { schedulers, commands } = await this.#options.schedulers.usable(state, changed);
    this.#progress.commands += commands;
    const options: IpvsOptions = {
      ...this.#session.settings,
      ...ips,
      randomFully: iptables.hasRandomFully(),
      schedulers,
    };
    const plan = await inTurns(planIpvsInSteps(state, changed, options), { turnMs: TURN_MS });
    this.#refusals.prune(plan);
    for (const problem of this.#loggedProblems.news(plan)) {
      log.warn("A Service does not get what it asks for", { problem });
    }
    return plan;
  }

  /** Writes, and takes over what is refused; `unknown`: lines that no Service is to blame for. */
  async #write(
    transaction: IpvsTransaction,
    plan: IpvsPlan,
  ): Promise<Record<"refused" | "unknown", readonly RefusedLine[]> & { readonly isReached: boolean }> {
    const { exec, ipvs, terminations, iptables, log } = this.#options;
    if (log.enabled(9)) {
      log.info("Writing IPVS", { family: this.family, operations: transaction.text }, 9);
    }
    for (const { server } of transaction.servers) this.#touched.add(virtualServerKey(server));
    const writer = new IpvsWriter({ exec, ipvs, terminations, iptables, progress: this.#progress });
    const refused = await this.#session.run("apply", () => writer.write(transaction.steps));
    const unknown = this.#refusals.blame(refused, plan);
    return { isReached: unknown.length === 0 && refused.every(isEndpoint), refused, unknown };
  }

  #refusedError([first]: readonly RefusedLine[]): SyncError {
    const said = first === undefined ? "more and more is refused" : `${first.program}: ${first.problem}`;
    return new SyncError("ipvs", "apply", `${this.family}: ${said}`);
  }

  isOutdated(): boolean {
    // Without a successful sync another one is on its way.
    return this.#session.isCommitted && !sameIps(this.#deviceIps(), this.#syncedIps);
  }

  async checkCanary(): Promise<false | Damage> {
    return await this.#session.look((store) =>
      this.#driftCheck.look(store, this.#ownership(this.#syncedIps))
    );
  }
}

function sameIps(left: DeviceIps, right: DeviceIps): boolean {
  return sameTexts(left.hostIps, right.hostIps) && sameTexts(left.nodePortIps, right.nodePortIps);
}
