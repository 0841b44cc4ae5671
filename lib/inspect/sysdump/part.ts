/**
 * The parts of a dump, and how each is had within its time and its size.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { joinHostPort } from "../../model/ip.ts";
import { findOwnSocket } from "../../kernel/own_socket.ts";
import { errorText } from "../../observe/log.ts";
import { httpGet, type HttpPlace, NoConnectionError, StrangeAnswerError } from "../../serve/http_get.ts";
import { GrowingBytes } from "../../text/growing_bytes.ts";
import { withoutSecrets } from "./secrets.ts";

/** One file of a dump. */
export interface Part {
  /** Its name in the dump, e.g. `rules/nft-ruleset.txt`. */
  readonly name: string;
  /** Where it comes from, as the list of parts says it: `nft list ruleset`. */
  readonly from: string;
  /** @throws whatever keeps it from being had */
  readonly read: (limits: PartLimits) => Promise<PartContent>;
}

export interface PartLimits {
  readonly timeMs: number;
  readonly bytes: number;
  /** Ends the reading. */
  readonly signal: AbortSignal;
}

export interface PartContent {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** What is wrong with it, in a sentence; `""` if nothing is. */
  readonly problem: string;
}

/** How a part was had. */
export interface PartOutcome {
  readonly name: string;
  readonly from: string;
  /** Null: there is nothing. */
  readonly bytes: Uint8Array<ArrayBuffer> | null;
  /** Why there is nothing, or not all; `""` if it is all there. */
  readonly problem: string;
  readonly tookMs: number;
}

/** Bytes up to a limit. */
class LimitedBytes {
  readonly #bytes = new GrowingBytes();

  constructor(readonly limit: number) {}

  /** False: there was more than the limit. */
  take(piece: Uint8Array): boolean {
    const room = this.limit - this.#bytes.length;
    this.#bytes.add(piece.subarray(0, room));
    return piece.length <= room;
  }

  /** Valid until the next piece. */
  all(): Uint8Array<ArrayBuffer> {
    return this.#bytes.view();
  }
}

function tooLong(limit: number): string {
  return `it is longer than ${limit} bytes, and cut there`;
}

/** What a program prints. */
export function programPart(name: string, argv: readonly string[], exec: Exec): Part {
  const read = async ({ timeMs, bytes: limit, signal }: PartLimits): Promise<PartContent> => {
    const kept = new LimitedBytes(limit);
    const enough = new AbortController();
    const run = (): Promise<{ code: number; stdout: string; stderr: string }> =>
      exec.run(argv, {
        timeoutMs: timeMs,
        signal: AbortSignal.any([signal, enough.signal]),
        onStdout: (bytes) => {
          if (!kept.take(bytes)) enough.abort();
        },
      });
    try {
      const { code, stdout, stderr } = await run();
      // Programs in memory hand over all at once.
      if (stdout !== "" && !kept.take(new TextEncoder().encode(stdout))) enough.abort();
      const failure = code === 0 ? "" : new ExecError(argv, code, stderr).message;
      const problem = enough.signal.aborted ? tooLong(limit) : failure;
      const bytes = kept.all();
      if (bytes.length === 0 && problem !== "") throw new Error(problem);
      return { bytes, problem };
    } catch (error) {
      if (signal.aborted || !(error instanceof Error)) throw error;
      const bytes = kept.all();
      if (enough.signal.aborted) return { bytes, problem: tooLong(limit) };
      if (bytes.length === 0) throw error;
      return { bytes, problem: errorText(error) };
    }
  };
  return { name, from: argv.join(" "), read };
}

/** A page of a server on this machine. */
export type Page = HttpPlace & { readonly path: string };

/** What a page says, whatever its status. */
export function pagePart(name: string, page: Page): Part {
  const from = "socket" in page
    ? `${page.socket} ${page.path}`
    : `http://${joinHostPort(page.host, page.port)}${page.path}`;
  const read = async ({ timeMs, bytes: limit, signal }: PartLimits): Promise<PartContent> => {
    const kept = new LimitedBytes(limit);
    let problem = "";
    const question = {
      ...page,
      ...("socket" in page ? { socket: findOwnSocket(page.socket).path } : {}),
      limitMs: Math.min(timeMs, PAGE_LIMIT_MS),
      wholeMs: timeMs,
      maxBytes: 2 * limit + HEAD_BYTES,
    };
    try {
      await httpGet(question, async ({ status, body }) => {
        if (status !== 200) problem = `it answers with status ${status}`;
        for await (const piece of body) {
          signal.throwIfAborted();
          if (kept.take(piece)) continue;
          problem = tooLong(limit);
          return;
        }
      });
    } catch (error) {
      const isOfPage = error instanceof NoConnectionError || error instanceof StrangeAnswerError;
      if (!isOfPage || kept.all().length === 0) throw error;
      problem = error.message;
    }
    return { bytes: cleaned(kept.all()), problem };
  };
  return { name, from, read };
}

/** For an answer to begin, and for each further piece of it. */
const PAGE_LIMIT_MS = 3_000;
const HEAD_BYTES = 65_536;

/** Text that is known here. */
export function textPart(name: string, from: string, text: () => string | Promise<string>): Part {
  const read = async ({ bytes: limit }: PartLimits): Promise<PartContent> => {
    const bytes = new TextEncoder().encode(withoutSecrets(await text()));
    return bytes.length <= limit
      ? { bytes, problem: "" }
      : { bytes: bytes.slice(0, limit), problem: tooLong(limit) };
  };
  return { name, from, read };
}

function cleaned(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(withoutSecrets(new TextDecoder().decode(bytes)));
}

/** Reads a part; what goes wrong is in the outcome. Rejects only once `signal` is aborted. */
export async function readPart(part: Part, limits: PartLimits, nowMs: () => number): Promise<PartOutcome> {
  const { name, from } = part;
  const startMs = nowMs();
  try {
    const content = await part.read(limits);
    return { name, from, ...content, tookMs: nowMs() - startMs };
  } catch (error) {
    limits.signal.throwIfAborted();
    return { name, from, bytes: null, problem: withoutSecrets(errorText(error)), tookMs: nowMs() - startMs };
  }
}
