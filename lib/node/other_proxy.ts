/**
 * Another service proxy that runs on the node: after its tables of nftables went, they come back. That is told, and they are
 * taken away again ever more rarely: two proxies must not fight, and a table that was left by one that has ended since must not stay.
 *
 * @module
 */
import { Nft } from "../kernel/nft.ts";
import { nftFamily } from "../netfilter/nft_words.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { Runner } from "../kernel/runner.ts";
import type { Exec } from "../kernel/exec.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { observeFirstSyncs } from "../sync/first_syncs.ts";
import type { SyncObserver } from "../sync/reconcile.ts";

/** Of kube-proxy's nftables mode, in each family. */
const TABLE = "kube-proxy";
/** The wait before a table that came back is removed again; it doubles each time. */
const FIRST_REMOVAL_MS = 300_000;
const MAX_REMOVAL_MS = 3_600_000;

/** What an {@linkcode OtherProxyWatch} needs. */
export interface OtherProxyOptions {
  /** The families whose first syncs come before the first look. */
  readonly families: readonly IpFamily[];
  readonly exec: Exec;
  readonly log: Logger;
  /** Milliseconds from one look to the next. */
  readonly periodMs: number;
  /** False as long as there is no reason to look. */
  readonly isWanted: () => boolean;
  /** Removes what kube-proxy left, and tells of it; resolves when a removal under way is done, too. Never rejects. */
  readonly remove: (families: readonly IpFamily[]) => Promise<void>;
  /** The first removal, which belongs to the start. */
  readonly startRemoval: () => Promise<void>;
  /** Hears which tables came back, e.g. `ip kube-proxy`, whenever that changes; none: they are gone. */
  readonly onChange: (tables: readonly string[]) => void;
  readonly clock?: Clock;
}

/** Looks for kube-proxy's tables every period. */
export class OtherProxyWatch {
  /** Hears of the first syncs. */
  readonly observer: SyncObserver;
  readonly #options: OtherProxyOptions;
  readonly #programs: Runner;
  readonly #nft: Nft;
  #work: Promise<void> = Promise.resolve();
  #present: readonly string[] = [];
  #removalMs = FIRST_REMOVAL_MS;
  #nextRemovalMs: number | null = null;
  #hasFailed = false;

  constructor(options: OtherProxyOptions) {
    this.#options = options;
    this.#programs = new Runner(options.exec);
    this.#nft = new Nft(this.#programs);
    this.observer = observeFirstSyncs(options.families, (_family, isLast) => {
      if (isLast) this.#work = this.#watch();
    });
  }

  /** Ends what is under way. */
  end(): void {
    this.#programs.end();
  }

  /** Resolves when it has ended. */
  settled(): Promise<void> {
    return this.#work;
  }

  async #watch(): Promise<void> {
    const { clock = systemClock, periodMs, isWanted, startRemoval } = this.#options;
    const { signal } = this.#programs;
    while (!signal.aborted) {
      await clock.sleep(periodMs, signal);
      await startRemoval();
      if (signal.aborted || !isWanted()) continue;
      await this.#look(clock.nowMs());
    }
  }

  async #look(nowMs: number): Promise<void> {
    const { log } = this.#options;
    let found: readonly IpFamily[];
    try {
      found = await this.#families();
      this.#hasFailed = false;
    } catch (error) {
      if (this.#programs.signal.aborted) return;
      if (!this.#hasFailed) log.error("Cannot look for the tables of another service proxy", error, {});
      this.#hasFailed = true;
      return;
    }
    this.#tell(found.map((family) => `${nftFamily(family)} ${TABLE}`));
    if (found.length === 0) return;
    this.#nextRemovalMs ??= nowMs + this.#removalMs;
    if (nowMs < this.#nextRemovalMs) return;
    this.#removalMs = Math.min(MAX_REMOVAL_MS, 2 * this.#removalMs);
    this.#nextRemovalMs = nowMs + this.#removalMs;
    await this.#options.remove(found);
  }

  async #families(): Promise<readonly IpFamily[]> {
    const found: IpFamily[] = [];
    for (const family of FAMILIES) {
      if (!await this.#nft.hasNone(nftFamily(family), { tables: [TABLE] })) found.push(family);
    }
    return found;
  }

  #tell(tables: readonly string[]): void {
    const { log, onChange } = this.#options;
    if (tables.join() === this.#present.join()) return;
    this.#present = tables;
    if (tables.length > 0) {
      log.warn("Another service proxy writes rules on this node", {
        tables,
        advice: "end kube-proxy here: what it last wrote answers beside the rules of kproxy",
      });
    } else {
      log.info("The tables of the other service proxy are gone");
    }
    onChange(tables);
  }
}
