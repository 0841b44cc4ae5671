/**
 * What the proxy servers of a process and both IP families have in common in userspace mode: the thread that forwards, and the portals
 * that one proxy server leaves to the next.
 *
 * @module
 */
import { within } from "../../../kernel/clock.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Shared } from "../../node/process_wide.ts";
import type { Withdrawal } from "../apply/withdrawal.ts";
import type { PortalEndpoint } from "../plan/plan.ts";
import type { Place } from "./open_portal.ts";
import { type AllRelayCounts, NoPortError, noRelayCounts, type OpenPortal } from "./relay.ts";

/** What the thread is to do. */
type RelayTask =
  /** Done with the port. */
  | { readonly kind: "open"; readonly portal: number; readonly place: Place; readonly udpIdleMs: number }
  | { readonly kind: "close"; readonly portal: number }
  /** Done once there is no session. */
  | { readonly kind: "drain" }
  | {
    readonly kind: "update";
    readonly portal: number;
    readonly endpoints: readonly PortalEndpoint[];
    readonly stickySeconds: number;
  };

/** An order to the thread, which answers with the `request` once it is done. */
export type RelayOrder = { readonly request: number } & RelayTask;

/** A message of the thread. */
export type RelayNews =
  | { readonly kind: "done"; readonly request: number; readonly port: number }
  | {
    readonly kind: "failed";
    readonly request: number;
    readonly message: string;
    readonly isDenied: boolean;
  }
  | { readonly kind: "problem"; readonly problem: string; readonly message: string }
  | { readonly kind: "counts"; readonly counts: AllRelayCounts };

/**
 * How long portals of a former proxy server serve on where the next one has not taken them, once its rules are in force: by then what
 * the former ones led here has come.
 */
const LINGER_MS = 5_000;
/** How long the end of the process waits for the sessions that are there. */
const DRAIN_MS = 10_000;
/** How long each step may take that removes rules. */
const WITHDRAWAL_MS = 5_000;

/** One that outlives the proxy server that opened it. */
export interface SharedPortal extends OpenPortal {
  /** The address that it listens on. */
  readonly ip: string;
  /** It goes on at work, for the proxy server that opens that place next. */
  leave(): void;
}

/** One for the process. */
export class SharedPortals implements Shared {
  readonly #begin: (place: Place) => Promise<OpenPortal>;
  #thread: Worker | null = null;
  /** Requests that the thread has not answered. */
  readonly #asked = new Map<number, PromiseWithResolvers<number>>();
  #lastRequest = 0;
  #lastPortal = 0;
  #counts = noRelayCounts();
  #onProblem: (problem: string, message: string) => void = () => {};
  #udpIdleMs = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** All that are open, by family, protocol, port and address. */
  readonly #open = new Map<string, SharedPortal>();
  /** Where those are that the proxy server of now has not taken over. */
  readonly #left = new Set<string>();
  readonly #withdrawals = new Map<IpFamily, Withdrawal>();

  /** @param begin opens a portal. Default: in the thread */
  constructor(begin?: (place: Place) => Promise<OpenPortal>) {
    this.#begin = begin ?? ((place) => this.#openInThread(place));
  }

  /** What was forwarded, up to a moment ago. */
  get counts(): AllRelayCounts {
    return this.#counts;
  }

  /**
   * A proxy server begins.
   *
   * @param udpIdleMs milliseconds after which a UDP session without packets ends
   * @param onProblem called from now on for what cannot be forwarded
   */
  begun(udpIdleMs: number, onProblem: (problem: string, message: string) => void): void {
    this.#udpIdleMs = udpIdleMs;
    this.#onProblem = onProblem;
  }

  /** Starts the thread that will be needed, if there is none: it takes as long as the node takes to be looked at. */
  start(): void {
    if (this.#thread !== null) return;
    const thread = new Worker(new URL("./relay_worker.ts", import.meta.url), { type: "module" });
    thread.onmessage = ({ data }: MessageEvent<RelayNews>) => this.#hear(data);
    thread.onerror = (event) => {
      event.preventDefault();
      if (this.#thread === thread) this.#thread = null;
      this.#onProblem("The thread that forwards failed", event.message);
      this.#rejectAll(event.message);
    };
    this.#thread = thread;
  }

  /**
   * Opens a portal that leads nowhere yet, or takes one over that is at work at the requested port.
   *
   * @throws {Error} if no port can be had
   */
  async open(place: Place): Promise<SharedPortal> {
    const { family, protocol, ip, requested } = place;
    const nameOf = (port: number): string => `${family} ${protocol} ${port} ${ip}`;
    const former = nameOf(requested ?? 0);
    if (this.#left.delete(former)) return this.#open.get(former)!;
    const begun = await this.#begin(place);
    const name = nameOf(begun.port);
    const portal: SharedPortal = {
      ip,
      port: begun.port,
      update: (endpoints, stickySeconds) => begun.update(endpoints, stickySeconds),
      leave: () => void this.#left.add(name),
      close: async () => {
        this.#open.delete(name);
        await begun.close();
      },
    };
    this.#open.set(name, portal);
    return portal;
  }

  /** Rules of a family lead here; at the end of the process they go. */
  ledBy(family: IpFamily, withdrawal: Withdrawal): void {
    this.#withdrawals.set(family, withdrawal);
  }

  get takesRulesAway(): boolean {
    return this.#withdrawals.size > 0 && this.#open.size > 0;
  }

  /** A proxy server has ended and left its portals: its rules lead here until others are in force, however long that takes. */
  left(): void {
    clearTimeout(this.#timer);
  }

  inForce(): void {
    clearTimeout(this.#timer);
    const failed = (error: unknown): void =>
      this.#onProblem(
        "The thread that forwards failed",
        error instanceof Error ? error.message : String(error),
      );
    this.#timer = setTimeout(() => void this.closeLeft().catch(failed), LINGER_MS);
  }

  /** Closes those that were not taken over. */
  async closeLeft(): Promise<void> {
    const portals = [...this.#left].map((name) => this.#open.get(name));
    this.#left.clear();
    await Promise.all(portals.map((portal) => portal?.close()));
  }

  async end(signal: AbortSignal): Promise<void> {
    clearTimeout(this.#timer);
    const thread = this.#thread;
    if (thread === null) return;
    const step = async (work: (withdrawal: Withdrawal) => Promise<void>): Promise<void> => {
      await within(Promise.all([...this.#withdrawals.values()].map(work)), WITHDRAWAL_MS, signal);
    };
    const own = new Set([...this.#open.keys()].map((name) => name.slice(0, name.lastIndexOf(" "))));
    // Clients that come before the rules are gone are served, too, and no other program has the ports before nothing leads there.
    await step((withdrawal) => withdrawal.redirects(own));
    await within(this.#ask({ kind: "drain" }).catch(() => null), DRAIN_MS, signal);
    await step((withdrawal) => withdrawal.flows());
    thread.terminate();
    this.#thread = null;
    this.#rejectAll("The thread that forwards was ended");
    await step((withdrawal) => withdrawal.rest());
  }

  /** @throws {NoPortError} if no port can be had */
  async #openInThread(place: Place): Promise<OpenPortal> {
    const portal = ++this.#lastPortal;
    this.start();
    const port = await this.#ask({ kind: "open", portal, place, udpIdleMs: this.#udpIdleMs });
    let closing: Promise<unknown> | null = null;
    return {
      port,
      update: async (endpoints, stickySeconds) => {
        await this.#ask({ kind: "update", portal, endpoints, stickySeconds });
      },
      close: async () => {
        await (closing ??= this.#ask({ kind: "close", portal }));
      },
    };
  }

  #ask(task: RelayTask): Promise<number> {
    if (this.#thread === null) return Promise.reject(new Error("There is no thread that forwards"));
    const answer = Promise.withResolvers<number>();
    const order: RelayOrder = { request: ++this.#lastRequest, ...task };
    this.#asked.set(order.request, answer);
    this.#thread.postMessage(order);
    return answer.promise;
  }

  #hear(news: RelayNews): void {
    if (news.kind === "counts") this.#counts = news.counts;
    else if (news.kind === "problem") this.#onProblem(news.problem, news.message);
    else {
      const asked = this.#asked.get(news.request);
      this.#asked.delete(news.request);
      if (news.kind === "failed") asked?.reject(new NoPortError(news.message, news.isDenied));
      else asked?.resolve(news.port);
    }
  }

  #rejectAll(message: string): void {
    for (const { reject } of this.#asked.values()) reject(new Error(message));
    this.#asked.clear();
  }
}
