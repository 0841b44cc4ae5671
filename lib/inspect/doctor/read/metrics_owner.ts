/**
 * Asks who serves metrics where a service proxy of this node would.
 *
 * @module
 */
import { isUnspecified, parseIp, splitHostPort } from "../../../model/ip.ts";
import {
  httpGet,
  type HttpQuestion,
  NoConnectionError,
  StrangeAnswerError,
} from "../../../serve/http_get.ts";
import type { MetricsOwner } from "../judge/other_proxies.ts";

/** For an answer to begin, and for each piece of it. */
const PIECE_LIMIT_MS = 1_500;
/** Those of a large node take a proxy a second or two. */
const WHOLE_LIMIT_MS = 4_000;
/** Its beginning is enough: whoever answers may send without an end. */
const BEGINNING_BYTES = 64 * 1024;

/** @param address `IP:port` as configured; an unspecified IP is asked on loopback */
export async function readMetricsOwner(address: string): Promise<MetricsOwner> {
  if (address === "") return "nobody";
  let text: string;
  try {
    text = await beginningOf(questionAt(address));
  } catch (error) {
    if (error instanceof NoConnectionError) return "nobody";
    // Whoever takes the connection has the port, whatever comes of it.
    if (error instanceof StrangeAnswerError) return "somebody else";
    throw error;
  }
  // Both have the metrics of kube-proxy; those of Go's runtime, which come early, only kube-proxy has.
  if (/^(# (HELP|TYPE) )?go_/m.test(text)) return "kube-proxy";
  return /^(# (HELP|TYPE) )?k(ube)?proxy_/m.test(text) ? "kproxy" : "somebody else";
}

function questionAt(address: string): HttpQuestion {
  const [bound, port] = splitHostPort(address);
  const ip = parseIp(bound);
  const host = ip === null || !isUnspecified(ip) ? bound : ip.family === "IPv4" ? "127.0.0.1" : "::1";
  const maxBytes = 2 * BEGINNING_BYTES;
  return { host, port, path: "/metrics", limitMs: PIECE_LIMIT_MS, wholeMs: WHOLE_LIMIT_MS, maxBytes };
}

async function beginningOf(question: HttpQuestion): Promise<string> {
  return await httpGet(question, async ({ body }) => {
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of body) {
      text += decoder.decode(piece, { stream: true });
      if (text.length >= BEGINNING_BYTES) break;
    }
    return text;
  });
}
