/**
 * What the proxier of one IP family remembers from sync to sync, in every mode: its settings, what the kernel is known to hold, which
 * Services are quarantined, and how the sync under way goes.
 *
 * @module
 */
import { ExecError, SyncError, type SyncPhase } from "../../errors.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { Changed } from "../../model/state.ts";
import type { ApplyReport } from "../backend.ts";
import type { Damage } from "../damage.ts";
import { Quarantine } from "../quarantine.ts";

/** What a {@linkcode FamilySession} needs. */
export interface FamilySessionOptions<Settings> {
  readonly mode: string;
  readonly family: IpFamily;
  readonly settings: Settings;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /**
   * Says what went wrong; null: it is no failure of the sync, and is thrown on as it is. Default: any error's message, and of a
   * program's all that it printed.
   */
  readonly describe?: (error: unknown) => string | null;
}

/** What has changed since this was committed. */
export interface Since<Committed> {
  readonly changed: ReadonlySet<NamespacedName>;
  readonly committed: Committed;
}

/** One family's memory. */
export class FamilySession<Settings, Committed> {
  readonly quarantine: Quarantine;
  readonly #options: FamilySessionOptions<Settings>;
  #settings: Settings;
  /** Undefined until a full sync succeeded, and after a failure: then what the kernel holds is unknown. */
  #committed: Committed | undefined;
  /** Milliseconds by phase of the last sync, in the order in which each was first entered; absent ones took none. */
  #elapsedMs: Record<string, number> = {};
  /** Counts syncs and new settings, so that a look can tell that one came meanwhile. */
  #turns = 0;

  constructor(options: FamilySessionOptions<Settings>) {
    this.#options = options;
    this.#settings = options.settings;
    this.quarantine = new Quarantine(options.nowMs);
  }

  get settings(): Settings {
    return this.#settings;
  }

  get isCommitted(): boolean {
    return this.#committed !== undefined;
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: Settings): boolean {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return false;
    this.#settings = settings;
    this.#committed = undefined;
    this.#turns++;
    return true;
  }

  /**
   * One sync. While it goes on, and after it failed, nothing counts as committed.
   *
   * @param write writes the difference since then; everything if that is null
   */
  async sync<Reached extends { readonly committed: Committed }>(
    changed: Changed,
    write: (since: Since<Committed> | null) => Promise<Reached>,
  ): Promise<Reached> {
    const committed = this.#committed;
    const settings = this.#settings;
    this.#committed = undefined;
    this.#turns++;
    this.#elapsedMs = {};
    const reached = await write(changed === "all" || committed === undefined ? null : { changed, committed });
    // New settings may have come meanwhile: then everything has to be written again.
    if (this.#settings === settings) this.#committed = reached.committed;
    return reached;
  }

  /**
   * Looks at what is committed. All is well while that is nothing, because a full sync is on its way then, and where a sync or new
   * settings came meanwhile: what those change is no damage.
   *
   * @param look is told, too, how to find out whether nothing came until now
   */
  async look<Found extends false | null | Damage>(
    look: (committed: Committed, isUndisturbed: () => boolean) => Promise<Found>,
  ): Promise<Found | false> {
    if (this.#committed === undefined) return false;
    const turn = this.#turns;
    const isUndisturbed = (): boolean => this.#turns === turn;
    const found = await look(this.#committed, isUndisturbed);
    return isUndisturbed() && found;
  }

  /**
   * Does a part of a sync and adds its time to the phase.
   *
   * @throws {SyncError} if it fails
   */
  async run<T>(phase: SyncPhase, work: () => T | Promise<T>): Promise<T> {
    const { mode, family, describe = describeFailure } = this.#options;
    const startMs = performance.now();
    try {
      return await work();
    } catch (error) {
      const problem = describe(error);
      if (problem === null) throw error;
      throw new SyncError(mode, phase, `${family}: ${problem}`, { cause: error });
    } finally {
      this.#elapsedMs[phase] = (this.#elapsedMs[phase] ?? 0) + performance.now() - startMs;
    }
  }

  /** The report of the sync that has just ended. */
  report({ failedDeletions = 0, ...written }: Omit<ApplyReport, "phasesMs" | "quarantined">): ApplyReport {
    return {
      ...written,
      phasesMs: this.#elapsedMs,
      quarantined: this.quarantine.services,
      ...failedDeletions === 0 ? {} : { failedDeletions },
    };
  }
}

function describeFailure(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  const around = error instanceof ExecError ? error.stderr.split("\n").slice(1) : [];
  return [error.message, ...around].join("\n").trimEnd();
}
