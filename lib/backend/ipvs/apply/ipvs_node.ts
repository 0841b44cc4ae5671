/**
 * The node's one IPVS table and its one device, which both families read and write, one after the other.
 *
 * @module
 */
import type { Clock } from "../../../kernel/clock.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { Mutex } from "../../../kernel/mutex.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { SetDefinition } from "../../../netfilter/ipset.ts";
import type { Logger } from "../../../observe/log.ts";
import type { HeldOwn } from "../store/objects.ts";
import { GracefulTermination } from "./graceful_termination.ts";

/** What is known without a listing is true for so long: another process may change it meanwhile. */
const KNOWN_MS = 10_000;

/** What an {@linkcode IpvsNode} needs. */
export interface IpvsNodeOptions {
  readonly ipvs: Ipvsadm;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a real server that leaves keeps its connections; 0: as long as they last. */
  readonly terminationDeadlineMs: number;
  /** Our sets of all families, if they and the device were not there before and were just made: nothing is in them. Default: none. */
  readonly madeSets?: readonly SetDefinition[];
}

/** See the module. */
export class IpvsNode {
  readonly ipvs: Ipvsadm;
  readonly terminations: GracefulTermination;
  readonly #clock: Clock;
  readonly #mutex = new Mutex();
  readonly #madeSets: readonly SetDefinition[];
  readonly #madeMs: number;
  /** Families that have not asked yet what is in the sets that were made. */
  readonly #unaware = new Set<IpFamily>();
  /** How many syncs have asked for their turn. */
  #asked = 0;
  /** The last listing, with how many had asked for their turn by then. */
  #listed: { readonly own: HeldOwn; readonly asked: number; readonly atMs: number } | null = null;

  constructor({ ipvs, clock, log, terminationDeadlineMs, madeSets = [] }: IpvsNodeOptions) {
    this.ipvs = ipvs;
    this.#clock = clock;
    this.#madeSets = madeSets;
    this.#madeMs = clock.nowMs();
    for (const { family } of madeSets) this.#unaware.add(family);
    this.terminations = new GracefulTermination({
      ipvs,
      clock,
      log,
      deadlineMs: terminationDeadlineMs,
      exclusively: (work) => this.#mutex.run(work),
      onDeletion: () => this.#listed = null,
    });
  }

  /** Runs work that reads and writes the table or the device while no other does. */
  exclusively<T>(work: () => Promise<T>): Promise<T> {
    return this.#mutex.run(work);
  }

  /** As {@linkcode IpvsNode.exclusively}, for a sync; `turn` is for {@linkcode IpvsNode.known}. */
  sync<T>(work: (turn: number) => Promise<T>): Promise<T> {
    const turn = ++this.#asked;
    return this.#mutex.run(() => work(turn));
  }

  /**
   * What a listing would show, if that is known without one; null if not. What the other family listed while this one waited for its turn
   * is still true: what that one wrote since changes nothing of this one's. In sets that were just made is nothing, so no virtual server
   * is ours.
   */
  known(family: IpFamily, turn: number): HeldOwn | null {
    const nowMs = this.#clock.nowMs();
    const isFirst = this.#unaware.delete(family);
    if (this.#listed !== null && this.#listed.asked >= turn && nowMs - this.#listed.atMs <= KNOWN_MS) {
      return this.#listed.own;
    }
    if (!isFirst || nowMs - this.#madeMs > KNOWN_MS) return null;
    const made = this.#madeSets.filter((set) => set.family === family);
    return {
      addresses: new Set(),
      virtualServers: new Map(),
      sets: new Map(made.map((definition) => {
        const { name } = definition;
        return [name, { name, definition, entries: new Set<string>() }];
      })),
    };
  }

  /** Lists, for the sync under way and for one of the other family that waits for its turn. */
  async list(read: () => Promise<HeldOwn>): Promise<HeldOwn> {
    const [asked, atMs] = [this.#asked, this.#clock.nowMs()];
    const own = await read();
    this.#listed = { own, asked, atMs };
    return own;
  }

  /** Ends the work between syncs. */
  close(): Promise<void> {
    return this.terminations.close();
  }
}
