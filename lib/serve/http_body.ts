/**
 * Bodies of HTTP/1 requests: none, of a known length, or in chunks.
 *
 * @module
 */
import { GrowingBytes } from "../text/growing_bytes.ts";
import { BadRequest } from "./bad_request.ts";

/** Longest body, and most that may frame its chunks: no page takes more than a number. */
const MAX_BODY_BYTES = 64 * 1024;

const LF = 10;
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
