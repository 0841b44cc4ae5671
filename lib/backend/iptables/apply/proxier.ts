/**
 * Brings the rules of one IP family into the kernel: a staged full sync, then only what changes.
 *
 * @module
 */
import { ExecError, SyncError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { inTurns, TURN_MS } from "../../../kernel/turns.ts";
import { isRuleRefusal } from "../../../kernel/iptables_refusal.ts";
import { Mutex } from "../../../kernel/mutex.ts";
import type { NfacctCounters } from "../../../kernel/nfacct.ts";
import { UnreadableTables } from "../../../kernel/unreadable_tables.ts";
import { matchingNodeIps } from "../../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import { sameTexts } from "../../../model/service_port.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { chainLine } from "../../../netfilter/iptables_jumps.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import type { Refused } from "../../isolate.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import { describeRefusal, isRefusedAddition, isWhatAllNeed, refusedServices } from "./apply_refusals.ts";
import { observeByName } from "./apply_by_name.ts";
import { StaleChains } from "./apply_stale_chains.ts";
import { writeOperations, type Written } from "./apply_writer.ts";
import { CHECK_LIMITS, noteDamage, RuleLook } from "./apply_check.ts";
import { isServiceChain } from "../plan/chains.ts";
import { chainNames, CommittedRules } from "../diff/committed.ts";
import { diffIptables } from "../diff/diff.ts";
import { CANARY_CHAIN, hasMangleCanary } from "../diff/observe_canary.ts";
import type { CheckLimits } from "../diff/observe_turns.ts";
import { planIptablesInSteps } from "../plan/plan.ts";
import { countWrittenRules, renderOperations, renderTransaction } from "../plan/render.ts";
import {
  COUNTERS,
  type IptablesOptions,
  type IptablesPlan,
  type ObservedTables,
  type Operations,
  type ServiceRules,
} from "../plan/ruleset.ts";
import { chainsForServices, stageFullSync } from "../diff/stages.ts";
import { observeTables } from "../diff/stages_observe.ts";

/**
 * Services of about ten endpoints per transaction of a full sync in the nft variant. Measured on 2 cores, kernel 6.18,
 * iptables 1.8.9, one iptables-restore process fed with all transactions (as many processes: 10-20 % slower):
 *
 * | Services × endpoints | 5    | 10   | 25   | 50   | 100  | 200  | 400 per transaction |
 * | -------------------- | ---- | ---- | ---- | ---- | ---- | ---- | ------------------- |
 * | 1,000 × 10           | 0.35 | 0.34 | 0.34 | 0.39 | 0.54 | 0.86 | 1.35 s              |
 * | 2,000 × 10           | -    | -    | 0.77 | 0.87 | 1.12 | 1.77 | 2.90 s              |
 * | 5,000 × 10           | 3.5  | 2.6  | 2.3  | 2.7  | 3.2  | 4.8  | - s                 |
 */
const SERVICES_PER_STAGE = 25;

/**
 * The same where the kernel already holds our chains: each transaction then makes it walk all rules that traffic can
 * reach, so fewer ones are better (5,000 × 10 over the same rules: 25 → 10.6 s, 50 → 6.4 s, 100 → 5.3 s, 200 → 6.0 s).
 */
const SERVICES_PER_STAGE_LIVE = 100;

/** In the variant nft, whose cost grows with the square of the chains: 10,000 new ones take 2 s in one transaction, 0.3 s in ten. */
const CHAINS_PER_CHANGE = 1000;

/** How many service chains make a kernel count as one that already holds our rules. */
const LIVE_CHAINS = 1000;

/** How many chains a log line names. */
const NAMED = 5;

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
  /** Default {@linkcode CHECK_LIMITS}. */
  readonly checkLimits?: CheckLimits;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** iptables mode for one family. */
export class IptablesProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #iptables: Iptables;
  readonly #options: IptablesProxierOptions;
  readonly #session: FamilySession<IptablesSettings, CommittedRules>;
  /** Of the last sync that succeeded: what a Service keeps whose rules are refused. */
  #known: CommittedRules | undefined;
  /** Addresses that serve node ports, as the latest sync took them; null before. */
  #nodePortIps: readonly string[] | null = null;
  #mangleCanary = false;
  /** As the last full sync found it. */
  #nfacct = false;
  readonly #unreadableTables: UnreadableTables;
  readonly #rules: RuleLook;
  readonly #oneAtATime = new Mutex();
  readonly #staleChains: StaleChains;
  /** By looks since the last sync. */
  #failedDeletions = 0;

  constructor(options: IptablesProxierOptions) {
    const { iptables, settings, logger, nowMs = () => performance.now() } = options;
    const { family, variant } = iptables;
    this.family = family;
    this.#iptables = iptables;
    this.#options = options;
    this.#session = new FamilySession({ mode: "iptables", family, settings, nowMs });
    this.#staleChains = new StaleChains({ iptables, logger, nowMs });
    const consequence = ", and chains of former Services stay";
    this.#unreadableTables = new UnreadableTables({ family, log: logger, consequence });
    this.#rules = new RuleLook(iptables, options.checkLimits ?? CHECK_LIMITS[variant]);
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: IptablesSettings): boolean {
    return this.#session.configure(settings);
  }

  /**
   * Writes all rules, or only what the changed Services change. Everything is written if it is not known what the kernel
   * holds, whatever was asked.
   *
   * @throws {SyncError} if a program failed; its cause is the {@linkcode ExecError}
   */
  sync(request: SyncRequest): Promise<ApplyReport> {
    this.#rules.giveWay();
    return this.#oneAtATime.run(() => this.#sync(request));
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const { committed, operations, report } = await this.#session.sync(
      changed,
      (since) => since === null ? this.#syncAll(state) : this.#tryChanged(state, since),
    );
    this.#known = committed;
    this.#rules.written(changed);
    return this.#session.report({
      ...report,
      written: countWrittenRules(operations),
      total: committed.ruleCounts,
    });
  }

  /** Where the change is refused everything is written. */
  async #tryChanged(state: ProxyState, since: Since<CommittedRules>): Promise<Reached> {
    try {
      return await this.#syncChanged(state, since);
    } catch (error) {
      if (!(error instanceof SyncError) || !isRefusedAddition(error.cause)) throw error;
      // Whose rules were refused is found over what is read now: others may have changed something.
      this.#options.logger.info("A change was refused, everything is written again without what is refused", {
        family: this.family,
        problem: describeRefusal(error.cause as ExecError),
      });
      return await this.#syncAll(state);
    }
  }

  /** True if the addresses that serve node ports are others than those of the last sync. */
  isOutdated(): boolean {
    return this.#nodePortIps !== null && !sameTexts(this.#nodePortIps, this.#readNodePortIps());
  }

  /** A change waits for a look, so that what it writes is no damage; one that takes long gives way. */
  checkCanary(): Promise<false | null | Damage> {
    return this.#oneAtATime.run(() =>
      this.#session.look(async (committed) => {
        const damage = await this.#rules.look(committed, this.#mangleCanary);
        const found = damage === null ? null : noteDamage(damage, committed);
        if (damage !== null) this.#tellUnmoved(damage.unmoved);
        if (damage !== null) this.#staleChains.found(damage.leftover);
        // Without it chains that others used would stay until the next change, which may be days.
        if (!found) this.#failedDeletions += (await this.#staleChains.deleteDue()).failed;
        return found;
      })
    );
  }

  async #syncAll(state: ProxyState): Promise<Reached> {
    const [saved] = await this.#session.run(
      "read",
      () => Promise.all([this.#iptables.saveReadable(), this.#ensureCounters()]),
    );
    let { plan, operations, observed } = await this.#session.run(
      "plan",
      () => this.#planAll(state, observeTables(saved), NONE),
    );
    this.#staleChains.clear();
    let refused: readonly Refused<NamespacedName>[] = [];
    let written: WriteReport;
    try {
      written = await this.#write(plan, operations);
    } catch (error) {
      if (!(error instanceof SyncError) || !isRuleRefusal(error.cause)) throw error;
      const { cause } = error;
      refused = await this.#session.run("apply", () => this.#findRefused(plan, observed, cause));
      // Something of it may be in.
      const now = observeTables(await this.#session.run("read", () => this.#iptables.saveReadable()));
      const names = new Set(refused.map(({ item }) => item));
      ({ plan, operations, observed } = await this.#session.run(
        "plan",
        () => this.#planAll(state, now, names),
      ));
      written = await this.#write(plan, operations);
    }
    const hasCanary = hasMangleCanary(saved);
    // One that nobody can look for is no sign of anything.
    this.#mangleCanary = hasCanary || !observed.unreadable.has("mangle") && await this.#setMangleCanary();
    const committed = CommittedRules.of(plan, this.#known);
    for (const { item } of refused) {
      if (plan.services.has(item)) committed.keep(item, this.#known!.service(item)!);
    }
    this.#session.quarantine.replace(refused.map(({ item, problem }) => ({ service: item, problem })));
    // One has read the tables.
    const report = { ...written, commands: written.commands + (hasCanary ? 1 : 2) };
    return { committed, operations, report };
  }

  /** @param refused Services that stay as this process wrote them before, as far as that is still there */
  async #planAll(
    state: ProxyState,
    read: ObservedTables,
    refused: ReadonlySet<NamespacedName>,
  ): Promise<{ plan: IptablesPlan; operations: Operations; observed: ObservedTables }> {
    const wanted = await this.#plan(state, "all");
    this.#unreadableTables.tell(read.unreadable);
    const observed = read.unreadable.size === 0
      ? read
      : await observeByName(this.#iptables, wanted.base, read);
    const plan = refused.size === 0 ? wanted : withKept(wanted, refused, this.#known, observed);
    const staging = {
      staged: this.#iptables.variant === "nft",
      servicesPerStage: isLive(observed) ? SERVICES_PER_STAGE_LIVE : SERVICES_PER_STAGE,
    };
    return { plan, operations: withCanaries(stageFullSync(plan, observed, staging)), observed };
  }

  /** @throws `reason` if it is nobody's fault */
  async #findRefused(
    plan: IptablesPlan,
    observed: ObservedTables,
    reason: ExecError,
  ): Promise<readonly Refused<NamespacedName>[]> {
    await this.#iptables.restore(renderTransaction(chainsForServices(plan, observed)));
    const services = [...plan.services].filter((entry): entry is [NamespacedName, ServiceRules] =>
      entry[1] !== null
    );
    // The legacy variant replaces the whole table for every try.
    const together = this.#iptables.variant === "nft" ? SERVICES_PER_STAGE_LIVE : services.length;
    const refused = await refusedServices(this.#iptables, services, together);
    // Rules of a former life serve them all the while, which those in quarantine would lose.
    if (isWhatAllNeed(services, refused)) throw reason;
    return refused;
  }

  async #syncChanged(
    state: ProxyState,
    { changed, committed }: Since<CommittedRules>,
  ): Promise<Reached> {
    const suspects = new Set(this.#session.quarantine.due(changed));
    const { plan, operations } = await this.#planChange(state, changed.difference(suspects), committed);
    const report = await this.#write(plan, operations);
    committed.apply(plan);
    for (const name of suspects) await this.#tryAgain(state, name, committed);
    return { committed, operations, report };
  }

  #planChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    committed: CommittedRules,
  ): Promise<{ readonly plan: IptablesPlan; readonly operations: Operations }> {
    return this.#session.run("plan", async () => {
      const plan = await this.#plan(state, changed);
      return { plan, operations: diffIptables(plan, committed, this.#chainsPerTransaction) };
    });
  }

  /** Writes a quarantined Service after a try; it stays in quarantine, and as it was, if that is refused. */
  async #tryAgain(state: ProxyState, name: NamespacedName, committed: CommittedRules): Promise<void> {
    const { plan, operations } = await this.#planChange(state, new Set([name]), committed);
    const rules = plan.services.get(name) ?? null;
    const [refused] = rules === null
      ? []
      : await this.#session.run("apply", () => refusedServices(this.#iptables, [[name, rules]], 1));
    if (refused !== undefined) {
      this.#session.quarantine.refused({ service: name, problem: refused.problem });
      return;
    }
    await this.#write(plan, operations);
    committed.apply(plan);
    this.#session.quarantine.release(name);
  }

  get #chainsPerTransaction(): number {
    return this.#iptables.variant === "nft" ? CHAINS_PER_CHANGE : Infinity;
  }

  async #plan(state: ProxyState, changed: Changed): Promise<IptablesPlan> {
    this.#nodePortIps = this.#readNodePortIps();
    const steps = planIptablesInSteps(state, changed, {
      ...this.#session.settings,
      family: this.family,
      nodePortIps: this.#nodePortIps,
      randomFully: this.#iptables.hasRandomFully(),
      nfacct: this.#nfacct,
    });
    return await inTurns(steps, { turnMs: TURN_MS });
  }

  #readNodePortIps(): readonly string[] {
    const { nodePortAddresses } = this.#session.settings;
    return nodePortAddresses.matchAll ? [] : matchingNodeIps(nodePortAddresses, this.#options.interfaceIps());
  }

  async #write(plan: IptablesPlan, operations: Operations): Promise<WriteReport> {
    const { logger } = this.#options;
    if (logger.enabled(9)) {
      logger.info("Restoring iptables", { family: this.family, rules: renderOperations(operations) }, 9);
    }
    return await this.#session.run("apply", async () => {
      const isEmpty = operations.transactions.length === 0;
      const written = isEmpty ? NOTHING_WRITTEN : await writeOperations(this.#iptables, operations);
      for (const service of plan.services.values()) this.#staleChains.filled(service?.chains ?? []);
      this.#staleChains.flushed(written.flushed);
      const { commands, failed } = await this.#staleChains.deleteDue();
      const failedDeletions = failed + this.#failedDeletions;
      this.#failedDeletions = 0;
      return { commands: written.commands + commands, bytes: written.bytes, failedDeletions };
    });
  }

  /** Nobody can tell a program that writes nothing and says that all is well from one that prints two rules alike. */
  #tellUnmoved(chains: readonly string[]): void {
    if (chains.length === 0) return;
    this.#options.logger.error(
      "Chains are printed as before although they were written again; they are left as they are until they change",
      "iptables-restore says that all is well and writes nothing, others undo it at once, or both rules are printed alike",
      { family: this.family, chains: chains.slice(0, NAMED), count: chains.length },
    );
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

  /** True if the rules add to the counters. */
  get addsToCounters(): boolean {
    return this.#nfacct;
  }

  /** Table mangle holds nothing else of ours: a node without it is no reason to be without rules. */
  async #setMangleCanary(): Promise<boolean> {
    try {
      await this.#iptables.restore(`*mangle\n${chainLine(CANARY_CHAIN)}\nCOMMIT\n`);
      return true;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      this.#options.logger.error("Cannot set the canary of table mangle", error, { family: this.family });
      return false;
    }
  }
}

/** What a sync has led to, and what it wrote. */
interface Reached {
  readonly committed: CommittedRules;
  readonly operations: Operations;
  readonly report: WriteReport;
}

type WriteReport = Required<Pick<ApplyReport, "commands" | "bytes" | "failedDeletions">>;

const NOTHING_WRITTEN: Written = { commands: 0, bytes: 0, flushed: [] };

const NONE: ReadonlySet<NamespacedName> = new Set();

/**
 * The plan without what these Services want: they have what the kernel was known to hold of them, if all of their chains are still
 * there, else nothing.
 */
function withKept(
  plan: IptablesPlan,
  refused: ReadonlySet<NamespacedName>,
  known: CommittedRules | undefined,
  observed: ObservedTables,
): IptablesPlan {
  const services = new Map(plan.services);
  const keptChains = new Set<string>();
  for (const name of refused) {
    services.delete(name);
    const before = known?.service(name);
    if (before === undefined) continue;
    const chains = chainNames(before);
    if (!chains.every((chain) => observed.chains.nat.has(chain))) continue;
    const { dispatch, ruleCounts } = before;
    services.set(name, { dispatch, chains: [], chainCount: 0, rules: [], ruleText: "", ruleCounts });
    for (const chain of chains) keptChains.add(chain);
  }
  return { ...plan, services, keptChains };
}

/** True if the kernel holds so many of our chains that the number of transactions counts more than their size. */
function isLive({ chains }: ObservedTables): boolean {
  let count = 0;
  for (const chain of chains.nat) if (isServiceChain(chain) && ++count > LIVE_CHAINS) return true;
  return false;
}

/** The canaries of nat and filter ride on the last transaction of their table. */
function withCanaries(operations: Operations): Operations {
  const transactions = [...operations.transactions];
  for (const table of ["nat", "filter"] as const) {
    const at = transactions.findLastIndex((transaction) => transaction.table === table);
    const lines = [chainLine(CANARY_CHAIN), ...transactions[at]?.lines ?? []];
    if (at < 0) transactions.push({ table, lines });
    else transactions[at] = { table, lines };
  }
  return { transactions };
}
