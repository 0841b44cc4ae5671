/**
 * Brings the rules of one IP family into the kernel: what differs from the kernel's, then only what changes.
 *
 * @module
 */
import { ExecError, SyncError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isRuleRefusal } from "../../../kernel/tool_errors.ts";
import { inTurns, Mutex, TURN_MS } from "../../../kernel/clock.ts";
import type { NfacctCounters } from "../../../kernel/nfacct.ts";
import { UnreadableTables } from "../../../kernel/iptables_by_name.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { Logger } from "../../../observe/log.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import {
  type Candidate,
  describeRefusal,
  isRefusedAddition,
  isWhatAllNeed,
  refusedServices,
} from "../../apply/iptables_trial.ts";
import { NodePortIps } from "../../apply/node_port_ips.ts";
import { writeAll, writeChange } from "../../apply/refusals.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import type { Refused } from "../../isolate.ts";
import { JUMP_RULES, OWN_CHAINS } from "../plan/base_rules.ts";
import { CANARY_CHAIN, isServiceChain } from "../plan/chains.ts";
import { planIptables, planIptablesInSteps } from "../plan/plan.ts";
import { COUNTERS, type IptablesOptions, type IptablesPlan, type ServiceRules } from "../plan/ruleset.ts";
import { fullSync, fullSyncInSteps, type HeldTables } from "../store/full_sync.ts";
import type { Change, IptablesStore } from "../store/store.ts";
import type { IptablesTransaction, WrittenRules } from "../store/transaction.ts";
import { DriftCheck } from "./drift_check.ts";
import { StaleChains } from "./stale_chains.ts";
import { type OwnRules, readTables } from "./table_reading.ts";
import { writeTransaction } from "./transaction_writer.ts";

/** Chains of Services per block in the nft variant, as measured (README.md): where the kernel holds none of ours, and where it does. */
const CHAINS_PER_BLOCK = 300;
const CHAINS_PER_BLOCK_LIVE = 1_200;
/** How many service chains make a kernel count as one that already holds our rules. */
const LIVE_CHAINS = 1_000;
const OWN_RULES: OwnRules = { chains: OWN_CHAINS, jumps: JUMP_RULES };
/** How many Services are tried together in the nft variant; the legacy variant replaces the whole table for every try. */
const TRIED_TOGETHER = 100;

/** What decides the rules, as far as it is known before the first sync. */
export type IptablesSettings = Omit<IptablesOptions, "family" | "nodePortIps" | "randomFully" | "nfacct">;

/** What an {@linkcode IptablesProxier} needs. */
export interface IptablesProxierOptions {
  readonly iptables: Iptables;
  /** What rules add to, shared by both families; without it they count by themselves. */
  readonly counters?: NfacctCounters;
  readonly settings: IptablesSettings;
  /** Addresses of all interfaces of the node, both families; asked before each sync unless every address serves node ports. */
  readonly interfaceIps: () => readonly string[];
  readonly logger: Logger;
  /** As of {@linkcode DriftCheck}. */
  readonly largeChains?: number;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** What a sync has led to, and what it wrote. */
interface Reached {
  readonly committed: IptablesStore;
  readonly report: WriteReport;
}

interface WriteReport extends Required<Pick<ApplyReport, "commands" | "bytes" | "failedDeletions">> {
  readonly written: WrittenRules;
}

/** A plan of everything, and what leads there. */
interface FullPlan {
  readonly plan: IptablesPlan;
  readonly held: HeldTables;
  readonly transaction: IptablesTransaction;
  readonly store: IptablesStore;
}

/** iptables mode for one family. */
export class IptablesProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #iptables: Iptables;
  readonly #options: IptablesProxierOptions;
  readonly #session: FamilySession<IptablesSettings, IptablesStore>;
  /** Of the last sync that succeeded: what a Service keeps whose rules are refused. */
  #known: IptablesStore | undefined;
  #state: ProxyState | null = null;
  readonly #nodePortIps: NodePortIps;
  #mangleCanary = false;
  /** As the last full sync found it. */
  #nfacct = false;
  readonly #unreadableTables: UnreadableTables;
  readonly #driftCheck: DriftCheck;
  readonly #oneAtATime = new Mutex();
  readonly #staleChains: StaleChains;
  /** By looks since the last sync. */
  #failedDeletions = 0;

  constructor(options: IptablesProxierOptions) {
    const { iptables, settings, logger, largeChains, nowMs = () => performance.now() } = options;
    const { family } = iptables;
    this.family = family;
    this.#iptables = iptables;
    this.#options = options;
    this.#nodePortIps = new NodePortIps(options.interfaceIps);
    this.#session = new FamilySession({ mode: "iptables", family, settings, nowMs });
    this.#staleChains = new StaleChains({ iptables, logger, nowMs });
    const consequence = ", and chains of former Services stay";
    this.#unreadableTables = new UnreadableTables({ family, log: logger, consequence });
    this.#driftCheck = new DriftCheck({ iptables, own: OWN_RULES, logger, nowMs, largeChains });
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: IptablesSettings): boolean {
    return this.#session.configure(settings);
  }

  /** True if the rules add to the counters. */
  get addsToCounters(): boolean {
    return this.#nfacct;
  }

  /**
   * Writes what differs: from what the kernel holds if that is not known or everything was asked for, else from what was committed.
   *
   * @throws {SyncError} if a program failed; its cause is the {@linkcode ExecError}
   */
  sync(request: SyncRequest): Promise<ApplyReport> {
    this.#driftCheck.giveWay();
    return this.#oneAtATime.run(() => this.#sync(request));
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    this.#state = state;
    const { committed, report } = await this.#session.sync(
      changed,
      (since) =>
        since === null ? this.#syncAll(state) : writeChange({
          change: () => this.#syncChanged(state, since),
          problem: (error) => isOf(error, isRefusedAddition) ? describeRefusal(error.cause) : null,
          all: () => this.#syncAll(state),
        }, { logger: this.#options.logger, family: this.family }),
    );
    this.#known = committed;
    return this.#session.report({ ...report, total: committed.ruleCounts });
  }

  /** True if the addresses that serve node ports are others than those of the last sync. */
  isOutdated(): boolean {
    return this.#nodePortIps.isOutdated(this.#session.settings.nodePortAddresses);
  }

  /** A change waits for a look, so that what it writes is no damage; one that takes long gives way. */
  findDamage(): Promise<false | null | Damage> {
    return this.#oneAtATime.run(() =>
      this.#session.look(async (committed) => {
        const looked = await this.#driftCheck.look(committed, {
          family: this.family,
          canaries: this.#mangleCanary ? ["mangle", "nat", "filter"] : ["nat", "filter"],
          plan: (names) => planIptables(this.#state!, names, this.#planOptions()),
        });
        if (looked !== null) this.#staleChains.found(looked.leftover);
        // Without it chains that others used would stay until the next change, which may be days.
        if (looked === null || looked.damage === false) {
          this.#failedDeletions += (await this.#staleChains.deleteDue()).failed;
        }
        return looked === null ? null : looked.damage;
      })
    );
  }

  async #syncAll(state: ProxyState): Promise<Reached> {
    let full: FullPlan | undefined;
    const write = async (refused: ReadonlySet<NamespacedName>): Promise<Reached> => {
      full = await this.#planAll(state, refused);
      this.#staleChains.clear();
      const report = await this.#write(full.plan, full.transaction, this.#chainsPerBlock(full.held));
      return { committed: full.store, report };
    };
    const { committed, report } = await writeAll(this.#session, {
      write,
      isRefusal: (error) => isOf(error, isRuleRefusal) && error.phase === "apply",
      find: (error) =>
        this.#session.run("apply", () => this.#findRefused(full!, (error as SyncError).cause as ExecError)),
    });
    const { tables, unreadable } = full!.held;
    const hasCanary = tables.get("mangle")?.has(CANARY_CHAIN) === true;
    // One that cannot be looked for is no sign of anything.
    this.#mangleCanary = hasCanary || !unreadable.has("mangle") && await this.#setMangleCanary();
    this.#driftCheck.fullySynced();
    // One has read the tables.
    return { committed, report: { ...report, commands: report.commands + (hasCanary ? 1 : 2) } };
  }

  async #planAll(state: ProxyState, refused: ReadonlySet<NamespacedName>): Promise<FullPlan> {
    const [held] = await this.#session.run(
      "read",
      () => Promise.all([readTables(this.#iptables, OWN_RULES), this.#ensureCounters()]),
    );
    this.#unreadableTables.tell(held.unreadable);
    return await this.#session.run("plan", async () => {
      const plan = await this.#plan(state, "all");
      const { family } = this;
      const steps = fullSyncInSteps(plan, held, { family, former: this.#known, refused });
      return { plan, held, ...await inTurns(steps, { turnMs: TURN_MS }) };
    });
  }

  /** @throws `reason` if no Service is at fault */
  async #findRefused(
    { plan, held }: FullPlan,
    reason: ExecError,
  ): Promise<readonly Refused<NamespacedName>[]> {
    // What rules of every Service may jump to.
    const { transaction } = fullSync({ ...plan, services: new Map() }, held, { family: this.family });
    const { chains, rules } = transaction.edits.nat;
    await this.#iptables.restore(tableBlock("nat", [...chains.map(chainLine), ...rules]));
    const services = [...plan.services].flatMap(([name, rules]) =>
      rules === null ? [] : [candidate(name, rules)]
    );
    const together = this.#iptables.variant === "nft" ? TRIED_TOGETHER : services.length;
    const refused = await refusedServices(this.#iptables, services, together);
    // Rules of a former run serve them all the while, which those in quarantine would lose.
    if (isWhatAllNeed(services, refused)) throw reason;
    return refused;
  }

  async #syncChanged(
    state: ProxyState,
    { changed, committed }: Since<IptablesStore>,
  ): Promise<Reached> {
    const { quarantine } = this.#session;
    const suspects = new Set(quarantine.due(changed));
    const { plan, change } = await this.#planChange(state, changed.difference(suspects), committed);
    const report = await this.#write(plan, change.transaction, this.#chainsPerChange);
    change.commit();
    for (const name of suspects) {
      await quarantine.tryAgain(name, () => this.#tryAgain(state, name, committed));
    }
    return { committed, report };
  }

  async #planChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    committed: IptablesStore,
  ): Promise<{ readonly plan: IptablesPlan; readonly change: Change }> {
    return await this.#session.run("plan", async () => {
      const plan = await this.#plan(state, changed);
      return { plan, change: committed.change(plan) };
    });
  }

  /** Writes a quarantined Service after a try. @returns why it is refused; it is as it was then */
  async #tryAgain(state: ProxyState, name: NamespacedName, committed: IptablesStore): Promise<string | null> {
    const { plan, change } = await this.#planChange(state, new Set([name]), committed);
    const rules = plan.services.get(name) ?? null;
    const [refused] = rules === null ? [] : await this.#session.run(
      "apply",
      () => refusedServices(this.#iptables, [candidate(name, rules)], 1),
    );
    if (refused !== undefined) return refused.problem;
    await this.#write(plan, change.transaction, this.#chainsPerChange);
    change.commit();
    return null;
  }

  /** The legacy variant replaces the whole table for each block, so there one is right. */
  get #chainsPerChange(): number {
    return this.#iptables.variant === "nft" ? CHAINS_PER_BLOCK_LIVE : Infinity;
  }

  #chainsPerBlock({ tables }: HeldTables): number {
    if (this.#iptables.variant !== "nft") return Infinity;
    let live = 0;
    for (const chain of tables.get("nat")?.keys() ?? []) if (isServiceChain(chain)) live++;
    return live > LIVE_CHAINS ? CHAINS_PER_BLOCK_LIVE : CHAINS_PER_BLOCK;
  }

  #plan(state: ProxyState, changed: Changed): Promise<IptablesPlan> {
    this.#nodePortIps.take(this.#session.settings.nodePortAddresses);
    return inTurns(planIptablesInSteps(state, changed, this.#planOptions()), { turnMs: TURN_MS });
  }

  #planOptions(): IptablesOptions {
    return {
      ...this.#session.settings,
      family: this.family,
      nodePortIps: this.#nodePortIps.planned,
      randomFully: this.#iptables.hasRandomFully(),
      nfacct: this.#nfacct,
    };
  }

  async #write(
    plan: IptablesPlan,
    transaction: IptablesTransaction,
    mostChains: number,
  ): Promise<WriteReport> {
    const { logger } = this.#options;
    if (logger.enabled(9)) {
      logger.info("Restoring iptables", {
        family: this.family,
        rules: [...transaction.blocks(mostChains)].join(""),
      }, 9);
    }
    return await this.#session.run("apply", async () => {
      const { bytes, flushed, ...written } = await writeTransaction(this.#iptables, transaction, mostChains);
      for (const service of plan.services.values()) this.#staleChains.filled(service?.chains ?? []);
      this.#staleChains.flushed(flushed);
      const { commands, failed } = await this.#staleChains.deleteDue();
      const failedDeletions = failed + this.#failedDeletions;
      this.#failedDeletions = 0;
      return { commands: written.commands + commands, bytes, failedDeletions, written: transaction.counts };
    });
  }

  /** Where our rules were taken away the counters may be gone with them, and a rule that names a missing one is refused. */
  async #ensureCounters(): Promise<void> {
    const { counters, logger } = this.#options;
    if (counters === undefined) return;
    try {
      await counters.ensure();
      // What the kernel knows does not change.
      if (!this.#nfacct) await this.#iptables.tryCounter(COUNTERS.invalidDropped);
      this.#nfacct = true;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      this.#nfacct = false;
      const { message: problem } = error;
      logger.info("Rules do without the counters of nfacct", { family: this.family, problem }, 2);
    }
  }

  /** Table mangle holds nothing else of ours: a node without it is no reason to be without rules. */
  async #setMangleCanary(): Promise<boolean> {
    try {
      await this.#iptables.restore(tableBlock("mangle", [chainLine(CANARY_CHAIN)]));
      return true;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      this.#options.logger.error("Cannot set the canary of table mangle", error, { family: this.family });
      return false;
    }
  }
}

function isOf(
  error: unknown,
  isRefusal: (error: unknown) => error is ExecError,
): error is SyncError & { readonly cause: ExecError } {
  return error instanceof SyncError && isRefusal(error.cause);
}

function candidate(name: NamespacedName, { chains, rules, dispatch: shared }: ServiceRules): Candidate {
  return { name, chains, rules, shared };
}
