/**
 * Portals in a thread of their own, as the thread that decides sees them, and the messages between the two.
 *
 * @module
 */
import type { PortalEndpoint } from "../plan/ruleset.ts";
import type { Place } from "./open_portal.ts";
import { type AllRelayCounts, NoPortError, noRelayCounts, type OpenPortal } from "./relay.ts";

/** An order that the thread answers once it is done. */
type Question =
  /** Answered with the port. */
  | { readonly kind: "open"; readonly portal: number; readonly place: Place; readonly udpIdleMs: number }
  | { readonly kind: "close"; readonly portal: number }
  /** Answered once there is no session. */
  | { readonly kind: "drain" };

/** An order to the thread. `request` comes back with the answer. */
export type RelayOrder =
  | Question & { readonly request: number }
  | {
    readonly kind: "update";
    readonly portal: number;
    readonly endpoints: readonly PortalEndpoint[];
    readonly stickySeconds: number;
  };

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

/** The thread; it ends with {@linkcode RelayThread.end}. */
export class RelayThread {
  readonly #worker = new Worker(new URL("./relay_worker.ts", import.meta.url), { type: "module" });
  readonly #asked = new Map<number, PromiseWithResolvers<number>>();
  readonly #onProblem: (problem: string, message: string) => void;
  #counts = noRelayCounts();
  #lastRequest = 0;
  #lastPortal = 0;

  /** @param onProblem called for what the thread cannot do, such as accept */
  constructor(onProblem: (problem: string, message: string) => void) {
    this.#onProblem = onProblem;
    this.#worker.onmessage = ({ data }: MessageEvent<RelayNews>) => this.#hear(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      onProblem("The thread that forwards failed", event.message);
      this.#rejectAll(event.message);
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
      update: (endpoints, stickySeconds) => this.#post({ kind: "update", portal, endpoints, stickySeconds }),
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
    this.#rejectAll("The thread that forwards was ended");
  }

  #rejectAll(message: string): void {
    for (const { reject } of this.#asked.values()) reject(new Error(message));
    this.#asked.clear();
  }

  #post(order: RelayOrder): void {
    this.#worker.postMessage(order);
  }

  #ask(question: Question): Promise<number> {
    const request = ++this.#lastRequest;
    const answer = Promise.withResolvers<number>();
    this.#asked.set(request, answer);
    this.#post({ ...question, request });
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
}
