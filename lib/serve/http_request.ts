/**
 * HTTP/1 requests, from bytes as they come. It keeps what a client sends up to a limit, for the head and for the body.
 *
 * @module
 */
/** Longest request line with headers. */
const MAX_HEAD_BYTES = 32 * 1024;
/** Longest body: no page takes more than a number. */
const MAX_BODY_BYTES = 64 * 1024;

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
  readonly bodyLength: number;
}

const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const REQUEST_LINE = new RegExp(`^(${TOKEN}) ([^\\s\\x00-\\x20\\x7f]+) HTTP/(\\d)\\.(\\d)$`);
const FIELD = new RegExp(`^(${TOKEN}):[ \\t]*([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)$`);
/** Go's form of a Host header; a blank one is right where the target has no host. */
const HOST = /^[A-Za-z0-9!$%&()*+,\-.:;=[\]'_~]*$/;
const LF = 10;
const CR = 13;

/** Takes a connection's bytes and gives its requests, one after the other. */
export class RequestReader {
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  /** Offset of the line that is not complete yet; no line before it is blank. */
  #lineAt = 0;
  #searchedTo = 0;
  #head: Head | null = null;
  #isContinueDue = false;

  /** True if a request has begun that is not complete. */
  get hasBegun(): boolean {
    return this.#head !== null || this.#bytes.length > 0;
  }

  /** True, once for a request, if its client waits for `100 Continue` before it sends the body. */
  takeContinueDue(): boolean {
    const isDue = this.#isContinueDue;
    this.#isContinueDue = false;
    return isDue;
  }

  /** Takes bytes that were read. */
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
    const { bodyLength, ...head } = this.#head;
    if (this.#bytes.length < bodyLength) return null;
    const body = this.#bytes.slice(0, bodyLength);
    this.#drop(bodyLength);
    this.#head = null;
    this.#isContinueDue = false;
    return { ...head, body };
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
    bodyLength: bodyLength(headers),
  };
}

/** @throws {BadRequest} in Go's words */
function checkHost(host: string | null, isHttp10: boolean): void {
  if (host === null && !isHttp10) throw new BadRequest(400, "400 Bad Request: missing required Host header");
  // Two of them are joined by a comma and a blank, which no host holds.
  if (host !== null && !HOST.test(host)) throw new BadRequest(400, "400 Bad Request: malformed Host header");
}

/** Path of a request's target. A proxy's client sends the whole URL. */
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

/** @throws {BadRequest} if the length is unknown or too large. A chunked body is not read: clients know the length of a number. */
function bodyLength(headers: Headers): number {
  if (headers.has("transfer-encoding")) throw new BadRequest(411, "411 Length Required");
  // Equal lengths, said several times, are one.
  const lengths = new Set((headers.get("content-length") ?? "0").split(",").map((length) => length.trim()));
  const [length = ""] = lengths;
  if (lengths.size > 1 || !/^\d{1,15}$/.test(length)) throw new BadRequest(400, "400 Bad Request");
  if (Number(length) > MAX_BODY_BYTES) throw new BadRequest(413, "413 Request Entity Too Large");
  return Number(length);
}
