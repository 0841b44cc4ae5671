/**
 * Requests must bring a token: answers only to those whose token counts.
 *
 * @module
 */
import { timingSafeEqual } from "node:crypto";
import type { RefusalReason } from "../../observe/metrics_serving.ts";
import { textAnswer } from "../answers.ts";
import type { Handler, Peer } from "../http_listener.ts";
import { tokenHash } from "./serving_files.ts";

/** What becomes of a request. */
export type Verdict = "allowed" | Exclude<RefusalReason, "handshake">;

/** What a request asks for. */
export interface Wanted {
  readonly token: string;
  readonly verb: string;
  /** Without a query. */
  readonly path: string;
}

/** Decides about a token; never rejects. */
export type Judge = (wanted: Wanted, peer: Peer, stopping: AbortSignal) => Verdict | Promise<Verdict>;

/** Source: RFC 6750; the tokens of service accounts have some 1,500 characters. */
const BEARER_REGEXP = /^Bearer +([A-Za-z0-9._~+/-]{1,16384}=*)$/i;

const ANSWERS: Readonly<Record<Exclude<Verdict, "allowed">, { status: number; text: string }>> = {
  unauthenticated: { status: 401, text: "Unauthorized\n" },
  forbidden: { status: 403, text: "Forbidden\n" },
  undecided: { status: 503, text: "the API server cannot be asked who this is: try again later\n" },
};

/** `handler`, for requests that `judge` allows. */
export function authenticated(
  handler: Handler,
  judge: Judge,
  onRefused: (reason: Exclude<Verdict, "allowed">) => void,
): Handler {
  return async (request, peer, stopping) => {
    const token = BEARER_REGEXP.exec(request.headers.get("authorization") ?? "")?.[1];
    const { pathname: path } = new URL(request.url);
    const verdict = token === undefined
      ? "unauthenticated"
      : await judge({ token, verb: verbOf(request.method), path }, peer, stopping);
    if (verdict === "allowed") return handler(request, peer, stopping);
    onRefused(verdict);
    const { status, text } = ANSWERS[verdict];
    const headers = verdict === "unauthenticated" ? { "www-authenticate": "Bearer" } : {};
    return textAnswer(text, { status, headers });
  };
}

/** Counts the tokens that `hashes` gives at the time. */
export function byTokens(hashes: () => readonly Uint8Array[]): Judge {
  return ({ token }) => {
    const given = tokenHash(token);
    const isKnown = hashes().filter((known) => timingSafeEqual(known, given)).length > 0;
    return isKnown ? "allowed" : "unauthenticated";
  };
}

/** Source: `RequestInfo` of Kubernetes' API server, of what is no resource: the method in small letters. */
function verbOf(method: string): string {
  return method.toLowerCase();
}
