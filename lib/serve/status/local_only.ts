/**
 * Which clients may see the status of a running proxy: programs of this machine, and pages that came from it.
 *
 * @module
 */
import { isLoopback, parseIp } from "../../model/ip.ts";
import { textAnswer } from "../http_answer.ts";
import type { Handler, Peer } from "../http_listener.ts";

const READING: readonly string[] = ["GET", "HEAD"];
/** Headers by which a proxy in between names its client. */
const FORWARDED: readonly string[] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/**
 * Lets `handler` answer only reading requests over loopback under a loopback name. The last two are different things: a page of
 * another site, open in a browser on this machine, reaches loopback under a name whose address was changed after the page was loaded.
 * Answers are not given to other pages, and not kept by caches unless they say how.
 */
export function localOnly(handler: Handler): Handler {
  return async (request, peer, stopping) => {
    if (!READING.includes(request.method)) {
      return textAnswer("405 method not allowed\n", { status: 405, headers: { allow: "GET, HEAD" } });
    }
    const problem = strangerProblem(request.headers, peer);
    if (problem !== null) return textAnswer(`403 forbidden: ${problem}\n`, { status: 403 });
    const answer = await handler(request, peer, stopping);
    if (!answer.headers.has("cache-control")) answer.headers.set("cache-control", "no-store");
    answer.headers.set("cross-origin-resource-policy", "same-origin");
    return answer;
  };
}

/** Why a request is not answered; null if it comes from a program of this machine. */
export function strangerProblem(headers: Headers, peer: Pick<Peer, "isLoopback">): string | null {
  if (!peer.isLoopback) return "ask from the node itself, over a loopback address";
  if (FORWARDED.some((name) => headers.has(name))) return "the request was forwarded by a proxy";
  if (!isLoopbackHost(headers.get("host") ?? "")) {
    return "the Host header must name a loopback address or localhost";
  }
  return foreignPageProblem(headers);
}

/**
 * Lets `handler` answer all clients but pages of other sites in a browser. Of loopback such a page can ask under a name only, whose address was
 * changed after the page was loaded: an address is let through, as a proxy on this machine that asks for its clients hands theirs on.
 */
export function noForeignPages(handler: Handler): Handler {
  return (request, peer, stopping) => {
    const { headers } = request;
    const host = headers.get("host") ?? "";
    const problem = peer.isLoopback && host !== "" && hostIp(host) === null && !isLoopbackHost(host)
      ? "over loopback, the Host header must name an address or localhost"
      : foreignPageProblem(headers);
    return problem === null
      ? handler(request, peer, stopping)
      : textAnswer(`403 forbidden: ${problem}\n`, { status: 403 });
  };
}

function foreignPageProblem(headers: Headers): string | null {
  const origin = headers.get("origin");
  if (
    origin !== null &&
    origin.toLowerCase() !== `http://${(headers.get("host") ?? "").toLowerCase()}`
  ) {
    return "the request comes from a page of another origin";
  }
  const isForeignPart = headers.get("sec-fetch-site") === "cross-site" &&
    headers.get("sec-fetch-mode") !== "navigate";
  return isForeignPart ? "the request comes from a page of another site" : null;
}

/** `localhost`, `127.0.0.1:10249`, `[::1]:10249`. */
function isLoopbackHost(host: string): boolean {
  if (/^localhost(?::\d{1,5})?$/i.test(host)) return true;
  const ip = hostIp(host);
  return ip !== null && isLoopback(ip);
}

/** The IP address in a Host header; null if it is a name. */
function hostIp(host: string): ReturnType<typeof parseIp> {
  const match = /^(?:\[([^\]]*)\]|([^:]*))(?::\d{1,5})?$/.exec(host);
  return parseIp(match?.[1] ?? match?.[2] ?? "");
}
