/**
 * Common part of all modes' proxiers for one IP family: a full sync where it is not known what the kernel holds, else a
 * change; quarantine of Services whose rules are refused; state kept from sync to sync. A mode supplies the steps.
 *
 * @module
 */
import { ExecError, SyncError, type SyncPhase } from "../../errors.ts";
import { Mutex } from "../../kernel/clock.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { ProxyState } from "../../model/state.ts";
import type { Logger } from "../../observe/log.ts";
import type { ApplyReport, Damage, FamilyProxier, SyncRequest } from "../backend.ts";
import { Quarantine, type RefusedService } from "../quarantine.ts";
import { matchingNodeIps, type NodePortAddresses } from "../../model/node.ts";
import { sameTexts } from "../../model/service_port.ts";

/** Options of a {@linkcode Proxier}. */
export interface ProxierOptions<Settings> {
  readonly mode: string;
  readonly family: IpFamily;
  readonly settings: Settings;
  readonly logger: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: (() => number) | undefined;
  /** Addresses of all interfaces of the node, both families, where the rules name those that serve node ports. Default: they name none. */
  readonly interfaceIps?: () => readonly string[];
  /** Tables or kinds of objects of which written ones are counted. */
  readonly kinds: readonly string[];
  /** How often a full sync is repeated because more is refused. Default 1: `findRefused` finds all. */
  readonly rounds?: number;
  /** Mutex that each sync holds. Default: one of this family alone. */
  readonly mutex?: Mutex;
  /** True: drift checks hold the mutex, too, so that what a sync writes is no damage. Default: false. */
  readonly checksAlone?: boolean;
}

/** Counts of the sync under way. */
export interface Progress {
  commands: number;
  bytes: number;
  readonly written: Record<string, number>;
  /** True once the change was refused. */
  isChangeRefused?: boolean;
}

/** Progress of a sync that has not begun. */
export function newProgress(kinds: readonly string[]): Progress {
  return { commands: 0, bytes: 0, written: Object.fromEntries(kinds.map((kind) => [kind, 0])) };
}

/** Adds counts of what was written, by kind. */
export function addWritten({ written }: Progress, counts: Readonly<Record<string, number>>): void {
  for (const [kind, count] of Object.entries(counts)) written[kind] = (written[kind] ?? 0) + count;
}

/** Base class of proxiers; see the module. `Store`: known content of the kernel. */
export abstract class Proxier<Settings, Store> implements FamilyProxier {
  readonly family: IpFamily;
  protected readonly quarantine: Quarantine;
  protected readonly mutex: Mutex;
  /** Addresses that serve node ports, as the latest plan took them; empty before one, and where every address serves them. */
  protected nodePortIps: readonly string[] = [];
  /** Milliseconds, monotonic. */
  protected readonly nowMs: () => number;
  /** Counts of the sync under way. */
  protected progress: Progress;
  /** Store of the last sync that succeeded, even if later ones failed. */
  protected known: Store | undefined;
  /** Failed deletions of unused objects since the last report. */
  protected failedDeletions = 0;
  readonly #options: ProxierOptions<Settings>;
  #settings: Settings;
  #nodePortAddresses: NodePortAddresses | undefined;
  #state: ProxyState | null = null;
  /** Known content of the kernel; undefined until a full sync succeeds, and after a failure. */
  #store: Store | undefined;
  /** Milliseconds by phase of the last sync, in the order in which each was first entered; absent ones took none. */
  #elapsedMs: Record<string, number> = {};
  /** Counts syncs and new settings, so that a drift check sees that one came meanwhile. */
  #turns = 0;

  constructor(options: ProxierOptions<Settings>) {
    const { family, settings, kinds, nowMs = () => performance.now(), mutex = new Mutex() } = options;
    this.family = family;
    this.mutex = mutex;
    this.nowMs = nowMs;
    this.quarantine = new Quarantine(nowMs);
    this.progress = newProgress(kinds);
    this.#options = options;
    this.#settings = settings;
  }

  /** State of the latest sync; a view, which shows later changes. Null before. */
  get state(): ProxyState | null {
    return this.#state;
  }

  protected get settings(): Settings {
    return this.#settings;
  }

  /** True if the kernel's content is known. */
  protected get isCommitted(): boolean {
    return this.#store !== undefined;
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: Settings): boolean {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return false;
    this.#settings = settings;
    this.#store = undefined;
    this.#turns++;
    return true;
  }

  /**
   * Writes the difference: to the kernel's rules as read if unknown or if everything was asked for, else to
   * those written last. While it goes on, and after it failed, nothing counts as known.
   *
   * @throws {SyncError} if a program failed; its cause is the {@linkcode ExecError}
   */
  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.mutex.run(() => this.#sync(request));
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const store = this.#store;
    const settings = this.#settings;
    this.#state = state;
    this.#store = undefined;
    this.#turns++;
    this.#elapsedMs = {};
    this.progress = newProgress(this.#options.kinds);
    this.begin();
    const reached = changed === "all" || store === undefined
      ? await this.#syncAll(state)
      : await this.#syncChanged(state, changed, store);
    // New settings may have come meanwhile: then everything has to be written again.
    if (this.#settings === settings) this.#store = reached;
    this.known = reached;
    this.succeeded();
    return this.#report(reached);
  }

  /** The addresses that serve node ports now, for a plan. */
  protected takeNodePortIps(addresses: NodePortAddresses): readonly string[] {
    this.#nodePortAddresses = addresses;
    return this.nodePortIps = this.#readNodePortIps(addresses);
  }

  /** True if the addresses that serve node ports differ from those of the last plan. */
  isOutdated(): boolean {
    const addresses = this.#nodePortAddresses;
    return addresses !== undefined && !sameTexts(this.nodePortIps, this.#readNodePortIps(addresses));
  }

  #readNodePortIps(addresses: NodePortAddresses): readonly string[] {
    return addresses.matchAll ? [] : matchingNodeIps(addresses, this.#options.interfaceIps?.() ?? []);
  }

  /**
   * Checks the kernel for drift. False while its content is unknown, because a full sync is on its way then,
   * and where a sync or new settings came meanwhile: what those change is no damage.
   */
  findDamage(): Promise<false | null | Damage> {
    const find = (): Promise<false | null | Damage> => this.#findDamage();
    return this.#options.checksAlone === true ? this.mutex.run(find) : find();
  }

  async #findDamage(): Promise<false | null | Damage> {
    if (this.#store === undefined) return false;
    const turn = this.#turns;
    const isUndisturbed = (): boolean => this.#turns === turn;
    const found = await this.checkDrift(this.#store, isUndisturbed);
    return isUndisturbed() && found;
  }

  /** Called when a sync begins. */
  protected begin(): void {}

  /** Called when a sync has succeeded. */
  protected succeeded(): void {}

  /** Reads the kernel and writes the difference, but no new rules of `refused`. @returns the kernel's content */
  protected abstract writeAll(state: ProxyState, refused: ReadonlySet<NamespacedName>): Promise<Store>;

  /** Writes the rules of the changed Services, and of due ones in quarantine. Updates `store`. */
  protected abstract writeChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    store: Store,
  ): Promise<void>;

  /**
   * Writes a change, and then each due Service in quarantine by itself: a Service that is refused stays there.
   *
   * @param attempt writes one due Service; resolves to why it is refused, or to null. Default: calls `write`
   */
  protected async writeApart(
    changed: ReadonlySet<NamespacedName>,
    write: (names: ReadonlySet<NamespacedName>) => Promise<void>,
    attempt = (name: NamespacedName): Promise<string | null> =>
      write(new Set([name])).then(() => null, (error) => {
        const problem = this.refusal(error);
        if (problem === null) throw error;
        return problem;
      }),
  ): Promise<void> {
    const due = new Set(this.quarantine.due(changed));
    await write(changed.difference(due));
    const problems = new Map<NamespacedName, string>();
    for (const name of due) {
      const problem = await attempt(name);
      if (problem !== null) problems.set(name, problem);
    }
    this.quarantine.settle(due, problems);
  }

  /** See {@linkcode Proxier.findDamage}. @param isUndisturbed true if no sync came until now */
  protected abstract checkDrift(store: Store, isUndisturbed: () => boolean): Promise<false | null | Damage>;

  /** Number of objects of each kind in the kernel. */
  protected abstract total(store: Store): Readonly<Record<string, number>>;

  /** The refusal of rules that an error of a sync reports; null: it is another error. */
  protected refusal(error: unknown): string | null {
    return error instanceof SyncError && error.phase === "apply" ? this.describeRefusal(error.cause) : null;
  }

  /** The refusal of rules that an error of writing reports; null: it is another error. */
  protected describeRefusal(_error: unknown): string | null {
    return null;
  }

  /**
   * Finds the Services that are to blame for an error of {@linkcode Proxier.writeAll} that is a refusal. Then everything else is written.
   *
   * @throws the error if no Service is to blame, and it would be refused again
   */
  protected findRefused(_error: unknown): Promise<readonly RefusedService[]> {
    return Promise.resolve([]);
  }

  /** Message of an error; null: it is no failure of the sync, and is rethrown as it is. */
  protected describe(error: unknown): string | null {
    if (!(error instanceof Error)) return null;
    const around = error instanceof ExecError ? error.stderr.split("\n").slice(1) : [];
    return [error.message, ...around].join("\n").trimEnd();
  }

  /**
   * Does a part of a sync and adds its time to the phase.
   *
   * @throws {SyncError} if it fails
   */
  protected async run<T>(phase: SyncPhase, work: () => T | Promise<T>): Promise<T> {
    const startMs = performance.now();
    try {
      return await work();
    } catch (error) {
      const problem = this.describe(error);
      if (problem === null || error instanceof SyncError) throw error;
      throw new SyncError(this.#options.mode, phase, `${this.family}: ${problem}`, { cause: error });
    } finally {
      this.#elapsedMs[phase] = (this.#elapsedMs[phase] ?? 0) + performance.now() - startMs;
    }
  }

  /** Writes everything; if rules are refused, all but those: their Services are quarantined, and no others. */
  async #syncAll(state: ProxyState): Promise<Store> {
    const { rounds = 1 } = this.#options;
    this.quarantine.clear();
    const refused = new Set<NamespacedName>();
    for (let round = 0;; round++) {
      try {
        return await this.writeAll(state, refused);
      } catch (error) {
        if (round === rounds || this.refusal(error) === null) throw error;
        for (const one of await this.findRefused(error)) {
          refused.add(one.service);
          this.quarantine.refused(one);
        }
      }
    }
  }

  /** Writes a change; if it is refused, everything: only rules read in the same sync show which Service is to blame. */
  async #syncChanged(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    store: Store,
  ): Promise<Store> {
    try {
      await this.writeChange(state, changed, store);
      return store;
    } catch (error) {
      const problem = this.refusal(error);
      if (problem === null) throw error;
      this.progress.isChangeRefused = true;
      this.#options.logger.info("A change was refused, everything is written again without what is refused", {
        family: this.family,
        problem,
      });
      return await this.#syncAll(state);
    }
  }

  #report(store: Store): ApplyReport {
    const failedDeletions = this.failedDeletions;
    this.failedDeletions = 0;
    return {
      ...this.progress,
      total: { ...this.total(store) },
      phasesMs: this.#elapsedMs,
      quarantined: this.quarantine.services,
      ...failedDeletions === 0 ? {} : { failedDeletions },
    };
  }
}
