/**
 * Who has an address that a server wants. It is asked over HTTP: that needs no rights to look into other programs.
 *
 * @module
 */
import { localHost } from "../model/ip.ts";
import { beginningOf, httpGet, NoConnectionError, StrangeAnswerError } from "./http_get.ts";

/** A program on the same node answers at once, or not at all; on one that has much to do, too. */
const LIMIT_MS = 5_000;
/** Of one question: the limit of all ends it sooner. */
const QUESTION_MS = 60_000;
/** Of an answer: what is looked for is in its beginning. */
const MAX_BYTES = 8 * 1024;
const MAX_NAME_LENGTH = 60;

const MODE_REGEXP = /^(iptables|ipvs|nftables|userspace|kernelspace)\s*$/;
const SERVER_REGEXP = /^server:[ \t]*([\x21-\x7e][\x20-\x7e]*)/im;

/** Where to ask. */
export interface HeldAddress {
  /** An IP address, also a wildcard. */
  readonly host: string;
  readonly port: number;
  /** Ends the questions. */
  readonly signal: AbortSignal;
  /** For all questions together. @default {5000} */
  readonly limitMs?: number;
}

/**
 * Says who listens there, e.g. `another proxy answers there: mode iptables`; `""` if it does not say. Never rejects.
 *
 * A proxy is known by `/proxyMode` at the port of its metrics, and by the times in `/healthz` at that of its health.
 */
export async function addressHolder(
  { host, port, signal, limitMs = LIMIT_MS }: HeldAddress,
): Promise<string> {
  const limit = new AbortController();
  const end = (): void => limit.abort();
  const timer = setTimeout(end, limitMs);
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();
  const ask = (path: string): Promise<Answer | null> => askFor(path, localHost(host), port, limit.signal);
  try {
    const mode = await ask("/proxyMode");
    if (mode === null) return "";
    const name = MODE_REGEXP.exec(mode.body)?.[1];
    if (mode.status === 200 && name !== undefined) return `another proxy answers there: mode ${name}`;
    const health = await ask("/healthz");
    if (isProxyHealth(health?.body ?? "")) return "another proxy answers there";
    const server = mode.server || health?.server || "";
    return `another HTTP server answers there${server === "" ? "" : `: ${server}`}`;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
  }
}

interface Answer {
  readonly status: number;
  /** From the header of this name, cut. */
  readonly server: string;
  readonly body: string;
}

/** Null: no answer that is HTTP. */
async function askFor(path: string, host: string, port: number, signal: AbortSignal): Promise<Answer | null> {
  const question = {
    host,
    port,
    path,
    limitMs: QUESTION_MS,
    wholeMs: QUESTION_MS,
    maxBytes: Infinity,
    signal,
  };
  try {
    return await httpGet(question, async (reply) => {
      const server = SERVER_REGEXP.exec(reply.head)?.[1] ?? "";
      return {
        status: reply.status,
        server: server.trim().slice(0, MAX_NAME_LENGTH),
        body: await beginningOf(reply, MAX_BYTES),
      };
    });
  } catch (error) {
    // Refused, cut off or given up: the program does not say what it is.
    if (error instanceof NoConnectionError || error instanceof StrangeAnswerError) return null;
    throw error;
  }
}

function isProxyHealth(body: string): boolean {
  return /"lastUpdated"\s*:/.test(body) && /"currentTime"\s*:/.test(body);
}
