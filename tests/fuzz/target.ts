/**
 * What is fuzzed: one parser of what another party wrote, with the laws that hold for whatever it is given.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { Random } from "../chaos/random.ts";

type ErrorClass = abstract new (...args: never[]) => Error;

/** One parser, or several that read the same text. */
export interface FuzzTarget {
  /** For `deno task fuzz NAME`. */
  readonly name: string;
  /** Files of the project whose texts the first inputs are. */
  readonly files?: RegExp;
  /** More of them: texts, or bytes. */
  readonly examples?: readonly (string | Uint8Array)[];
  /** What it throws for what it refuses; anything else that is thrown is a find. */
  readonly refusals: readonly ErrorClass[];
  /**
   * Parses `bytes` and holds the laws of this parser over what came of it. The same bytes give the same `random`.
   *
   * @throws one of the refusals; anything else where a law is broken
   */
  readonly read: (bytes: Uint8Array<ArrayBuffer>, random: Random) => void | Promise<void>;
  /** How often `read` parses all of the input. @default {1} */
  readonly passes?: number;
  /** Processor time of one pass over 1 MiB. @default {100} */
  readonly limitMs?: number;
}

/** Inputs are texts with one character for each byte: they are cut and joined as texts, and kept as JSON. */
export type Input = string;

/** A large input: parts, and how often each stands there. */
export type Repeated = readonly (readonly [part: Input, times: number])[];

/** All of a large input; any other one as it is. */
export function wholeOf(input: Input | Repeated): Input {
  return typeof input === "string" ? input : input.map(([part, times]) => part.repeat(times)).join("");
}

/** An input as bytes. */
export function bytesOf(input: Input): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(input, "latin1"));
}

/** Bytes, or a text's bytes in UTF-8, as an input. */
export function inputOf(of: string | Uint8Array): Input {
  return Buffer.from(typeof of === "string" ? new TextEncoder().encode(of) : of).toString("latin1");
}

/** What a program printed. */
export function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

/** The bytes in pieces, cut at random places, none longer than `most`. The memory of each is used again for the next one. */
export function* inPieces(bytes: Uint8Array, random: Random, most = 16 * 1024): Generator<Uint8Array> {
  const memory = new Uint8Array(most);
  for (let at = 0; at < bytes.length;) {
    const length = Math.min(
      bytes.length - at,
      random.whole(1, random.chance(0.5) ? Math.min(8, most) : most),
    );
    memory.set(bytes.subarray(at, at + length));
    yield memory.subarray(0, length);
    memory.fill(0x22, 0, length);
    at += length;
  }
}

/** A stream that follows from the bytes themselves, so that the input alone is enough. */
export function randomOf(bytes: Uint8Array): Random {
  let hash = bytes.length;
  for (let at = 0; at < Math.min(bytes.length, 256); at++) hash = Math.imul(hash ^ bytes[at]!, 0x01000193);
  return new Random(hash);
}
