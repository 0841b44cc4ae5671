/**
 * Who has an address that a server wants. It is asked over HTTP: that needs no rights to look into other programs.
 *
 * @module
 */
import { isUnspecified, joinHostPort, parseIp } from "../model/ip.ts";

/** A program on the same node answers at once, or not at all. */
const LIMIT_MS = 1_000;
/** Of an answer, with its headers: what is looked for is in its beginning. */
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
  /** For all questions together. @default {1000} */
  readonly limitMs?: number;
}

/**
 * Says who listens there, e.g. `another proxy answers there: mode iptables`; `""` if whoever it is does not say. Never rejects.
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
  const ask = (path: string): Promise<Answer | null> => askFor(path, reachable(host), port, limit.signal);
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

/** A wildcard is reached at the loopback address of its family. */
function reachable(host: string): string {
  const ip = parseIp(host);
  if (ip === null || !isUnspecified(ip)) return host;
  return ip.family === "IPv4" ? "127.0.0.1" : "::1";
}

/** By hand, because `fetch` would ask a proxy that the environment names. Null: no answer that is HTTP. */
async function askFor(
  path: string,
  hostname: string,
  port: number,
  signal: AbortSignal,
): Promise<Answer | null> {
  try {
    using connection = await Deno.connect({ hostname, port, signal });
    const close = (): void => connection.close();
    signal.addEventListener("abort", close, { once: true });
    try {
      const request = `GET ${path} HTTP/1.0\r\nHost: ${joinHostPort(hostname, port)}\r\n\r\n`;
      await writeAll(connection, new TextEncoder().encode(request));
      return parseAnswer(await readBeginning(connection));
    } finally {
      signal.removeEventListener("abort", close);
    }
  } catch {
    // Refused, cut off or given up: whoever it is does not say who it is.
    return null;
  }
}

async function writeAll(connection: Deno.TcpConn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

async function readBeginning(connection: Deno.TcpConn): Promise<string> {
  const bytes = new Uint8Array(MAX_BYTES);
  let length = 0;
  while (length < MAX_BYTES) {
    const read = await connection.read(bytes.subarray(length));
    if (read === null) break;
    length += read;
  }
  return new TextDecoder().decode(bytes.subarray(0, length));
}

function parseAnswer(text: string): Answer | null {
  const status = /^HTTP\/1\.[01] (\d{3})\b/.exec(text)?.[1];
  const headEnd = text.indexOf("\r\n\r\n");
  if (status === undefined || headEnd < 0) return null;
  const server = SERVER_REGEXP.exec(text.slice(0, headEnd))?.[1] ?? "";
  return {
    status: Number(status),
    server: server.trim().slice(0, MAX_NAME_LENGTH),
    body: text.slice(headEnd + 4),
  };
}

function isProxyHealth(body: string): boolean {
  return /"lastUpdated"\s*:/.test(body) && /"currentTime"\s*:/.test(body);
}
