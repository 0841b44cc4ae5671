/**
 * What the lives of a process and both IP families have in common in userspace mode: the thread that forwards,
 * and the portals that one life leaves to the next.
 *
 * @module
 */
import { within } from "../../../kernel/clock.ts";
import type { Shared } from "../../node/afterlife.ts";
import type { Place } from "../forward/open_portal.ts";
import type { OpenPortal } from "../forward/relay.ts";
import { type AllRelayCounts, RelayTally } from "../forward/relay_tally.ts";
import { RelayThread } from "../forward/relay_thread.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { LingeringPortals, placeOf } from "./portals.ts";
import type { Withdrawal } from "./withdrawal.ts";

/** Told what cannot be forwarded. */
type RelayProblem = (problem: string, message: string) => void;

const NO_COUNTS: AllRelayCounts = new RelayTally().counts;

/**
 * How long portals of a former life serve on where the next life has not taken them, once its rules are in force: by then what the
 * former ones led here has come.
 */
const LINGER_MS = 5_000;
/** How long the end of the process waits for the sessions that are there. */
const DRAIN_MS = 10_000;
/** How long each step may take that removes rules. */
const WITHDRAWAL_MS = 5_000;

/** One for the process. */
export class SharedPortals implements Shared {
  readonly lingering = new LingeringPortals();
  #thread: RelayThread | null = null;
  #onProblem: RelayProblem = () => {};
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Places without address of the portals that are open. */
  readonly #places = new Set<string>();
  readonly #withdrawals = new Map<IpFamily, Withdrawal>();

  /** What was forwarded, up to a moment ago. */
  get counts(): AllRelayCounts {
    return this.#thread?.counts ?? NO_COUNTS;
  }

  /** A life begins. @param onProblem told from now on what cannot be forwarded */
  begun(onProblem: RelayProblem): void {
    this.#onProblem = onProblem;
  }

  /** Starts the thread that will be needed, if there is none: it takes as long as the node takes to be looked at. */
  start(): RelayThread {
    return this.#thread ??= new RelayThread((problem, message) => this.#onProblem(problem, message));
  }

  /**
   * Opens a portal that leads nowhere yet.
   *
   * @param udpIdleMs milliseconds after which a UDP session without packets ends
   * @throws {Error} if no port can be had
   */
  async open(place: Place, udpIdleMs: number): Promise<OpenPortal> {
    const portal = await this.start().open(place, udpIdleMs);
    const { port } = portal;
    const name = placeOf(place.family, place.protocol, "", port);
    this.#places.add(name);
    return {
      port,
      update: (endpoints, stickySeconds) => portal.update(endpoints, stickySeconds),
      close: async () => {
        this.#places.delete(name);
        await portal.close();
      },
    };
  }

  /** Rules of a family lead here; at the end of the process they go. */
  ledBy(family: IpFamily, withdrawal: Withdrawal): void {
    this.#withdrawals.set(family, withdrawal);
  }

  get takesRulesAway(): boolean {
    return this.#withdrawals.size > 0 && this.#places.size > 0;
  }

  /** A life has ended and left its portals: its rules lead here until others are in force, however long that takes. */
  left(): void {
    clearTimeout(this.#timer);
  }

  inForce(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.lingering.close(), LINGER_MS);
  }

  async end(signal: AbortSignal): Promise<void> {
    clearTimeout(this.#timer);
    const thread = this.#thread;
    if (thread === null) return;
    const step = async (work: (withdrawal: Withdrawal) => Promise<void>): Promise<void> => {
      await within(Promise.all([...this.#withdrawals.values()].map(work)), WITHDRAWAL_MS, signal);
    };
    // Clients that come before the rules are gone are served, too, and no other program has the ports before nothing leads there.
    await step((withdrawal) => withdrawal.redirects((place) => this.#places.has(place)));
    await within(thread.drained().catch(() => null), DRAIN_MS, signal);
    await step((withdrawal) => withdrawal.flows());
    thread.end();
    this.#thread = null;
    await step((withdrawal) => withdrawal.rest());
  }
}
