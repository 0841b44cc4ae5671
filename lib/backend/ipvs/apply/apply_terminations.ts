/**
 * The node's one IPVS table: what both families write there, one after the other, and the real servers that leave it
 * between syncs.
 *
 * @module
 */
import type { Clock } from "../../../kernel/clock.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { Mutex } from "../../../kernel/mutex.ts";
import type { IpFamily } from "../../../model/objects.ts";
import {
  type RealServerLoad,
  type SavedVirtualServer,
  virtualServerKey,
  type VirtualServerName,
} from "../../../netfilter/ipvs.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ServerChange } from "../plan/ruleset.ts";
import type { FreshNode, ObservedOwn } from "./apply_fresh.ts";
import { SharedLook } from "./apply_shared_look.ts";
import { type Termination, Terminations } from "../diff/terminations.ts";

/** The first look at the connections of a real server that leaves: most have none. */
const FIRST_SWEEP_MS = 1_000;
/** The pause between two looks doubles up to this. */
const MAX_SWEEP_PAUSE_MS = 15_000;
/** With more virtual servers than this, reading all of them at once costs less than a program for each. */
const MAX_SINGLE_READS = 4;

/** What became of changes of servers. */
export interface WrittenServers {
  /** Lines written, and their bytes. */
  readonly lines: number;
  readonly bytes: number;
  /** What the kernel refuses; everything else was carried out. */
  readonly refused: readonly { readonly change: ServerChange; readonly problem: string }[];
  /** Programs started. */
  readonly runs: number;
}

/** What an {@linkcode IpvsNode} needs. */
export interface IpvsNodeOptions {
  readonly ipvs: Ipvsadm;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a real server that leaves keeps its connections; 0: as long as they last. */
  readonly terminationDeadlineMs: number;
  /** Null: the device or the sets were there before, so everything must be read. Default null. */
  readonly fresh?: FreshNode | null;
}

/** What both families share. */
export class IpvsNode {
  readonly #options: IpvsNodeOptions;
  readonly #mutex = new Mutex();
  readonly #look = new SharedLook();
  readonly #terminations: Terminations;
  readonly #end = new AbortController();
  #nextSweepMs = Infinity;
  #pauseMs = FIRST_SWEEP_MS;
  #wake = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(options: IpvsNodeOptions) {
    this.#options = options;
    this.#terminations = new Terminations(options.terminationDeadlineMs);
  }

  get ipvs(): Ipvsadm {
    return this.#options.ipvs;
  }

  /** How many real servers are on their way out. */
  get terminating(): number {
    return this.#terminations.size;
  }

  /** Runs work that reads and writes the table or the device while nobody else does. */
  exclusively<T>(work: () => Promise<T>): Promise<T> {
    return this.#mutex.run(work);
  }

  /** As {@linkcode exclusively}, for a sync of a family. */
  syncing<T>(family: IpFamily, work: () => Promise<T>): Promise<T> {
    this.#look.wait(family);
    return this.#mutex.run(async () => {
      this.#look.begin(family);
      try {
        return await work();
      } finally {
        this.#look.end(family);
      }
    });
  }

  /** What the sync under way would find of device, sets and virtual servers, if that is known without a look; told once. */
  takeKnown(family: IpFamily): ObservedOwn | null {
    const { fresh = null, clock } = this.#options;
    const nowMs = clock.nowMs();
    return this.#look.take(family, nowMs) ?? fresh?.take(family, nowMs) ?? null;
  }

  /** Looks, for the sync under way and for one of the other family that waits for its turn. */
  async look(family: IpFamily, look: () => Promise<ObservedOwn>): Promise<ObservedOwn> {
    const atMs = this.#options.clock.nowMs();
    const own = await look();
    this.#look.keep(own, family, atMs);
    return own;
  }

  /** Takes over what was read of one family's servers. */
  observe(saved: ReadonlyMap<string, SavedVirtualServer>, family: IpFamily): void {
    this.#terminations.retain(saved, ({ address }) => address.includes(":") === (family === "IPv6"));
  }

  /**
   * Carries out changes, of which those that take time go on after this. Only for work of {@linkcode exclusively}.
   *
   * @throws {ExecError} if one failed for which no server is to blame
   */
  async write(changes: readonly ServerChange[]): Promise<WrittenServers> {
    const { ipvs, clock } = this.#options;
    const work = changes.flatMap((change) =>
      this.#terminations.take([change], clock.nowMs()).map((line) => ({ line, change }))
    );
    const lines = work.map(({ line }) => line);
    const { refused, runs } = await ipvs.restoreOthers(lines);
    if (changes.some(({ kind }) => kind === "removeReal")) this.#sweepSoon();
    return {
      lines: lines.length,
      bytes: lines.reduce((sum, line) => sum + line.length + 1, 0),
      refused: refused.flatMap(({ index, problem }) => {
        const { line = "", change } = work[index] ?? {};
        if (change === undefined) return [];
        // One on its way out that was to come back is still there.
        const isThere = change.kind === "addReal" && !line.startsWith("-a ");
        return [{ change: isThere ? { ...change, kind: "updateReal" } : change, problem }];
      }),
      runs,
    };
  }

  /** Ends the work between syncs; what it waits for is found again by the next process. */
  async close(): Promise<void> {
    this.#end.abort();
    this.#wake.abort();
    await this.#loop;
  }

  #sweepSoon(): void {
    if (this.#terminations.size === 0 || this.#end.signal.aborted) return;
    this.#pauseMs = FIRST_SWEEP_MS;
    this.#nextSweepMs = Math.min(this.#nextSweepMs, this.#options.clock.nowMs() + this.#pauseMs);
    if (this.#loop === undefined) this.#loop = this.#run();
    else this.#wake.abort();
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    let lastSweepMs = -Infinity;
    while (!this.#end.signal.aborted && this.#terminations.size > 0) {
      const deadlineMs = this.#terminations.nextDeadlineMs;
      // One that a failed sweep could not delete waits for the next one.
      const dueMs = deadlineMs > lastSweepMs ? Math.min(this.#nextSweepMs, deadlineMs) : this.#nextSweepMs;
      const waitMs = dueMs - clock.nowMs();
      if (waitMs > 0) {
        this.#wake = new AbortController();
        await clock.sleep(waitMs, this.#wake.signal);
        continue;
      }
      lastSweepMs = clock.nowMs();
      this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_SWEEP_PAUSE_MS);
      this.#nextSweepMs = lastSweepMs + this.#pauseMs;
      await this.#sweep();
    }
    // Nothing may happen between the last look at the list and this.
    this.#nextSweepMs = Infinity;
    this.#loop = undefined;
  }

  async #sweep(): Promise<void> {
    const { log } = this.#options;
    try {
      // Between two syncs: all of these have lost their weight.
      const { asked, wanted } = await this.exclusively(() =>
        Promise.resolve({ asked: this.#terminations.all(), wanted: this.#terminations.virtualServers })
      );
      // Where there are many servers this takes long, and no sync has to wait for it.
      const loads = await this.#loads(wanted);
      await this.exclusively(() => {
        this.#look.forget();
        return this.#delete(loads, asked);
      });
    } catch (error) {
      if (this.#end.signal.aborted) return;
      log.error("Cannot delete real servers, will try again", error, { waiting: this.#terminations.size });
    }
  }

  async #delete(
    loads: ReadonlyMap<string, readonly RealServerLoad[]>,
    asked: ReadonlySet<Termination>,
  ): Promise<void> {
    const { ipvs, clock, log } = this.#options;
    const sweep = this.#terminations.sweep(loads, clock.nowMs(), asked);
    if (sweep.lines.length > 0) await ipvs.restore(sweep.lines);
    this.#terminations.finish(sweep);
    for (const { key, end } of sweep.ended) {
      if (end === "deadline") {
        log.info("Deleted a real server with its connections: its time was up", { key });
      }
    }
    if (sweep.ended.length + sweep.vanished.length > 0) {
      log.info("Deleted real servers", {
        deleted: sweep.ended.length,
        vanished: sweep.vanished.length,
        left: this.#terminations.size,
      }, 4);
    }
  }

  async #loads(
    wanted: readonly VirtualServerName[],
  ): Promise<ReadonlyMap<string, readonly RealServerLoad[]>> {
    const { ipvs } = this.#options;
    const loads = new Map<string, readonly RealServerLoad[]>();
    if (wanted.length > MAX_SINGLE_READS) {
      for (const [key, { realServers }] of await ipvs.loads()) loads.set(key, [...realServers.values()]);
      return loads;
    }
    for (const virtual of wanted) {
      loads.set(virtualServerKey(virtual), await ipvs.listRealServers(virtual) ?? []);
    }
    return loads;
  }
}
