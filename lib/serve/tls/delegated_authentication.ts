/**
 * Lets the API server decide about tokens: the user of one (TokenReview), and whether that user may have the path
 * (SubjectAccessReview), as kube-rbac-proxy does.
 *
 * @module
 */
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { errorText, type Logger } from "../../observe/log.ts";
import type { KubeClient } from "../../source/kube/kube_client.ts";
import { IdleLimit, readText } from "../../source/kube/response.ts";
import type { Peer } from "../http_listener.ts";
import type { Judge, Verdict, Wanted } from "./tls_serving.ts";
import { isRecord } from "../../text/record.ts";
import { tokenHash } from "./serving_files.ts";

/** Dependencies of {@linkcode DelegatedAuthentication}. */
export interface DelegatedAuthenticationOptions {
  readonly client: Pick<KubeClient, "send" | "server">;
  readonly log: Logger;
  readonly clock?: Clock;
}

/** How long an answer of the API server is cached. */
const ANSWER_COUNTS_MS = 10_000;
/** How long the API server may be silent, and how long it may take for one answer. */
const LIMITS = { idleMs: 5_000, wholeMs: 10_000 };
const MAX_ANSWERS = 256;
const MAX_ANSWER_BYTES = 256 * 1024;
/** Reviews for one client, and for all, in the time that an answer is cached: trying tokens causes no more. */
const MOST_OF_CLIENT = 20;
const MOST = 200;

interface Known {
  readonly verdict: Promise<Verdict>;
  readonly untilMs: number;
}

/** Decides by reviews at the API server. Tokens that it cannot be asked about are refused. */
export class DelegatedAuthentication {
  readonly #options: DelegatedAuthenticationOptions;
  readonly #clock: Clock;
  /** Cached verdicts by token, verb and path; in the order in which they were asked about. */
  readonly #known = new Map<string, Known>();
  readonly #asked = new Map<string, number>();
  #askedOfAll = 0;
  #windowEndsMs = Number.NEGATIVE_INFINITY;
  #hasFailed = false;

  constructor(options: DelegatedAuthenticationOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  readonly judge: Judge = async (wanted, peer, stopping) => {
    const { token, verb, path } = wanted;
    const key = [...tokenHash(token), verb, path].join(" ");
    const nowMs = this.#clock.nowMs();
    const known = this.#known.get(key);
    if (known !== undefined && nowMs < known.untilMs) return await known.verdict;
    this.#known.delete(key);
    if (!this.#mayAsk(peer, nowMs)) return "undecided";
    const verdict = this.#ask(wanted, stopping);
    this.#known.set(key, { verdict, untilMs: nowMs + ANSWER_COUNTS_MS });
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_ANSWERS) break;
      this.#known.delete(oldest);
    }
    // A missing answer is not cached: the next request asks again.
    if (await verdict === "undecided") this.#known.delete(key);
    return await verdict;
  };

  #mayAsk({ address }: Peer, nowMs: number): boolean {
    if (nowMs >= this.#windowEndsMs) {
      this.#windowEndsMs = nowMs + ANSWER_COUNTS_MS;
      this.#asked.clear();
      this.#askedOfAll = 0;
    }
    const ofClient = this.#asked.get(address) ?? 0;
    if (ofClient >= MOST_OF_CLIENT || this.#askedOfAll >= MOST) return false;
    this.#asked.set(address, ofClient + 1);
    this.#askedOfAll++;
    return true;
  }

  async #ask({ token, verb, path }: Wanted, stopping: AbortSignal): Promise<Verdict> {
    const { client, log } = this.#options;
    try {
      const review = await this.#review("authentication.k8s.io", "TokenReview", { token }, stopping);
      const { user } = review;
      let verdict: Verdict = "unauthenticated";
      if (review["authenticated"] === true && isRecord(user) && typeof user["username"] === "string") {
        const { username, uid, groups, extra } = user;
        const access = await this.#review("authorization.k8s.io", "SubjectAccessReview", {
          user: username,
          uid,
          groups,
          extra,
          nonResourceAttributes: { path, verb },
        }, stopping);
        verdict = access["allowed"] === true && access["denied"] !== true ? "allowed" : "forbidden";
      }
      if (this.#hasFailed) {
        log.info("The API server decides about clients' tokens again", { server: client.server });
      }
      this.#hasFailed = false;
      return verdict;
    } catch (error) {
      if (!this.#hasFailed && !stopping.aborted) {
        log.error("The API server cannot be asked about a client's token, it is refused", errorText(error), {
          server: client.server,
        });
      }
      this.#hasFailed = true;
      return "undecided";
    }
  }

  /** The status of the review. @throws {Error} if there is none */
  async #review(
    group: string,
    kind: "TokenReview" | "SubjectAccessReview",
    spec: Readonly<Record<string, unknown>>,
    stopping: AbortSignal,
  ): Promise<Readonly<Record<string, unknown>>> {
    const { client } = this.#options;
    using limit = new IdleLimit(LIMITS, client.server, stopping, this.#clock);
    const answer = await client.send({
      method: "POST",
      path: `/apis/${group}/v1/${kind.toLowerCase()}s`,
      contentType: "application/json",
      body: JSON.stringify({ apiVersion: `${group}/v1`, kind, spec }),
    }, limit.signal).catch((error) => {
      throw limit.error ?? error;
    });
    const text = await readText(answer, limit, MAX_ANSWER_BYTES);
    if (answer.status !== 200 && answer.status !== 201) throw new Error(`${kind}: status ${answer.status}`);
    const review: unknown = JSON.parse(text);
    const status = isRecord(review) ? review["status"] : undefined;
    if (!isRecord(status)) throw new Error(`${kind}: an answer without a status`);
    return status;
  }
}
