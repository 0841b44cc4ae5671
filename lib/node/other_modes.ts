/**
 * A node that changes its mode: leftovers of other modes are removed as soon as the new rules are in force,
 * and not before, so that no connection fails in between.
 *
 * @module
 */
import { countLeftovers, type LeftoverReport } from "../backend/node/cleanup.ts";
import type { CleanupMode } from "../config/types.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { Runner } from "../kernel/runner.ts";
import type { Exec } from "../kernel/exec.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import { errorText, type Logger } from "../observe/log.ts";
import { observeFirstSyncs } from "../sync/sync_observer.ts";
import type { SyncObserver } from "../sync/family_runner.ts";
import { Nft } from "../kernel/nft.ts";
import { nftFamily } from "../netfilter/nft_words.ts";

/**
 * How long connections that began in the former mode may take to end there. Not longer, whatever they are: what IPVS remembers of a client's
 * port takes the tracked connection of that port along when it goes, and that may be a new one of this mode by then.
 */
const DRAIN_LIMIT_MS = 5_000;

/** How long the cleanup of one family waits for the first sync of the other, which has no time to share. */
const OTHER_FAMILY_MS = 10_000;

/** How long a removal that could not be carried out waits for the first time, and at most. */
const RETRY_MS = 5_000;
const MAX_RETRY_MS = 300_000;

export interface OtherModesOptions {
  readonly modes: readonly CleanupMode[];
  /** The running mode, of which kube-proxy's leftovers are removed, as far as they differ from ours. */
  readonly ownMode?: CleanupMode | undefined;
  readonly families: readonly IpFamily[];
  readonly log: Logger;
  readonly exec: Exec;
  readonly excludeCidrs?: readonly string[];
  readonly clock?: Clock;
}

/**
 * Loads the code of removals while a start waits for something else. A removal itself would be too late: from source,
 * the runtime panics where it cannot open a module's file, and free descriptors are unknown once kproxy serves.
 */
export async function preloadRemoval(): Promise<void> {
  await import("../backend/node/leftovers.ts");
}

/**
 * Removes other modes' leftovers of each IP family once all have had their first sync, and those of unserved families after the
 * last; a family whose first sync takes long does not keep those of the other.
 */
export class OtherModesCleanup {
  readonly observer: SyncObserver;
  readonly #options: OtherModesOptions;
  readonly #allSynced = new AbortController();
  /** Pending removals, each for some families; the one that is stopped in its middle stays first. */
  readonly #due: (readonly IpFamily[])[] = [];
  #programs: Runner;
  #work: Promise<void> = Promise.resolve();
  #hasEnded = false;
  /** True if there were tables of nftables mode, so that a proxy that makes them may still run. */
  #hasRemovedTables = false;
  #failures = 0;
  /** Null: kube-proxy's tables are not looked for. */
  #otherProxy: OtherProxyWatch | null = null;

  constructor(options: OtherModesOptions) {
    this.#options = options;
    this.observer = observeFirstSyncs(
      options.families,
      (family, isLast) => this.#familySynced(family, isLast),
    );
    this.#programs = new Runner(options.exec);
  }

  /**
   * Aborts the removal under way, wherever it is: each program does all of its input or nothing, as far as
   * that matters, and the next start finds the rest.
   */
  end(): void {
    this.#hasEnded = true;
    this.#programs.end();
    this.#otherProxy?.programs.end();
  }

  /** Looks for kube-proxy's tables every period from the first syncs on: those that come back are logged, and removed after a while. */
  watch(options: OtherProxyOptions): void {
    this.#otherProxy = {
      ...options,
      programs: new Runner(this.#options.exec),
      work: Promise.resolve(),
      present: [],
      removalMs: FIRST_REMOVAL_MS,
      nextRemovalMs: null,
      hasFailed: false,
    };
  }

  /**
   * Runs `work` while nothing is removed: the preparation of the next proxy server, whose mode may be one of those
   * that are removed here. Goes on if that fails, and else not: the next proxy server has a removal of its own.
   */
  async undisturbed<T>(work: () => Promise<T>): Promise<T> {
    this.#programs.end();
    await this.#work;
    try {
      return await work();
    } catch (error) {
      if (!this.#hasEnded) {
        this.#programs = new Runner(this.#options.exec);
        this.#goOn();
      }
      throw error;
    }
  }

  /** Removes, once more, kube-proxy's tables of mode nftables. Resolves when that is done or has ended. */
  #removeKubeProxyTables(families: readonly IpFamily[]): Promise<void> {
    const { log } = this.#options;
    this.#work = this.#work.then(async () => {
      const exec = this.#programs;
      if (exec.signal.aborted) return;
      try {
        const { removeLeftovers } = await import("../backend/node/leftovers.ts");
        const context = { exec, families, dryRun: false, of: "kube-proxy" } as const;
        report(await removeLeftovers(["nftables"], context), "kube-proxy", { log, tellsWhatStays: true });
      } catch (error) {
        if (!exec.signal.aborted) log.error("Cannot remove what kube-proxy left", error, { families });
      }
    });
    return this.#work;
  }

  /** Resolves when all removals are done or have ended. */
  async settled(): Promise<void> {
    await Promise.all([this.#work, this.#otherProxy?.work]);
  }

  #familySynced(family: IpFamily, isLast: boolean): void {
    const { families } = this.#options;
    if (isLast) this.#allSynced.abort();
    const unserved = isLast ? FAMILIES.filter((other) => !families.includes(other)) : [];
    this.#due.push([family, ...unserved]);
    this.#goOn();
    if (isLast && this.#otherProxy !== null) this.#otherProxy.work = this.#lookForProxy(this.#otherProxy);
  }

  #goOn(): void {
    this.#work = this.#work.then(async () => {
      for (let next = this.#due[0]; next !== undefined; next = this.#due[0]) {
        if (!await this.#remove(next)) return;
        this.#due.shift();
      }
    });
  }

  /** False if the removal was stopped before it was done. */
  async #remove(families: readonly IpFamily[]): Promise<boolean> {
    const { modes, ownMode, log, excludeCidrs = [], clock = systemClock } = this.#options;
    const exec = this.#programs;
    const { signal } = exec;
    await clock.sleep(OTHER_FAMILY_MS, AbortSignal.any([signal, this.#allSynced.signal]));
    if (signal.aborted) return false;
    const drain = {
      clock: { nowMs: () => clock.nowMs(), sleep: (ms: number) => clock.sleep(ms, signal) },
      limitMs: DRAIN_LIMIT_MS,
    };
    try {
      const { removeLeftovers } = await import("../backend/node/leftovers.ts");
      const context = { exec, families, dryRun: false, excludeCidrs, drain };
      const others = await removeLeftovers(modes, context);
      this.#hasRemovedTables ||= others.removed.some(({ place }) => place === "nft");
      // Failures that are retried were logged.
      const isFirst = this.#failures === 0;
      let left = report(others, "another mode", { log, tellsWhatStays: isFirst });
      if (ownMode !== undefined) {
        const own = await removeLeftovers([ownMode], { ...context, of: "kube-proxy" });
        left += report(own, "kube-proxy", { log, tellsWhatStays: isFirst });
      }
      if (left === 0) this.#failures = 0;
      else this.#tryLater(families);
    } catch (error) {
      if (signal.aborted) {
        const next = this.#hasEnded
          ? "the next start goes on with it"
          : "a changed configuration comes first";
        log.info(`Stopped looking for what other modes left, ${next}`, { families });
        return false;
      }
      // The new rules serve all the same.
      if (this.#failures === 0) {
        log.error("Cannot remove what other modes left, will try again", error, { families });
      }
      this.#tryLater(families);
    }
    return true;
  }

  /** Schedules another try. Nothing waits for it: other removals, and an end, come first. */
  #tryLater(families: readonly IpFamily[]): void {
    const { clock = systemClock } = this.#options;
    const waitMs = Math.min(RETRY_MS * 2 ** this.#failures++, MAX_RETRY_MS);
    void clock.sleep(waitMs, this.#programs.signal).then(() => {
      if (this.#hasEnded) return;
      this.#due.push(families);
      this.#goOn();
    });
  }

  async #lookForProxy(watch: OtherProxyWatch): Promise<void> {
    const { ownMode, clock = systemClock } = this.#options;
    const { periodMs, programs: { signal } } = watch;
    while (!signal.aborted) {
      await clock.sleep(periodMs, signal);
      // The removals of the start come first.
      await this.#work;
      // In other modes kube-proxy has no tables as long as none were found.
      if (signal.aborted || ownMode !== "nftables" && !this.#hasRemovedTables) continue;
      const found = await this.#tablesOf(watch);
      if (found === null) continue;
      this.#reportTables(watch, found.map((family) => `${nftFamily(family)} ${TABLE}`));
      if (found.length === 0) continue;
      const nowMs = clock.nowMs();
      watch.nextRemovalMs ??= nowMs + watch.removalMs;
      if (nowMs < watch.nextRemovalMs) continue;
      watch.removalMs = Math.min(MAX_REMOVAL_MS, 2 * watch.removalMs);
      watch.nextRemovalMs = nowMs + watch.removalMs;
      await this.#removeKubeProxyTables(found);
    }
  }

  /** The families in which kube-proxy's table is there; null: that is not known. */
  async #tablesOf(watch: OtherProxyWatch): Promise<readonly IpFamily[] | null> {
    const nft = new Nft(watch.programs);
    try {
      const found: IpFamily[] = [];
      for (const family of FAMILIES) {
        if (!await nft.hasNone(nftFamily(family), { tables: [TABLE] })) found.push(family);
      }
      watch.hasFailed = false;
      return found;
    } catch (error) {
      if (watch.programs.signal.aborted) return null;
      if (!watch.hasFailed) {
        this.#options.log.error("Cannot look for the tables of another service proxy", error, {});
      }
      watch.hasFailed = true;
      return null;
    }
  }

  #reportTables(watch: OtherProxyWatch, tables: readonly string[]): void {
    const { log } = this.#options;
    if (tables.join() === watch.present.join()) return;
    watch.present = tables;
    if (tables.length > 0) {
      log.warn("Another service proxy writes rules on this node", {
        tables,
        advice: "end kube-proxy here: what it last wrote answers beside the rules of kproxy",
      });
    } else {
      log.info("The tables of the other service proxy are gone");
    }
    watch.onChange(tables);
  }
}

/** @returns how many could not be removed */
function report(
  result: LeftoverReport,
  whose: string,
  { log, tellsWhatStays }: { readonly log: Logger; readonly tellsWhatStays: boolean },
): number {
  for (const [kind, count] of countLeftovers(result)) {
    log.info(`Removed what ${whose} left`, { what: kind, count });
  }
  if (!tellsWhatStays) return result.failed.length;
  for (const { place, command, reason } of result.kept) {
    log.warn(`Something of ${whose} stays`, { place, command, reason });
  }
  for (const { place, error } of result.failed) {
    log.warn(`Cannot remove what ${whose} left`, { place, problem: errorText(error) });
  }
  return result.failed.length;
}

/** Table of kube-proxy's nftables mode, in each family. */
const TABLE = "kube-proxy";
/** The wait before a table that came back is removed again; it doubles each time. */
const FIRST_REMOVAL_MS = 300_000;
const MAX_REMOVAL_MS = 3_600_000;

export interface OtherProxyOptions {
  readonly periodMs: number;
  /** Receives which tables came back, e.g. `ip kube-proxy`, whenever that changes; none: they are gone. */
  readonly onChange: (tables: readonly string[]) => void;
}

interface OtherProxyWatch extends OtherProxyOptions {
  /** Programs of the watch; removals have others, which a changed configuration stops. */
  readonly programs: Runner;
  work: Promise<void>;
  present: readonly string[];
  removalMs: number;
  nextRemovalMs: number | null;
  hasFailed: boolean;
}
