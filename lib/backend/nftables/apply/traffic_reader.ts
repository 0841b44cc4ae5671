/**
 * Reads the counters of one family's Services from the kernel, when it is asked for, and not too often.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import { parseCounters } from "../../../netfilter/nft_listing.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ServiceTraffic } from "../../../model/service_traffic.ts";
import type { ProxyState } from "../../../model/state.ts";
import type { Logger } from "../../../observe/log.ts";
import { TABLE_NAME } from "../plan/chains.ts";
import { TRAFFIC_SETS, TrafficTotals } from "../plan/traffic.ts";

/** Reading takes at most this share of the time, however often it is asked for. */
const MAX_SHARE = 0.05;
/** Nor is it done again sooner than this after it began. */
const MIN_INTERVAL_MS = 1_000;

/** In the list of a set whose elements are counted. Linux before 5.7 takes the word and forgets it. */
const COUNTS = /^\t\tcounter$/m;

/** What a {@linkcode TrafficReader} needs. */
export interface TrafficReaderOptions {
  readonly nft: Nft;
  readonly family: IpFamily;
  /** Whose counters they are now; null before the first sync. */
  readonly state: () => ProxyState | null;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** See the module. */
export class TrafficReader {
  readonly #options: TrafficReaderOptions;
  readonly #totals = new TrafficTotals();
  #known: readonly ServiceTraffic[] = [];
  #reading: Promise<readonly ServiceTraffic[]> | null = null;
  #nextMs = Number.NEGATIVE_INFINITY;
  #hasWarned = false;

  constructor(options: TrafficReaderOptions) {
    this.#options = options;
  }

  /** What was counted, at the latest reading if the next one is not due. Never rejects. */
  read(): Promise<readonly ServiceTraffic[]> {
    if (this.#reading !== null) return this.#reading;
    if (this.#options.nowMs() < this.#nextMs) return Promise.resolve(this.#known);
    this.#reading = this.#readNow().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #readNow(): Promise<readonly ServiceTraffic[]> {
    const { nft, family, state: stateNow, logger, nowMs } = this.#options;
    const startMs = nowMs();
    try {
      const counted = new Map<string, ReturnType<typeof parseCounters>>();
      for (const name of TRAFFIC_SETS.keys()) {
        const text = await nft.listSet(nftFamily(family), TABLE_NAME, name);
        // Others took it away: it is back soon, and what was counted stays.
        if (text === null) return this.#known;
        if (!COUNTS.test(text)) this.#warnOfForgottenCounters();
        counted.set(name, parseCounters(text));
      }
      const state = stateNow();
      if (state !== null) this.#known = this.#totals.take(state, counted);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      logger.info("Traffic counters cannot be read", { family, problem: error.message }, 2);
    } finally {
      const tookMs = nowMs() - startMs;
      this.#nextMs = startMs + Math.max(MIN_INTERVAL_MS, tookMs / MAX_SHARE);
    }
    return this.#known;
  }

  #warnOfForgottenCounters(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    const { logger, family } = this.#options;
    logger.warn("Traffic is not counted: this kernel forgets counters of set elements", { family });
  }
}
