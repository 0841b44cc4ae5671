/**
 * Proxier of nftables mode for one IP family: writes everything once, in transactions of whole Services, then
 * only what changes, in one.
 *
 * @module
 */
import { ExecError, SyncError } from "../../../errors.ts";
import { describeNftFailure, type Nft } from "../../../kernel/nft.ts";
import { inTurns, TURN_MS } from "../../../kernel/clock.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import { sameTexts } from "../../../model/service_port.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { NftTransaction } from "../../../netfilter/nft_objects.ts";
import type { ListedTable } from "../../../netfilter/nft_listing.ts";
import { type NftFamily, nftFamily } from "../../../netfilter/nft_words.ts";
import type { Logger } from "../../../observe/log.ts";
import { Proxier } from "../../apply/proxier.ts";
import { StaleChains } from "../../apply/stale_chains.ts";
import type { Damage } from "../../backend.ts";
import type { RefusedService } from "../../quarantine.ts";
import { LAYOUT_SET, NEXT_TABLE_NAME, TABLE_NAME } from "../plan/chains.ts";
import { planNftablesInSteps } from "../plan/plan.ts";
import type { NftablesOptions, NftablesPlan } from "../plan/ruleset.ts";
import { FullSync, NO_TABLE, tableOf } from "../store/full_sync.ts";
import type { NftStore } from "../store/store.ts";
import { DriftCheck } from "./drift_check.ts";
import { isRejected, TableWriter } from "./table_writer.ts";

/**
 * Elements per transaction of a full sync. All at once is as fast, but a kernel that commits 100,000 elements in one go does
 * nothing else meanwhile, and the first Services would wait for the last. README.md has what was measured.
 */
const ELEMENTS_PER_TRANSACTION = 10_000;

/** Kernels before 6.2 learn this much later that a deleted element does not refer to a chain any more (kube-proxy's number). */
const DELETE_AFTER_MS = 1_000;

/** Settings that decide the rules and are known before the first sync. */
export type NftablesSettings = Omit<NftablesOptions, "family" | "nodePortIps" | "serviceCidrs">;

/** Options of an {@linkcode NftablesProxier}. */
export interface NftablesProxierOptions {
  readonly family: IpFamily;
  readonly nft: Nft;
  readonly settings: NftablesSettings;
  /** Addresses of all interfaces of the node, both families; asked before each sync unless every address serves node ports. */
  readonly interfaceIps: () => readonly string[];
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /** Default {@linkcode ELEMENTS_PER_TRANSACTION}. */
  readonly elementsPerTransaction?: number;
}

/** Proxier of nftables mode for one family. */
export class NftablesProxier extends Proxier<NftablesSettings, NftStore> {
  readonly #options: NftablesProxierOptions;
  readonly #staleChains: StaleChains;
  readonly #driftCheck: DriftCheck;
  #serviceCidrs: readonly string[] = [];
  /** The table that the full sync under way fills, and its plan. */
  #filling: { readonly name: string; readonly plan: NftablesPlan } | undefined;

  constructor(options: NftablesProxierOptions) {
    const { family, logger, nowMs } = options;
    super({ ...options, mode: "nftables", kinds: ["chains", "elements", "sets"] });
    this.#options = options;
    this.#driftCheck = new DriftCheck(options);
    this.#staleChains = new StaleChains({
      nowMs,
      waitMs: DELETE_AFTER_MS,
      retryMs: DELETE_AFTER_MS,
      remove: (names) => this.#writer(TABLE_NAME).deleteChains(names),
      report: (chains, problem) =>
        logger.info("Stale chains cannot be deleted yet", { family, chains, problem }, 2),
    });
  }

  /**
   * Takes other ServiceCIDRs over; the next sync writes the difference, whichever Services it is about.
   *
   * @param networks as nft prints them, of this family
   * @returns true if they differ
   */
  setServiceCidrs(networks: readonly string[]): boolean {
    if (sameTexts(networks, this.#serviceCidrs)) return false;
    this.#serviceCidrs = networks;
    return true;
  }

  protected override async checkDrift(
    store: NftStore,
    isUndisturbed: () => boolean,
  ): Promise<false | Damage> {
    const damage = await this.#driftCheck.look(store);
    // Without this stale chains would stay until the next change, which may be days.
    if (damage === false) {
      await this.mutex.run(async () => {
        // A sync may fill them again.
        if (isUndisturbed()) this.failedDeletions += (await this.#staleChains.deleteDue()).failed;
      });
    }
    return damage;
  }

  protected override total(store: NftStore): Readonly<Record<string, number>> {
    return { ...store.counts };
  }

  /** Message of a failed program; other errors are no failures of the sync. */
  protected override describe(error: unknown): string | null {
    return error instanceof ExecError ? describeNftFailure(error) : null;
  }

  protected override describeRefusal(error: unknown): string | null {
    return isRejected(error) ? describeNftFailure(error) : null;
  }

  protected override async writeAll(
    state: ProxyState,
    refused: ReadonlySet<NamespacedName>,
  ): Promise<NftStore> {
    this.#staleChains.clear();
    this.#filling = undefined;
    const found = await this.run(
      "read",
      () => readTables(this.#options.nft, nftFamily(this.family), entriesOf(state)),
    );
    this.progress.commands += found.commands;
    const plan = await this.run("plan", () => this.#plan(state, "all"));
    const store = await this.run("apply", () => this.#writeTables(plan, found, refused));
    this.#driftCheck.fullySynced();
    await this.#deleteDueChains();
    return store;
  }

  /** Services are tried in the table that was being filled, without base chains that let packets in. */
  protected override findRefused(error: unknown): Promise<readonly RefusedService[]> {
    // Without a table being filled, the refusal was about a table that could not be deleted.
    if (this.#filling === undefined) throw error;
    const { name, plan } = this.#filling;
    return this.run("apply", async () => {
      this.progress.commands++;
      const listed = await readTable(this.#options.nft, nftFamily(this.family), name, entriesOf(this.state));
      const sync = new FullSync(plan, listed ?? NO_TABLE);
      sync.base.baseChains.length = 0;
      const writer = this.#writer(name);
      await writer.fill({ base: sync.base, services: [], comment: plan.base.comment, isSmall: true });
      return await writer.findRefused(sync.services());
    });
  }

  /**
   * A table of another layout is replaced without a gap: a table of our layout by another name is built
   * beside it and let in, then the old one goes, ours is built in the same way, and the other one goes.
   *
   * Every step can be the last one before a crash. A table by the other name that packets reach is complete,
   * because they are let in last; one that they do not reach was left by a crash. Two tables that packets
   * reach do no harm: both lead to endpoints, and the first to translate an address is the only one.
   */
  async #writeTables(
    plan: NftablesPlan,
    { own, next }: FoundTables,
    refused: ReadonlySet<NamespacedName>,
  ): Promise<NftStore> {
    if (own !== null && own.ownerProblem !== null) {
      return await this.#writeBeside(plan, next, refused, own.ownerProblem);
    }
    let before = own ?? NO_TABLE;
    let isNextLive = next?.chains.values().some(({ hook }) => hook !== undefined) === true;
    if (own !== null && !own.containers.has(LAYOUT_SET)) {
      this.#options.logger.info("Replacing a table of another layout", {
        family: this.family,
        foundComment: own.comment,
        wanted: LAYOUT_SET,
      });
      if (!isNextLive) {
        if (next !== null) await this.#removeTable(NEXT_TABLE_NAME);
        await this.#build(NEXT_TABLE_NAME, plan, NO_TABLE, refused, TABLE_NAME);
      }
      await this.#removeTable(TABLE_NAME);
      before = NO_TABLE;
      isNextLive = true;
    }
    const store = await this.#build(TABLE_NAME, plan, before, refused, isNextLive ? NEXT_TABLE_NAME : null);
    if (isNextLive || next !== null) await this.#removeTable(NEXT_TABLE_NAME);
    return store;
  }

  /**
   * Writes everything into the table by the other name, because another process owns the one by our name: Services are served as they
   * are, at the cost of a full sync for each change, and every sync fails.
   *
   * @throws {SyncError} with the problem
   */
  async #writeBeside(
    plan: NftablesPlan,
    next: ListedTable | null,
    refused: ReadonlySet<NamespacedName>,
    problem: string,
  ): Promise<never> {
    await this.#build(NEXT_TABLE_NAME, plan, next ?? NO_TABLE, refused, null);
    const detour = `Services are served from table ${NEXT_TABLE_NAME} meanwhile`;
    throw new SyncError("nftables", "apply", `${this.family}: ${problem}; ${detour}`);
  }

  /**
   * Writes everything into a table.
   *
   * @param predecessor the table that packets go to until this one has everything; null if there is none. They are let
   * in by a transaction of its own: a hook takes effect before its rules, and a packet could see new chains before they
   * lead anywhere. Of two tables that packets reach the newer one translates first: it gets the clients before that.
   */
  async #build(
    name: string,
    plan: NftablesPlan,
    listed: ListedTable,
    refused: ReadonlySet<NamespacedName>,
    predecessor: string | null,
  ): Promise<NftStore> {
    this.#filling = { name, plan };
    const writer = this.#writer(name);
    const sync = new FullSync(plan, listed, refused);
    const { base, store } = sync;
    const letIn = new NftTransaction();
    if (predecessor !== null) letIn.baseChains.push(...base.baseChains.splice(0));
    const isSmall = entriesOf(this.state) < this.#elementsPerTransaction;
    await writer.fill({ base, services: sync.services(), comment: plan.base.comment, isSmall });
    if (predecessor !== null) await this.#carryClients(predecessor, store, writer);
    await writer.write(letIn);
    const leftover = sync.leftover();
    await writer.write(leftover);
    await writer.tryToDeleteContainers(sync.unknownContainers);
    if (name === TABLE_NAME) this.#staleChains.flushed(leftover.flushedChains);
    return store;
  }

  /**
   * Carries clients with session affinity over from another table, each with the time that it has left: only
   * into sets of the same name and timeout, because the kernel takes no client that would stay for longer
   * than a new one. If nft fails, clients choose anew, and nothing else comes of it.
   */
  async #carryClients(from: string, store: NftStore, writer: TableWriter): Promise<void> {
    const { nft, logger } = this.#options;
    const sets = [...store.serviceNames].flatMap((name) => store.service(name).containers);
    if (sets.length === 0) return;
    try {
      this.progress.commands++;
      const listed = await readTable(nft, nftFamily(this.family), from, entriesOf(this.state));
      const clients = new NftTransaction();
      for (const { name, timeoutSeconds } of sets) {
        const known = listed?.containers.get(name);
        if (known === undefined || known.timeoutSeconds !== timeoutSeconds) continue;
        for (const key of known.expiring) clients.addedElements.push({ container: name, key, value: "" });
      }
      await writer.write(clients);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      logger.warn("Clients may get another endpoint: they could not be carried over to the new table", {
        family: this.family,
        problem: describeNftFailure(error),
      });
    }
  }

  async #removeTable(name: string): Promise<void> {
    const table = tableOf(this.family, name);
    await this.#writer(name).run(`add table ${table}\ndelete table ${table}\n`, []);
  }

  protected override async writeChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    store: NftStore,
  ): Promise<void> {
    await this.writeApart(changed, (names) => this.#writeServices(state, names, store));
    await this.#deleteDueChains();
  }

  async #writeServices(
    state: ProxyState,
    names: ReadonlySet<NamespacedName>,
    store: NftStore,
  ): Promise<void> {
    const { transaction, commit } = await this.run(
      "plan",
      async () => store.change(await this.#plan(state, names)),
    );
    await this.run("apply", () => this.#write(transaction));
    commit();
  }

  async #write(transaction: NftTransaction): Promise<void> {
    this.#staleChains.forget(transaction.filledChains);
    await this.#writer(TABLE_NAME).write(transaction);
    this.#staleChains.flushed(transaction.flushedChains);
  }

  async #deleteDueChains(): Promise<void> {
    this.failedDeletions += (await this.run("apply", () => this.#staleChains.deleteDue())).failed;
  }

  #plan(state: ProxyState, changed: Changed): Promise<NftablesPlan> {
    const { settings } = this;
    const options: NftablesOptions = {
      ...settings,
      family: this.family,
      serviceCidrs: this.#serviceCidrs,
      nodePortIps: this.takeNodePortIps(settings.nodePortAddresses),
    };
    return inTurns(planNftablesInSteps(state, changed, options), { turnMs: TURN_MS });
  }

  get #elementsPerTransaction(): number {
    return this.#options.elementsPerTransaction ?? ELEMENTS_PER_TRANSACTION;
  }

  #writer(name: string): TableWriter {
    const { nft, logger } = this.#options;
    return new TableWriter({
      nft,
      table: tableOf(this.family, name),
      elementsPerTransaction: this.#elementsPerTransaction,
      logger,
      progress: this.progress,
    });
  }
}

/** About how many elements and rules a state makes: sets the time limit for listing them. */
function entriesOf(state: ProxyState | null): number {
  return state === null ? 0 : 2 * (state.endpointCount + 4 * state.services.size);
}

/** The tables of kproxy in the kernel; null: the table does not exist. */
interface FoundTables {
  readonly own: ListedTable | null;
  /** The table that is built beside ours while a layout changes, or where another process owns ours. */
  readonly next: ListedTable | null;
  /** Programs started, if there is nothing unusual. */
  readonly commands: number;
}

/** How often a list is read that looks as if another process' dry run had made it wrong. */
const MAX_READS = 3;

/**
 * @param entries about how many elements and rules there should be
 * @throws {ExecError} if nft cannot read
 */
async function readTables(nft: Nft, family: NftFamily, entries: number): Promise<FoundTables> {
  // Nearly every first sync finds no table, which one dry run for both shows.
  if (await isBlank(nft, family)) return { own: null, next: null, commands: 1 };
  // Both run at once; a failure of the first is reported first.
  const [list, look] = await Promise.allSettled([
    readTable(nft, family, TABLE_NAME, entries),
    nft.hasTable(family, NEXT_TABLE_NAME),
  ]);
  if (list.status === "rejected") throw list.reason;
  if (look.status === "rejected") throw look.reason;
  return {
    own: list.value,
    next: look.value ? await readTable(nft, family, NEXT_TABLE_NAME, entries) : null,
    commands: 3,
  };
}

/** True if neither table is there; false, too, where that is unknown: then reading them says why. */
async function isBlank(nft: Nft, family: NftFamily): Promise<boolean> {
  try {
    return await nft.hasNone(family, { tables: [TABLE_NAME, NEXT_TABLE_NAME] });
  } catch (error) {
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** Reads a table; null if there is none. */
async function readTable(
  nft: Nft,
  family: NftFamily,
  name: string,
  entries: number,
): Promise<ListedTable | null> {
  let before: string | null = null;
  for (let reads = 1;; reads++) {
    const listed = await nft.listTable(family, name, entries);
    if (listed === null || !isDoubtful(listed) || reads === MAX_READS) return listed;
    // Real damage is listed alike twice.
    const handles = JSON.stringify([...listed.handles]);
    if (handles === before) return listed;
    before = handles;
  }
}

/**
 * True if rules may have been left out or listed twice: Linux 6.18 does so, without a word, while another process tries rules or chains
 * (`nft -c`). Every chain of ours has rules, and no two rules of a table have one handle.
 */
function isDoubtful({ handles }: ListedTable): boolean {
  const all = [...handles.values()];
  return all.some((ofChain) => ofChain.length === 0) || new Set(all.flat()).size < all.flat().length;
}
