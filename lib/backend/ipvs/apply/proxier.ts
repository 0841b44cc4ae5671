/**
 * Brings one IP family into the kernel: everything once, then only what changes, with one start of each program at most; more of `ipvsadm`
 * where Services name schedulers that were not tried yet, and where one server goes before the entries that another one comes after.
 *
 * @module
 */
import { ExecError, SyncError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { UnreadableTables } from "../../../kernel/unreadable_tables.ts";
import { inTurns, TURN_MS } from "../../../kernel/turns.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { virtualServerKey } from "../../../netfilter/ipvs.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import { type CheckLimits, IpvsLook } from "./apply_check.ts";
import type { ObservedOwn } from "./apply_fresh.ts";
import { observeOwn, observeRules, OWN_COMMANDS, RULES_COMMANDS } from "./apply_observe.ts";
import type { SchedulerProbe } from "./apply_schedulers.ts";
import type { IpvsNode } from "./apply_terminations.ts";
import { IpvsWriter, newProgress, type Progress } from "./apply_writer.ts";
import { CommittedIpvs } from "../diff/committed.ts";
import { diffIpvs } from "../diff/diff.ts";
import { diffObserved } from "../diff/diff_observed.ts";
import { planIpvsInSteps } from "../plan/plan.ts";
import { isRealServer, Refusals, type RefusedWork } from "../diff/refusals.ts";
import { renderOperations } from "../diff/render.ts";
import type { IpvsOptions, IpvsPlan, Observed, Operations } from "../plan/ruleset.ts";
import { type ConfiguredIpvs, hostIps, nodePortIps } from "../plan/settings.ts";
import { ToldProblems } from "../diff/told_problems.ts";

/** What an {@linkcode IpvsProxier} needs. */
export interface IpvsProxierOptions {
  readonly exec: Exec;
  readonly node: IpvsNode;
  readonly iptables: Iptables;
  readonly schedulers: SchedulerProbe;
  readonly settings: ConfiguredIpvs;
  /** Addresses of the node's devices, both families; asked before each sync. */
  readonly deviceAddresses: () => readonly DeviceAddress[];
  readonly checkLimits: CheckLimits;
  readonly log: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** What the Services of a sync want, whatever is refused of it. */
interface Planned {
  readonly plan: IpvsPlan;
  readonly options: IpvsOptions;
}

interface Reached {
  readonly committed: CommittedIpvs;
  readonly planned: Planned;
}

/** How often one sync reads everything, because more and more is refused. */
const MAX_READS = 8;

/** What the node's devices mean for one family. */
interface DeviceIps extends Pick<IpvsOptions, "hostIps" | "nodePortIps"> {
  /** Differs if they do. */
  readonly key: string;
}

/** IPVS mode for one family. */
export class IpvsProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: IpvsProxierOptions;
  readonly #session: FamilySession<ConfiguredIpvs, CommittedIpvs>;
  /** Of the last sync that succeeded: its virtual servers are ours, also where their address is not the node's any more. */
  #known: CommittedIpvs | null = null;
  /** Keys of those that were to be made since then: some of them may be there. */
  readonly #made = new Set<string>();
  /** What the node's devices made of the committed plan. */
  #committedIps = "";
  readonly #told = new ToldProblems();
  readonly #unreadableTables: UnreadableTables;
  readonly #refusals: Refusals;
  readonly #look: IpvsLook;
  /** Of the sync under way. */
  #progress: Progress = newProgress();

  constructor(options: IpvsProxierOptions) {
    this.#options = options;
    const { exec, node: { ipvs }, iptables, settings, checkLimits, log, nowMs } = options;
    const { family } = iptables;
    this.family = family;
    this.#session = new FamilySession({ mode: "ipvs", family, settings, nowMs });
    this.#refusals = new Refusals(nowMs);
    this.#unreadableTables = new UnreadableTables({ family, log });
    this.#look = new IpvsLook({ exec, ipvs, iptables }, checkLimits);
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
  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.#options.node.syncing(this.family, () => this.#sync(request));
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    this.#progress = newProgress();
    const { committed } = await this.#session.sync(changed, async (since) => {
      if (since === null) this.#refusals.retryAll();
      const reached = since === null ? await this.#syncAll(state) : await this.#syncChanged(state, since);
      this.#reach(reached);
      return reached;
    });
    return this.#session.report({ ...this.#progress, total: { ...committed.counts() } });
  }

  /** Once; again without what is refused, as long as there is something new of that. */
  async #syncAll(state: ProxyState): Promise<Reached> {
    const { node } = this.#options;
    let known = node.takeKnown(this.family);
    let planned: Planned | undefined;
    for (let reads = 1;; reads++) {
      const isKnown = known !== null;
      const observed = await this.#session.run("read", () => this.#observe(known));
      known = null;
      this.#unreadableTables.tell(observed.unreadable ?? []);
      node.observe(observed.virtualServers, this.family);
      const { plan, options } = planned ??= await this.#session.run(
        "plan",
        () => this.#plan(state, "all", this.#deviceIps()),
      );
      const operations = await this.#session.run(
        "plan",
        () => diffObserved(this.#refusals.without(plan), observed, options, this.#ownServers()),
      );
      const written = await this.#write(operations, plan).catch((error) => {
        // Somebody was faster: what there is has to be looked at.
        if (isKnown && error instanceof SyncError && error.cause instanceof ExecError) return null;
        throw error;
      });
      if (written === null) continue;
      const { isReached, unknown } = written;
      if (isReached) {
        return { committed: CommittedIpvs.of(this.#refusals.without(plan)), planned };
      }
      if (unknown.length > 0 || reads === MAX_READS) throw this.#refusedError(unknown);
    }
  }

  /** @param known what need not be looked for */
  async #observe(known: ObservedOwn | null): Promise<Observed> {
    const { exec, node, iptables } = this.#options;
    this.#progress.commands += known === null ? OWN_COMMANDS + RULES_COMMANDS : RULES_COMMANDS;
    const [own, rules] = await Promise.all([
      known ?? node.look(this.family, () => observeOwn({ exec, ipvs: node.ipvs })),
      observeRules(iptables),
    ]);
    return { ...own, ...rules };
  }

  /** Keys of all virtual servers that this process knows to be its own. */
  #ownServers(): ReadonlySet<string> {
    const keys = new Set(this.#made);
    for (const { key } of this.#known?.union.servers() ?? []) keys.add(key);
    return keys;
  }

  async #syncChanged(
    state: ProxyState,
    { changed, committed }: Since<CommittedIpvs>,
  ): Promise<Reached> {
    const due = this.#session.quarantine.due(changed);
    for (const name of due) this.#refusals.retry(name);
    const { planned, operations } = await this.#session.run("plan", async () => {
      // An address that the node gained or lost concerns every Service.
      const ips = this.#deviceIps();
      const names = ips.key === this.#committedIps ? changed.union(new Set(due)) : "all";
      const planned = await this.#plan(state, names, ips);
      return { planned, operations: diffIpvs(this.#refusals.without(planned.plan), committed) };
    });
    // Where more than real servers is refused, nobody knows what the kernel holds.
    if (!(await this.#write(operations, planned.plan)).isReached) return await this.#syncAll(state);
    committed.apply(this.#refusals.without(planned.plan));
    return { committed, planned };
  }

  #reach({ committed, planned: { plan, options: { hostIps, nodePortIps } } }: Reached): void {
    this.#known = committed;
    this.#made.clear();
    this.#committedIps = ipsKey(hostIps, nodePortIps);
    this.#quarantineRefused(plan);
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
    const serving = nodePortIps(this.#session.settings.nodePortAddresses, own);
    return { hostIps: own, nodePortIps: serving, key: ipsKey(own, serving) };
  }

  async #plan(state: ProxyState, changed: Changed, { hostIps, nodePortIps }: DeviceIps): Promise<Planned> {
    const { iptables, log } = this.#options;
    const { schedulers, commands } = await this.#options.schedulers.usable(state, changed);
    this.#progress.commands += commands;
    const options: IpvsOptions = {
      ...this.#session.settings,
      hostIps,
      nodePortIps,
      randomFully: iptables.hasRandomFully(),
      schedulers,
    };
    const plan = await inTurns(planIpvsInSteps(state, changed, options), { turnMs: TURN_MS });
    this.#refusals.prune(plan);
    for (const problem of this.#told.news(plan)) {
      log.warn("A Service does not get what it asks for", { problem });
    }
    return { plan, options };
  }

  /** Writes, and takes over what is refused. */
  async #write(
    operations: Operations,
    plan: IpvsPlan,
  ): Promise<{ readonly isReached: boolean; readonly unknown: readonly RefusedWork[] }> {
    const { exec, node, iptables, log } = this.#options;
    if (log.enabled(9)) {
      log.info("Writing IPVS", { family: this.family, operations: renderOperations(operations) }, 9);
    }
    for (const step of operations.steps) {
      if (step.program !== "ipvsadm") continue;
      for (const { kind, server } of step.changes) {
        if (kind === "addServer") this.#made.add(virtualServerKey(server));
      }
    }
    const writer = new IpvsWriter({ exec, node, iptables, progress: this.#progress });
    const refused = await this.#session.run("apply", () => writer.write(operations));
    const unknown = refused.length === 0 ? [] : this.#refusals.blame(refused, plan);
    return { isReached: unknown.length === 0 && refused.every(isRealServer), unknown };
  }

  #refusedError([first]: readonly RefusedWork[]): SyncError {
    const said = first === undefined ? "more and more is refused" : `${first.program}: ${first.problem}`;
    return new SyncError("ipvs", "apply", `${this.family}: ${said}`);
  }

  isOutdated(): boolean {
    // Without a successful sync another one is on its way.
    return this.#session.isCommitted && this.#deviceIps().key !== this.#committedIps;
  }

  async checkCanary(): Promise<false | Damage> {
    const { excludeCIDRs } = this.#session.settings;
    return await this.#session.look((committed) => this.#look.look(committed, excludeCIDRs));
  }
}

function ipsKey(hostIps: readonly string[], nodePortIps: readonly string[]): string {
  return `${hostIps.join(" ")}|${nodePortIps.join(" ")}`;
}
