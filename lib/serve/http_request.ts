/**
 * HTTP/1 requests, from bytes as they come. It keeps what a client sends up to a limit, for the head and for the body.
 *
 * @module
 */
import { GrowingBytes } from "../text/growing_bytes.ts";

/** Longest request line with headers. */
const MAX_HEAD_BYTES = 32 * 1024;

/** One request, complete. */
export interface ParsedRequest {
  readonly method: string;
  /** Path and query; begins with `/`. Not decoded. */
  readonly target: string;
  readonly headers: Headers;
  readonly body: Uint8Array<ArrayBuffer>;
  /** The client speaks HTTP/1.0, which knows no chunks. */
  readonly isHttp10: boolean;
  /** The client means to send another request. */
  readonly keepAlive: boolean;
}

interface Head extends Omit<ParsedRequest, "body"> {
  readonly body: BodyReader;
}

const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const REQUEST_LINE = new RegExp(`^(${TOKEN}) ([^\\s\\x00-\\x20\\x7f]+) HTTP/(\\d)\\.(\\d)$`);
const FIELD = new RegExp(`^(${TOKEN}):[ \\t]*([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)$`);
/** What Go takes for a host; a blank one is right where the target has none. */
const HOST = /^[A-Za-z0-9!$%&()*+,\-.:;=[\]'_~]*$/;
const LF = 10;
const CR = 13;

/** Takes a connection's bytes and gives its requests, one after the other. */
export class RequestReader {
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  /** Where the line that is not complete yet begins; all lines before it hold something. */
  #lineAt = 0;
  #searchedTo = 0;
  #head: Head | null = null;
  #isContinueDue = false;

  /** True if a request has begun that is not complete. */
  get hasBegun(): boolean {
    return this.#head !== null || this.#bytes.length > 0;
  }

  /** True, once for a request, if its client waits for a word before it sends the body. */
  takeContinueDue(): boolean {
    const isDue = this.#isContinueDue;
    this.#isContinueDue = false;
    return isDue;
  }

  /** Takes what was read. */
  push(bytes: Uint8Array): void {
    const joined = new Uint8Array(this.#bytes.length + bytes.length);
    joined.set(this.#bytes);
    joined.set(bytes, this.#bytes.length);
    this.#bytes = joined;
  }

  /**
   * The next request, or null as long as it is not complete.
   *
   * @throws {BadRequest} if it is none; nothing after it can be understood
   */
  next(): ParsedRequest | null {
    if (this.#head === null) {
      const end = this.#headEnd();
      if (end === null) return null;
      this.#head = parseHead(latin1(this.#bytes.subarray(0, end)));
      this.#drop(end);
      this.#isContinueDue = this.#head.headers.get("expect")?.toLowerCase() === "100-continue";
    }
    const { body, ...head } = this.#head;
    this.#drop(body.push(this.#bytes));
    if (!body.isComplete) return null;
    this.#head = null;
    this.#isContinueDue = false;
    return { ...head, body: body.bytes };
  }

  #drop(count: number): void {
    this.#bytes = this.#bytes.subarray(count);
    this.#lineAt = 0;
    this.#searchedTo = 0;
  }

  /** Where the blank line after the head ends, or null. Lines end as Go takes them: in LF, or CR and LF. */
  #headEnd(): number | null {
    for (;;) {
      const at = this.#bytes.indexOf(LF, this.#searchedTo);
      if (at < 0) break;
      const length = at - this.#lineAt - Number(this.#bytes[at - 1] === CR && at > this.#lineAt);
      this.#lineAt = this.#searchedTo = at + 1;
      if (length > 0) continue;
      // Some clients end a body with a line more than they say.
      if (latin1(this.#bytes.subarray(0, at + 1)).trim() === "") this.#drop(at + 1);
      else return at + 1;
    }
    this.#searchedTo = this.#bytes.length;
    if (this.#bytes.length > MAX_HEAD_BYTES) {
      throw new BadRequest(431, "431 Request Header Fields Too Large");
    }
    return null;
  }
}

function parseHead(text: string): Head {
  if (text.length > MAX_HEAD_BYTES) throw new BadRequest(431, "431 Request Header Fields Too Large");
  const [first = "", ...lines] = text.trimEnd().split(/\r?\n/);
  const line = REQUEST_LINE.exec(first);
  if (line === null) throw new BadRequest(400, "400 Bad Request");
  const [, method = "", target = "", major, minor] = line;
  if (major !== "1") {
    throw new BadRequest(505, "505 HTTP Version Not Supported: unsupported protocol version");
  }
  const headers = new Headers();
  for (const text of lines) {
    const field = FIELD.exec(text);
    if (field === null) throw new BadRequest(400, "400 Bad Request");
    headers.append(field[1] ?? "", (field[2] ?? "").trimEnd());
  }
  const isHttp10 = minor === "0";
  checkHost(headers.get("host"), isHttp10);
  return {
    method,
    target: pathOf(target),
    headers,
    isHttp10,
    keepAlive: wantsKeepAlive(headers.get("connection"), isHttp10),
    body: new BodyReader(headers, isHttp10),
  };
}

/** @throws {BadRequest} in Go's words */
function checkHost(host: string | null, isHttp10: boolean): void {
  if (host === null && !isHttp10) throw new BadRequest(400, "400 Bad Request: missing required Host header");
  // Two of them are joined by a comma and a blank, which no host holds.
  if (host !== null && !HOST.test(host)) throw new BadRequest(400, "400 Bad Request: malformed Host header");
}

/** A proxy's client names the whole address. */
function pathOf(target: string): string {
  const path = /^https?:\/\/[^/?#]*(.*)$/i.exec(target)?.[1] ?? target;
  if (path === "*" || path === "" || path.startsWith("?")) return `/${path}`;
  if (!path.startsWith("/")) throw new BadRequest(400, "400 Bad Request");
  return path;
}

function wantsKeepAlive(connection: string | null, isHttp10: boolean): boolean {
  const words = (connection ?? "").toLowerCase().split(",").map((word) => word.trim());
  return isHttp10 ? words.includes("keep-alive") : !words.includes("close");
}

function latin1(bytes: Uint8Array): string {
  // `TextDecoder` takes Latin-1 for a code page of Windows.
  return String.fromCharCode(...bytes);
}

/** A request that no page answers; its connection ends with the answer. */
export class BadRequest extends Error {
  override readonly name = "BadRequest";

  /** @param message the answer's body, as Go's server words it */
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** Longest body, and most that may frame its chunks: no page takes more than a number. */
const MAX_BODY_BYTES = 64 * 1024;

/** A line that frames a chunk, extensions included, or a trailer. */
const MAX_LINE_BYTES = 4096;
const TOO_LARGE = "413 Request Entity Too Large";

type Part = "data" | "end of data" | "size" | "trailers";

/** Takes a body's bytes, each once. */
export class BodyReader {
  readonly #isChunked: boolean;
  #part: Part;
  /** Bytes of data that are missing: of the body, or of the chunk. */
  #missing: number;
  #line = "";
  #framed = 0;
  readonly #data = new GrowingBytes();
  #isComplete: boolean;

  /** @throws {BadRequest} if its length is unknown or too large */
  constructor(headers: Headers, isHttp10: boolean) {
    const coding = headers.get("transfer-encoding");
    this.#isChunked = coding !== null;
    if (coding !== null) checkCoding(coding, headers, isHttp10);
    this.#missing = coding === null ? contentLength(headers.get("content-length")) : 0;
    if (this.#missing > MAX_BODY_BYTES) throw new BadRequest(413, TOO_LARGE);
    this.#part = this.#isChunked ? "size" : "data";
    this.#isComplete = !this.#isChunked && this.#missing === 0;
  }

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** The body; complete if {@linkcode isComplete}. */
  get bytes(): Uint8Array<ArrayBuffer> {
    return this.#data.view();
  }

  /**
   * Takes of `bytes` what belongs to the body.
   *
   * @returns how many that were
   * @throws {BadRequest} if chunks are not framed as they must be, or the body is too large
   */
  push(bytes: Uint8Array): number {
    let at = 0;
    while (at < bytes.length && !this.#isComplete) {
      at += this.#part === "data" ? this.#takeData(bytes.subarray(at)) : this.#takeLine(bytes.subarray(at));
    }
    return at;
  }

  #takeData(bytes: Uint8Array): number {
    const piece = bytes.subarray(0, this.#missing);
    this.#data.add(piece);
    this.#missing -= piece.length;
    if (this.#missing === 0) {
      if (this.#isChunked) this.#part = "end of data";
      else this.#isComplete = true;
    }
    return piece.length;
  }

  #takeLine(bytes: Uint8Array): number {
    const end = bytes.indexOf(LF);
    const count = end < 0 ? bytes.length : end + 1;
    this.#line += String.fromCharCode(...bytes.subarray(0, Math.min(count, MAX_LINE_BYTES + 1)));
    this.#framed += count;
    if (this.#line.length > MAX_LINE_BYTES || this.#framed > MAX_BODY_BYTES) {
      throw new BadRequest(413, TOO_LARGE);
    }
    if (end >= 0) {
      this.#endLine(this.#line.replace(/\r?\n$/, ""));
      this.#line = "";
    }
    return count;
  }

  #endLine(line: string): void {
    if (this.#part === "trailers") {
      this.#isComplete = line === "";
      return;
    }
    if (this.#part === "end of data") {
      if (line !== "") throw new BadRequest(400, "400 Bad Request");
      this.#part = "size";
      return;
    }
    const size = /^([0-9A-Fa-f]{1,8})[ \t]*(;.*)?$/.exec(line);
    if (size === null) throw new BadRequest(400, "400 Bad Request");
    this.#missing = Number.parseInt(size[1] ?? "", 16);
    if (this.#data.length + this.#missing > MAX_BODY_BYTES) throw new BadRequest(413, TOO_LARGE);
    this.#part = this.#missing === 0 ? "trailers" : "data";
  }
}

function checkCoding(coding: string, headers: Headers, isHttp10: boolean): void {
  if (coding.toLowerCase() !== "chunked") {
    throw new BadRequest(501, "501 Not Implemented: unsupported transfer encoding");
  }
  // A proxy on the path may have used the other length.
  if (isHttp10 || headers.has("content-length")) throw new BadRequest(400, "400 Bad Request");
}

/** Equal lengths, said several times, are one. */
function contentLength(text: string | null): number {
  if (text === null) return 0;
  const lengths = new Set(text.split(",").map((length) => length.trim()));
  const [length = ""] = lengths;
  if (lengths.size > 1 || !/^\d{1,15}$/.test(length)) throw new BadRequest(400, "400 Bad Request");
  return Number(length);
}
