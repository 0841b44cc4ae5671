/**
 * Brings the rules of one IP family into the kernel: everything once, in transactions of whole Services, then only what
 * changes, in one.
 *
 * @module
 */
import { ExecError, SyncError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import { inTurns, TURN_MS, turnSince } from "../../../kernel/turns.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import { describeNftFailure, nftFailureKind } from "../../../kernel/nft_failure.ts";
import { matchingNodeIps } from "../../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import { sameTexts } from "../../../model/service_port.ts";
import type { ProxyState } from "../../../model/state.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import type { Refused } from "../../isolate.ts";
import { TableLook } from "./apply_check.ts";
import { carryClients } from "./apply_clients.ts";
import {
  type FoundTables,
  isOtherLayout,
  moveAside,
  NO_TABLES,
  READ_COMMANDS,
  readTables,
} from "./apply_layout.ts";
import { StaleChains } from "./apply_stale_chains.ts";
import { type Progress, Writer } from "./apply_writer.ts";
import { FAMILY_WORDS, LAYOUT_SET, NEXT_TABLE_NAME, TABLE_NAME } from "../plan/chains.ts";
import type { CommittedService, CommittedTable } from "../diff/committed.ts";
import { diffNftables, isEmpty } from "../diff/diff.ts";
import { diffObservedStepwise, NO_TABLE, type StepwiseFullSync } from "../diff/diff_observed.ts";
import { keptService, withoutKept } from "../diff/kept_service.ts";
import { planChange } from "../diff/plan_change.ts";
import { planNftablesInSteps } from "../plan/plan.ts";
import type { NftablesOptions, NftablesPlan, ObservedTable, Operations } from "../plan/ruleset.ts";
import {
  plannedWeight,
  type ServiceText,
  staleChainNames,
  type TableAddress,
  writtenChainNames,
} from "../diff/transactions.ts";

/**
 * Elements per transaction of a full sync. All at once is as fast, but a kernel that commits 100,000 elements in one go does
 * nothing else meanwhile, and the first Services would wait for the last. README.md has what was measured.
 */
const ELEMENTS_PER_TRANSACTION = 10_000;

/**
 * How long nobody is thought to have made our tables since a look found none. A start takes less, and who did make one leaves what the
 * next check finds.
 */
const BLANK_MS = 5_000;

/** What decides the rules, as far as it is known before the first sync. */
export type NftablesSettings = Omit<NftablesOptions, "family" | "nodePortIps" | "serviceCidrs">;

/** What an {@linkcode NftablesProxier} needs. */
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
  /** By `nowMs`, when the node was seen to have none of our tables; the first sync need not look again soon after. Null, as by default: never. */
  readonly blankAtMs?: number | null;
}

/** nftables mode for one family. */
export class NftablesProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: NftablesProxierOptions;
  readonly #address: TableAddress;
  readonly #staleChains: StaleChains;
  readonly #look: TableLook;
  readonly #session: FamilySession<NftablesSettings, CommittedTable>;
  #serviceCidrs: readonly string[] = [];
  #state: ProxyState | null = null;
  /** Of stale chains, by the check under way. */
  #deletion: Promise<void> | null = null;
  /** Chains that checks since the last sync could not delete. */
  #failedDeletions = 0;
  #blankAtMs: number | null;
  /** Of the sync under way. */
  #progress: Progress = newProgress();

  constructor(options: NftablesProxierOptions) {
    const { family, nft, settings, logger, nowMs, blankAtMs = null } = options;
    this.#blankAtMs = blankAtMs;
    this.family = family;
    this.#options = options;
    this.#address = addressOf(family, TABLE_NAME);
    this.#session = new FamilySession({ mode: "nftables", family, settings, nowMs, describe });
    this.#look = new TableLook({ nft, family, logger, nowMs });
    this.#staleChains = new StaleChains({ nft, address: this.#address, family, logger, nowMs });
  }

  /** Of the latest sync; a view, which shows what came since. Null before. */
  get state(): ProxyState | null {
    return this.#state;
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: NftablesSettings): boolean {
    return this.#session.configure(settings);
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

  /**
   * Writes what differs: from what the kernel holds if that is not known or everything was asked for, else from what was
   * committed. Services that the kernel refuses stay as they were if the others go in without them; that is tried only over
   * what was read in the same sync.
   *
   * @throws {SyncError} if nft failed; its cause is the {@linkcode ExecError}
   */
  async sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    // A chain that is being deleted may be one that this sync fills again.
    if (this.#deletion !== null) await this.#deletion;
    this.#state = state;
    this.#progress = newProgress();
    const { committed, failedDeletions } = await this.#session.sync(changed, async (since) => {
      const committed = since === null ? await this.#syncAll(state) : await this.#syncChanged(state, since);
      this.#look.written(since?.changed ?? "all", committed);
      const failed = await this.#session.run("apply", () => this.#staleChains.deleteDue());
      const failedDeletions = this.#failedDeletions + failed;
      this.#failedDeletions = 0;
      return { committed, failedDeletions };
    });
    const { elements, chains, affinitySets } = committed.counts;
    return this.#session.report({
      ...this.#progress,
      total: { elements, chains, sets: committed.base.containers.length + affinitySets },
      failedDeletions,
    });
  }

  /** Says that all is well while nothing is committed: then a full sync is on its way. */
  async checkCanary(): Promise<false | Damage> {
    return await this.#session.look(async (committed, isUndisturbed) => {
      const damage = await this.#look.look(committed);
      // Without it they would stay until the next change, which may be days.
      if (damage === false && isUndisturbed()) await this.#deleteStaleChains();
      return damage;
    });
  }

  async #deleteStaleChains(): Promise<void> {
    if (this.#staleChains.isEmpty) return;
    const deletion = this.#staleChains.deleteDue();
    this.#deletion = Promise.allSettled([deletion]).then(() => {});
    try {
      this.#failedDeletions += await deletion;
    } finally {
      this.#deletion = null;
    }
  }

  async #syncAll(state: ProxyState): Promise<CommittedTable> {
    const { nft } = this.#options;
    this.#staleChains.clear();
    const entries = entriesOf(state);
    const found = this.#takeBlank() ??
      await this.#session.run("read", () => {
        this.#progress.commands += READ_COMMANDS;
        return readTables(nft, nftFamily(this.family), entries);
      });
    const plan = await this.#session.run(
      "plan",
      () => inTurns(planNftablesInSteps(state, "all", this.#nftablesOptions()), { turnMs: TURN_MS }),
    );
    if (found.problem !== null) return await this.#syncBeside(plan, found.observedNext, found.problem);
    const isOther = isOtherLayout(found.observed);
    const writer = this.#writer(this.#address);
    const remove = (name: string): Promise<void> => writer.deleteTable(addressOf(this.family, name).table);
    if (isOther) {
      this.#options.logger.info("Replacing a table of another layout", {
        family: this.family,
        foundComment: found.observed?.comment,
        wanted: LAYOUT_SET,
      });
      const aside = this.#writer(addressOf(this.family, NEXT_TABLE_NAME));
      await this.#session.run(
        "apply",
        () =>
          moveAside(
            plan,
            found,
            aside,
            remove,
            (refused) => this.#carryClients(TABLE_NAME, plan, refused, aside),
          ),
      );
    }
    // Then packets go on to the other table until ours has everything.
    const isSuccessor = isOther || found.next === "live";
    const observed = isOther ? NO_TABLE : found.observed ?? NO_TABLE;
    const steps = await this.#session.run("plan", () => diffObservedStepwise(plan, observed));
    return await this.#session.run("apply", async () => {
      const refused = await this.#writeAll(writer, plan, steps, !isSuccessor);
      if (isSuccessor) {
        await this.#carryClients(NEXT_TABLE_NAME, plan, refused, writer);
        await writer.writeHooks(steps.base);
      }
      const { leftover: unwanted, committed, unknownContainers } = steps.end();
      const kept = new Map<NamespacedName, CommittedService>();
      for (const { item: { name } } of refused) {
        const rules = plan.services.get(name);
        if (rules) kept.set(name, keptService(name, rules, observed));
      }
      const leftover = withoutKept(unwanted, kept.values());
      await writer.writeLeftover(leftover);
      await writer.tryToDeleteContainers(unknownContainers);
      for (const [name, service] of kept) committed.keep(name, service);
      this.#staleChains.flushed(leftover.staleChains);
      if (isOther || found.next !== "absent") await remove(NEXT_TABLE_NAME);
      return committed;
    });
  }

  /** What a first sync finds without looking; null if it must look. */
  #takeBlank(): FoundTables | null {
    const atMs = this.#blankAtMs;
    this.#blankAtMs = null;
    return atMs !== null && this.#options.nowMs() - atMs < BLANK_MS ? NO_TABLES : null;
  }

  /**
   * Writes everything into the table by the other name, because the one by our name is somebody else's: Services are served as they
   * are, at the cost of a full sync each, and nobody is told that all is well.
   *
   * @throws {SyncError} with the problem
   */
  async #syncBeside(plan: NftablesPlan, observed: ObservedTable | null, problem: string): Promise<never> {
    await this.#session.run("apply", async () => {
      const writer = this.#writer(addressOf(this.family, NEXT_TABLE_NAME));
      const steps = diffObservedStepwise(plan, observed ?? NO_TABLE);
      await this.#writeAll(writer, plan, steps, true);
      const { leftover, unknownContainers } = steps.end();
      await writer.writeLeftover(leftover);
      await writer.tryToDeleteContainers(unknownContainers);
    });
    const detour = `Services are served from table ${NEXT_TABLE_NAME} meanwhile`;
    throw new SyncError("nftables", "apply", `${this.family}: ${problem}; ${detour}`);
  }

  async #writeAll(
    writer: Writer,
    plan: NftablesPlan,
    steps: StepwiseFullSync,
    hooked: boolean,
  ): Promise<readonly Refused<ServiceText>[]> {
    const { base: { comment }, base } = plan;
    const refused = await writer.writeTable(steps, base, { comment, hooked, weight: plannedWeight(plan) });
    this.#session.quarantine.replace(
      refused.map(({ item: { name }, problem }) => ({ service: name, problem })),
    );
    return refused;
  }

  async #carryClients(
    from: string,
    plan: NftablesPlan,
    refused: readonly Refused<ServiceText>[],
    writer: Writer,
  ): Promise<void> {
    const { nft, logger } = this.#options;
    const read = async (): Promise<string | null> => {
      this.#progress.commands++;
      return await nft.listTable(nftFamily(this.family), from, entriesOf(this.#state));
    };
    await carryClients({ read, plan, refused, writer, logger });
  }

  async #syncChanged(
    state: ProxyState,
    { changed, committed }: Since<CommittedTable>,
  ): Promise<CommittedTable> {
    const suspects = new Set(this.#session.quarantine.due(changed));
    const { plan, operations } = await this.#session.run("plan", async () => {
      const startMs = performance.now();
      const plan = planChange(state, changed.difference(suspects), this.#nftablesOptions(), committed);
      await turnSince(startMs);
      return { plan, operations: diffNftables(plan, committed) };
    });
    if (!isEmpty(operations)) await this.#session.run("apply", () => this.#write(operations));
    committed.apply(plan);
    for (const name of suspects) {
      await this.#session.run("apply", () => this.#tryAgain(state, name, committed));
    }
    return committed;
  }

  async #write(operations: Operations): Promise<void> {
    this.#staleChains.filled(writtenChainNames(operations));
    await this.#writer(this.#address).write(operations);
    this.#staleChains.flushed(staleChainNames(operations));
  }

  /** Writes a quarantined Service in a transaction of its own; it stays in quarantine if that is refused. */
  async #tryAgain(state: ProxyState, name: NamespacedName, committed: CommittedTable): Promise<void> {
    const plan = planChange(state, new Set([name]), this.#nftablesOptions(), committed);
    const operations = diffNftables(plan, committed);
    try {
      if (!isEmpty(operations)) await this.#write(operations);
    } catch (error) {
      if (!(error instanceof ExecError) || nftFailureKind(error) !== "rejected") throw error;
      this.#session.quarantine.refused({ service: name, problem: describeNftFailure(error) });
      return;
    }
    committed.apply(plan);
    this.#session.quarantine.release(name);
  }

  #nftablesOptions(): NftablesOptions {
    const { interfaceIps } = this.#options;
    const { settings, settings: { nodePortAddresses } } = this.#session;
    return {
      ...settings,
      family: this.family,
      serviceCidrs: this.#serviceCidrs,
      nodePortIps: nodePortAddresses.matchAll ? [] : matchingNodeIps(nodePortAddresses, interfaceIps()),
    };
  }

  #writer(address: TableAddress): Writer {
    const { nft, logger, elementsPerTransaction = ELEMENTS_PER_TRANSACTION } = this.#options;
    return new Writer({ nft, address, elementsPerTransaction, logger, progress: this.#progress });
  }
}

/** What no program failed in is no failure of the sync. */
function describe(error: unknown): string | null {
  return error instanceof ExecError ? describeNftFailure(error) : null;
}

/** About how many elements and rules a state makes: what a list of them is given time for. */
function entriesOf(state: ProxyState | null): number {
  return state === null ? 0 : 2 * (state.endpointCount + 4 * state.services.size);
}

function newProgress(): Progress {
  return { commands: 0, bytes: 0, written: { chains: 0, elements: 0, sets: 0 } };
}

function addressOf(family: IpFamily, name: string): TableAddress {
  const { ip, addressType } = FAMILY_WORDS[family];
  return { table: `${ip} ${name}`, addressType };
}
