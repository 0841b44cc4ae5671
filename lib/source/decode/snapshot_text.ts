/**
 * The form of a snapshot file: a line that says what it is, an object a line, and the checksum of all that.
 *
 * ```
 * {"kproxySnapshot":1,"savedAt":"2026-11-21T17:00:00.000Z","node":"n1","server":"https://10.0.0.1:6443"}
 * {"kind":"Node",…}
 * {"kind":"Service",…}
 * {"sha256":"…"}
 * ```
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { ApiObject } from "../../model/objects.ts";
import { LineCutter } from "../../text/line_cutter.ts";
import { describeItem } from "./decode.ts";
import { DecodeError } from "./decode_values.ts";
import { decodeSnapshotObject, encodeSnapshotObject } from "./snapshot_objects.ts";
import type { Rejection } from "../source.ts";
import { isRecord } from "../../text/record.ts";
import { quote } from "../../text/quote.ts";

/** What a snapshot says of itself. */
export interface SnapshotHeader {
  /** Milliseconds since the epoch. */
  readonly savedAtMs: number;
  /** Name of the own Node. */
  readonly node: string;
  /** Where the objects came from. */
  readonly server: string;
}

/** Whose snapshot is wanted. */
export type SnapshotOwner = Pick<SnapshotHeader, "node" | "server">;

/** A snapshot that was read whole. */
export interface Snapshot extends SnapshotHeader {
  readonly objects: readonly ApiObject[];
  /** Objects that cannot be read although the file is intact: another release wrote them. */
  readonly rejections: readonly Rejection[];
}

/** A file that cannot serve as a snapshot; the message says why and continues "the file …". */
export class SnapshotError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "SnapshotError";
  }
}

const FORM = 1;
/** About as much as is made, and written, at once: neither may hold up the loop. */
const PIECE_CHARACTERS = 64 * 1024;
const MAX_HEADER_BYTES = 4096;
const LINE_END = Uint8Array.of(10);

/** Yields the file in pieces. The objects are looked at as the pieces are taken. */
export function* snapshotPieces(
  { savedAtMs, node, server }: SnapshotHeader,
  objects: Iterable<ApiObject>,
): Generator<Uint8Array<ArrayBuffer>> {
  const hash = createHash("sha256");
  const encoder = new TextEncoder();
  const savedAt = new Date(savedAtMs).toISOString();
  let text = `${JSON.stringify({ kproxySnapshot: FORM, savedAt, node, server })}\n`;
  for (const object of objects) {
    text += `${JSON.stringify(encodeSnapshotObject(object))}\n`;
    if (text.length < PIECE_CHARACTERS) continue;
    const piece = encoder.encode(text);
    hash.update(piece);
    yield piece;
    text = "";
  }
  hash.update(text);
  yield encoder.encode(`${text}${JSON.stringify({ sha256: hash.digest("hex") })}\n`);
}

/** Reads a snapshot in whatever pieces it comes. */
export class SnapshotReader {
  readonly #owner: SnapshotOwner | null;
  readonly #where: string;
  readonly #hash = createHash("sha256");
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  readonly #objects: ApiObject[] = [];
  readonly #rejections: Rejection[] = [];
  readonly #cutter = new LineCutter((bytes, start, end) => this.#takeLine(bytes.subarray(start, end)));
  #lines = 0;
  #header: SnapshotHeader | undefined;
  #isComplete = false;

  /**
   * @param owner null takes that of anybody
   * @param where only quoted in the rejections
   */
  constructor(owner: SnapshotOwner | null, where: string) {
    this.#owner = owner;
    this.#where = where;
  }

  /** Takes the next piece. @throws {SnapshotError} if this is no snapshot for the owner */
  take(piece: Uint8Array): void {
    this.#cutter.write(piece);
    if (this.#header === undefined && this.#cutter.openBytes > MAX_HEADER_BYTES) throw notOurs();
  }

  /** The whole. @throws {SnapshotError} if the file ended too early */
  end(): Snapshot {
    if (this.#header === undefined) {
      throw this.#cutter.openBytes === 0 ? new SnapshotError("is empty") : notOurs();
    }
    if (!this.#isComplete || this.#cutter.openBytes > 0) {
      throw new SnapshotError("is not complete: its end is missing");
    }
    return { ...this.#header, objects: this.#objects, rejections: this.#rejections };
  }

  #takeLine(line: Uint8Array): void {
    if (this.#isComplete) throw new SnapshotError("goes on after its end");
    this.#lines++;
    const raw = this.#parse(line);
    if (this.#header === undefined) {
      this.#header = headerOf(raw, this.#owner);
    } else if (isRecord(raw) && "sha256" in raw) {
      if (raw["sha256"] !== this.#hash.digest("hex")) {
        throw new SnapshotError("is damaged: its checksum is wrong");
      }
      this.#isComplete = true;
      return;
    } else {
      this.#takeObject(raw);
    }
    this.#hash.update(line).update(LINE_END);
  }

  #parse(line: Uint8Array): unknown {
    try {
      return JSON.parse(this.#decoder.decode(line));
    } catch (cause) {
      if (this.#header === undefined) throw notOurs();
      throw new SnapshotError(`is damaged: line ${this.#lines} cannot be read`, { cause });
    }
  }

  #takeObject(raw: unknown): void {
    try {
      this.#objects.push(decodeSnapshotObject(raw));
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      const object = describeItem({ raw, kind: isRecord(raw) ? raw["kind"] : undefined });
      this.#rejections.push({ where: `${this.#where}:${this.#lines}`, object, message: error.message });
    }
  }
}

function notOurs(): SnapshotError {
  return new SnapshotError("is no snapshot of kproxy");
}

function headerOf(raw: unknown, wanted: SnapshotOwner | null): SnapshotHeader {
  if (!isRecord(raw) || typeof raw["kproxySnapshot"] !== "number") throw notOurs();
  const { kproxySnapshot: form, savedAt, node, server } = raw;
  if (form !== FORM) {
    const age = form > FORM ? "a newer" : "an older";
    throw new SnapshotError(`was written by ${age} release: it has form ${form}, this release reads ${FORM}`);
  }
  const savedAtMs = typeof savedAt === "string" ? Date.parse(savedAt) : NaN;
  if (Number.isNaN(savedAtMs)) throw new SnapshotError("does not say when it was written");
  if (typeof node !== "string" || typeof server !== "string") {
    throw new SnapshotError("does not say whose it is");
  }
  const owner = wanted ?? { node, server };
  if (node !== owner.node) {
    throw new SnapshotError(`is of another node: ${quote(node)}, this one is ${quote(owner.node)}`);
  }
  if (server !== owner.server) {
    throw new SnapshotError(`is of another API server: ${quote(server)}, this one is ${quote(owner.server)}`);
  }
  return { savedAtMs, node: owner.node, server: owner.server };
}
