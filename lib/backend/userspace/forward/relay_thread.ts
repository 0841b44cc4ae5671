/**
 * Portals in a thread of their own, as the thread that decides sees them.
 *
 * @module
 */
import type { PortalEndpoint } from "../plan/ruleset.ts";
import type { Place } from "./open_portal.ts";
import { NoPortError, type OpenPortal } from "./relay.ts";
import type { RelayNews, RelayOrder } from "./relay_messages.ts";
import { type AllRelayCounts, RelayTally } from "./relay_tally.ts";

/** An order with an answer, without its number. */
type Question<Order extends RelayOrder = RelayOrder> = Order extends { readonly request: number }
  ? Omit<Order, "request">
  : never;

/** The thread; it ends with {@linkcode RelayThread.end}. */
export class RelayThread {
  readonly #worker = new Worker(new URL("./relay_worker.ts", import.meta.url), { type: "module" });
  readonly #asked = new Map<number, PromiseWithResolvers<number>>();
  readonly #onProblem: (problem: string, message: string) => void;
  #counts: AllRelayCounts = new RelayTally().counts;
  #lastRequest = 0;
  #lastPortal = 0;

  /** @param onProblem told what the thread cannot do, such as accept */
  constructor(onProblem: (problem: string, message: string) => void) {
    this.#onProblem = onProblem;
    this.#worker.onmessage = ({ data }: MessageEvent<RelayNews>) => this.#hear(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      onProblem("The thread that forwards failed", event.message);
      for (const { reject } of this.#asked.values()) reject(new Error(event.message));
      this.#asked.clear();
    };
  }

  /** What was forwarded, up to a moment ago. */
  get counts(): AllRelayCounts {
    return this.#counts;
  }

  /**
   * Opens a portal that leads nowhere yet.
   *
   * @param udpIdleMs milliseconds after which a UDP session without packets ends
   * @throws {NoPortError} if no port can be had
   */
  async open(place: Place, udpIdleMs: number): Promise<OpenPortal> {
    const portal = ++this.#lastPortal;
    const port = await this.#ask({ kind: "open", portal, place, udpIdleMs });
    let closing: Promise<void> | null = null;
    return {
      port,
      update: (endpoints: readonly PortalEndpoint[], stickySeconds: number) =>
        this.#post({ kind: "update", portal, endpoints, stickySeconds }),
      close: () => closing ??= this.#ask({ kind: "close", portal }).then(() => {}),
    };
  }

  /** Resolves once there is no session. */
  async drained(): Promise<void> {
    await this.#ask({ kind: "drain" });
  }

  /** Whatever is still forwarded is cut off. */
  end(): void {
    this.#worker.terminate();
    for (const { reject } of this.#asked.values()) reject(new Error("The thread that forwards was ended"));
    this.#asked.clear();
  }

  #post(order: RelayOrder): void {
    this.#worker.postMessage(order);
  }

  #ask(question: Question): Promise<number> {
    const request = ++this.#lastRequest;
    const answer = Promise.withResolvers<number>();
    this.#asked.set(request, answer);
    this.#post({ ...question, request } as RelayOrder);
    return answer.promise;
  }

  #hear(news: RelayNews): void {
    if (news.kind === "counts") {
      this.#counts = news.counts;
      return;
    }
    if (news.kind === "problem") {
      this.#onProblem(news.problem, news.message);
      return;
    }
    const asked = this.#asked.get(news.request);
    this.#asked.delete(news.request);
    if (news.kind === "failed") asked?.reject(new NoPortError(news.message, news.isDenied));
    else asked?.resolve(news.kind === "opened" ? news.port : 0);
  }
}
