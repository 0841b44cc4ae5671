/**
 * Proxier of iptables mode for one IP family: writes what differs from the kernel's rules, then only what changes.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { failedLine, failedLines, isRuleRefusal } from "../../../kernel/tool_errors.ts";
import { inTurns, TURN_MS } from "../../../kernel/clock.ts";
import type { NfacctCounters } from "../../../kernel/nfacct.ts";
import { UnreadableTables } from "../../../kernel/iptables_by_name.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { Logger } from "../../../observe/log.ts";
import {
  type Candidate,
  describeRefusal,
  isWhatAllNeed,
  refusedServices,
} from "../../apply/iptables_trial.ts";
import { addWritten, Proxier } from "../../apply/proxier.ts";
import { StaleChains } from "../../apply/stale_chains.ts";
import type { ApplyReport, Damage, SyncRequest } from "../../backend.ts";
import type { Refusal, RefusedService } from "../../quarantine.ts";
import { JUMP_RULES, OWN_CHAINS } from "../plan/base_rules.ts";
import { CANARY_CHAIN, isServiceChain } from "../plan/chains.ts";
import { planIptables, planIptablesInSteps } from "../plan/plan.ts";
import { COUNTERS, type IptablesOptions, type IptablesPlan } from "../plan/ruleset.ts";
import { fullSync, fullSyncInSteps, type HeldTables } from "../store/full_sync.ts";
import type { IptablesStore } from "../store/store.ts";
import type { IptablesTransaction } from "../store/transaction.ts";
import { DriftCheck } from "./drift_check.ts";
import { type OwnRules, readTables } from "./table_reading.ts";

/** Chains of Services per block in the nft variant, as measured (README.md): where the kernel holds none of ours, and where it does. */
const CHAINS_PER_BLOCK = 300;
const CHAINS_PER_BLOCK_LIVE = 1_200;
/** How many service chains make a kernel count as one that already holds our rules. */
const LIVE_CHAINS = 1_000;
const OWN_RULES: OwnRules = { chains: OWN_CHAINS, jumps: JUMP_RULES };
/** Pause before another try to delete a chain that could not be deleted, mostly because others' rules jump to it. */
const RETRY_DELETION_MS = 10_000;
/** How many Services are tried together in the nft variant; the legacy variant replaces the whole table for every try. */
const TRIED_TOGETHER = 100;

/** Settings that decide the rules and are known before the first sync. */
export type IptablesSettings = Omit<IptablesOptions, "family" | "nodePortIps" | "nfacct">;

/** Options of an {@linkcode IptablesProxier}. */
export interface IptablesProxierOptions {
  readonly iptables: Iptables;
  /** nfacct counters that rules add to, shared by both families; without them rules count by themselves. */
  readonly counters?: NfacctCounters;
  readonly settings: IptablesSettings;
  /** Addresses of all interfaces of the node, both families; asked before each sync unless every address serves node ports. */
  readonly interfaceIps: () => readonly string[];
  readonly logger: Logger;
  /** Threshold of {@linkcode DriftCheck}. */
  readonly largeChains?: number;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** Proxier of iptables mode for one family. */
export class IptablesProxier extends Proxier<IptablesSettings, IptablesStore> {
  readonly #iptables: Iptables;
  readonly #options: IptablesProxierOptions;
  /** Plan and listed tables of the full sync under way. */
  #full: { readonly plan: IptablesPlan; readonly held: HeldTables } | undefined;
  #mangleCanary = false;
  /** True if the last full sync found that rules can use nfacct. */
  #nfacct = false;
  readonly #unreadableTables: UnreadableTables;
  readonly #driftCheck: DriftCheck;
  readonly #staleChains: StaleChains;

  constructor(options: IptablesProxierOptions) {
    const { iptables, logger, largeChains } = options;
    const { family } = iptables;
    super({ ...options, mode: "iptables", family, kinds: ["filter", "nat"], checksAlone: true });
    this.#iptables = iptables;
    this.#options = options;
    this.#staleChains = new StaleChains({
      nowMs: this.nowMs,
      waitMs: 0,
      retryMs: RETRY_DELETION_MS,
      remove: (names) => deleteChains(iptables, names),
      report: (chains, problem) =>
        logger.warn("Chains of Services that are gone cannot be deleted and stay, empty: others use them", {
          family,
          chains,
          problem,
          advice: "find the rules that jump to them in what iptables-save prints",
        }),
    });
    const consequence = ", and chains of former Services stay";
    this.#unreadableTables = new UnreadableTables({ family, log: logger, consequence });
    this.#driftCheck = new DriftCheck({ iptables, own: OWN_RULES, logger, nowMs: this.nowMs, largeChains });
  }

  /** True if the rules add to the counters. */
  get addsToCounters(): boolean {
    return this.#nfacct;
  }

  override sync(request: SyncRequest): Promise<ApplyReport> {
    // A sync waits for a drift check; a long check gives way to it.
    this.#driftCheck.giveWay();
    return super.sync(request);
  }

  protected override async checkDrift(store: IptablesStore): Promise<false | null | Damage> {
    const looked = await this.#driftCheck.look(store, {
      family: this.family,
      canaries: this.#mangleCanary ? ["mangle", "nat", "filter"] : ["nat", "filter"],
      plan: (names) => planIptables(this.state!, names, this.#planOptions()),
    });
    this.#foundStale(looked?.leftover ?? []);
    // Otherwise stale chains that others used would stay until the next change, which may be days.
    if (looked === null || looked.damage === false) {
      this.failedDeletions += (await this.#staleChains.deleteDue()).failed;
    }
    return looked === null ? null : looked.damage;
  }

  #foundStale(names: readonly string[]): void {
    const chains = names.filter((name) => !this.#staleChains.has(name));
    if (chains.length === 0) return;
    this.#options.logger.info("Chains of Services that are gone are still there, deleting them", {
      family: this.family,
      chains,
    });
    this.#staleChains.flushed(chains);
  }

  protected override total(store: IptablesStore): Readonly<Record<string, number>> {
    return { ...store.ruleCounts };
  }

  protected override describeRefusal(error: unknown): string | null {
    return isRuleRefusal(error) ? describeRefusal(error) : null;
  }

  protected override async writeAll(
    state: ProxyState,
    refused: ReadonlySet<NamespacedName>,
  ): Promise<IptablesStore> {
    const [held] = await this.run(
      "read",
      () => Promise.all([readTables(this.#iptables, OWN_RULES), this.#ensureCounters()]),
    );
    this.progress.commands++;
    this.#unreadableTables.report(held.unreadable);
    const { plan, transaction, store } = await this.run("plan", async () => {
      const plan = await this.#plan(state, "all");
      const steps = fullSyncInSteps(plan, held, { family: this.family, former: this.known, refused });
      return { plan, ...await inTurns(steps, { turnMs: TURN_MS }) };
    });
    this.#full = { plan, held };
    this.#staleChains.clear();
    await this.#write(plan, transaction, this.#chainsPerBlock(held));
    const hasCanary = held.tables.get("mangle")?.has(CANARY_CHAIN) === true;
    // If table mangle cannot be read, its canary shows nothing.
    this.#mangleCanary = hasCanary || !held.unreadable.has("mangle") && await this.#setMangleCanary();
    this.#driftCheck.fullySynced();
    return store;
  }

  protected override findRefused(error: unknown): Promise<readonly RefusedService[]> {
    const { plan, held } = this.#full!;
    return this.run("apply", async () => {
      // First the chains to which rules of every Service may jump.
      const { transaction } = fullSync({ ...plan, services: new Map() }, held, { family: this.family });
      const { chains, rules } = transaction.edits.nat;
      await this.#iptables.restore(tableBlock("nat", [...chains.map(chainLine), ...rules]));
      const services = [...plan.services].flatMap(([name, rules]): Candidate[] =>
        rules === null ? [] : [[name, rules]]
      );
      const together = this.#iptables.variant === "nft" ? TRIED_TOGETHER : services.length;
      const refused = await refusedServices(this.#iptables, services, together);
      // Rules of a previous process still serve the Services, and Services in quarantine would lose theirs.
      if (isWhatAllNeed(services, refused)) throw error;
      return refused;
    });
  }

  protected override async writeChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    store: IptablesStore,
  ): Promise<void> {
    const plan = (names: ReadonlySet<NamespacedName>): Promise<IptablesPlan> =>
      this.run("plan", () => this.#plan(state, names));
    const write = async (plan: IptablesPlan): Promise<void> => {
      const change = await this.run("plan", () => store.change(plan));
      await this.#write(plan, change.transaction, this.#chainsPerChange);
      change.commit();
    };
    await this.writeApart(changed, async (names) => write(await plan(names)), async (name) => {
      const one = await plan(new Set([name]));
      const problem = await this.#refusalOf(one, name);
      if (problem === null) await write(one);
      return problem;
    });
  }

  /** Tries the rules of a Service first, because writing them takes more than one transaction. */
  async #refusalOf({ services }: IptablesPlan, name: NamespacedName): Promise<string | null> {
    const rules = services.get(name) ?? null;
    if (rules === null) return null;
    const [refused] = await this.run(
      "apply",
      () => refusedServices(this.#iptables, [[name, rules]], 1),
    );
    return refused?.problem ?? null;
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
    this.takeNodePortIps(this.settings.nodePortAddresses);
    return inTurns(planIptablesInSteps(state, changed, this.#planOptions()), { turnMs: TURN_MS });
  }

  #planOptions(): IptablesOptions {
    return {
      ...this.settings,
      family: this.family,
      nodePortIps: this.nodePortIps,
      nfacct: this.#nfacct,
    };
  }

  async #write(plan: IptablesPlan, transaction: IptablesTransaction, mostChains: number): Promise<void> {
    const { logger } = this.#options;
    if (logger.enabled(9)) {
      logger.info("Restoring iptables", {
        family: this.family,
        rules: [...transaction.blocks(mostChains)].join(""),
      }, 9);
    }
    await this.run("apply", async () => {
      const { commands, bytes, flushed } = await writeTransaction(this.#iptables, transaction, mostChains);
      for (const service of plan.services.values()) this.#staleChains.forget(service?.chains ?? []);
      this.#staleChains.flushed(flushed);
      const deleted = await this.#staleChains.deleteDue();
      this.progress.commands += commands + deleted.commands;
      this.progress.bytes += bytes;
      addWritten(this.progress, transaction.counts);
      this.failedDeletions += deleted.failed;
    });
  }

  /** Creates missing counters: they may be gone with our rules, and a rule that names a missing one is refused. */
  async #ensureCounters(): Promise<void> {
    const { counters, logger } = this.#options;
    if (counters === undefined) return;
    try {
      await counters.ensure();
      // Support in the kernel does not change.
      if (!this.#nfacct) await this.#iptables.tryCounter(COUNTERS.invalidDropped);
      this.#nfacct = true;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      this.#nfacct = false;
      const { message: problem } = error;
      logger.info("Rules do without the counters of nfacct", { family: this.family, problem }, 2);
    }
  }

  /** Sets the canary of table mangle; failures are only logged, because the table holds nothing else of ours. */
  async #setMangleCanary(): Promise<boolean> {
    this.progress.commands++;
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

/** Result of a written transaction. */
interface Written {
  /** Programs started. */
  readonly commands: number;
  readonly bytes: number;
  /** Chains that were flushed but are not deleted. */
  readonly flushed: readonly string[];
}

const DELETION_REGEXP = /^-X (.*)\n/gm;

/**
 * Writes all blocks, in order, with one process unless a deletion is refused.
 *
 * @param mostChains chains of one block, about
 * @throws {ExecError} if something else than a deletion is refused, or if it is unknown what
 */
async function writeTransaction(
  iptables: Iptables,
  transaction: IptablesTransaction,
  mostChains: number,
): Promise<Written> {
  if (transaction.isEmpty) return { commands: 0, bytes: 0, flushed: [] };
  let bytes = 0;
  try {
    // In pieces: 10,000 Services are 30 MB of text, and the program starts with the first block at once.
    await iptables.restore(function* () {
      bytes = 0;
      for (const block of transaction.blocks(mostChains)) {
        bytes += block.length;
        yield block;
      }
    });
    return { commands: 1, bytes, flushed: [] };
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const rest = sinceRefusedDeletion(transaction.blocks(mostChains), failedLine(error.stderr));
    if (rest === null) throw error;
    const text = rest.replace(DELETION_REGEXP, "");
    await iptables.restore(text);
    const flushed = Array.from(rest.matchAll(DELETION_REGEXP), ([, chain = ""]) => chain);
    return { commands: 2, bytes: text.length, flushed };
  }
}

/** The blocks from the one whose line deletes a chain: those before it are committed. Null: the line is no deletion. */
function sinceRefusedDeletion(blocks: Iterable<string>, line: number | null): string | null {
  if (line === null) return null;
  let rest: string | null = null;
  let before = 0;
  for (const block of blocks) {
    if (rest !== null) {
      rest += block;
      continue;
    }
    const lines = block.split("\n");
    // The last line is empty.
    if (line < before + lines.length) {
      if (lines[line - before - 1]?.startsWith("-X ") !== true) return null;
      rest = block;
    }
    before += lines.length - 1;
  }
  return rest;
}

/**
 * Deletes chains of table nat, all of them or none.
 *
 * @returns the chains that the program names if it refuses some
 * @throws {ExecError} if it fails and says nothing of a line
 */
async function deleteChains(
  iptables: Iptables,
  names: readonly string[],
): Promise<Refusal<string> | null> {
  // A chain must be empty; declaring it also makes one that another program deleted, so that it can be deleted.
  const lines = [...names.map(chainLine), ...names.map((name) => `-X ${name}`)];
  try {
    await iptables.restore(tableBlock("nat", lines), { counters: false });
    return null;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const named = failedLines(error.stderr).flatMap((line) => {
      // The first line is `*nat`.
      const item = names[line - 2 - names.length];
      return item === undefined ? [] : [{ item, problem: error.message }];
    });
    if (named.length === 0) throw error;
    return { problem: error.message, named };
  }
}
