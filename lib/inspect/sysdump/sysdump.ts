/**
 * `kproxy sysdump`: what a bug report needs, as one archive.
 *
 * @module
 */
import { API_VERSION } from "../../serve/status/status_document.ts";
import { type Part, type PartLimits, type PartOutcome, readPart } from "./parts.ts";

const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
/** The format has eleven octal digits for a size. */
const MAX_BYTES = 8 ** 11 - 1;

export interface TarFile {
  /** With its folders, at most 100 bytes. */
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly modifiedMs: number;
}

/**
 * The pieces of a file in an archive, in order. Only its owner may read it once it is unpacked.
 *
 * @throws {RangeError} if its name or its content is too long
 */
export function* tarPieces({ name, bytes, modifiedMs }: TarFile): Generator<Uint8Array<ArrayBuffer>> {
  yield header(name, bytes.length, modifiedMs);
  yield bytes;
  const rest = bytes.length % BLOCK_BYTES;
  if (rest > 0) yield new Uint8Array(BLOCK_BYTES - rest);
}

export function tarEnd(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(2 * BLOCK_BYTES);
}

function header(name: string, size: number, modifiedMs: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK_BYTES);
  const encoder = new TextEncoder();
  const put = (offset: number, text: string): void => block.set(encoder.encode(text), offset);
  if (name === "" || encoder.encode(name).length > NAME_BYTES) {
    throw new RangeError(`"${name}" is too long for a name in an archive`);
  }
  if (size > MAX_BYTES) throw new RangeError(`${name} is too long for an archive`);
  put(0, name);
  put(100, octal(0o600, 7));
  put(108, octal(0, 7));
  put(116, octal(0, 7));
  put(124, octal(size, 11));
  put(136, octal(Math.max(0, Math.floor(modifiedMs / 1_000)), 11));
  // The sum is made as if there were blanks in its place.
  put(148, " ".repeat(8));
  put(156, "0");
  put(257, "ustar\0" + "00");
  put(265, "root");
  put(297, "root");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${octal(sum, 6)}\0 `);
  return block;
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, "0");
}

export interface SysdumpOptions {
  readonly parts: readonly Part[];
  /** Folder that everything is in. */
  readonly folder: string;
  readonly limits: Omit<PartLimits, "signal">;
  /** Ends it; the archive is cut off. */
  readonly signal: AbortSignal;
  readonly nowMs: () => number;
  /** Receives which part is read next. */
  readonly say: (text: string) => void;
  /** Receives each part that was read. */
  readonly onOutcome: (outcome: PartOutcome) => void;
}

/**
 * The pieces of the archive, uncompressed. One part is in memory at a time; the list of all comes last.
 *
 * @throws the reason of `signal`
 */
export async function* sysdump(options: SysdumpOptions): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const { parts, folder, limits, signal, nowMs, say, onOutcome } = options;
  const listed: Record<keyof PartOutcome, unknown>[] = [];
  for (const part of parts) {
    signal.throwIfAborted();
    say(`Reading ${part.from}`);
    const outcome = await readPart(part, { ...limits, signal }, nowMs);
    onOutcome(outcome);
    const { name, from, bytes, problem, tookMs } = outcome;
    listed.push({ name, from, bytes: bytes?.length ?? null, problem, tookMs: Math.round(tookMs) });
    if (bytes !== null) yield* tarPieces({ name: `${folder}/${name}`, bytes, modifiedMs: nowMs() });
  }
  // Each part, where it comes from, and why it is not there or not whole.
  const list = { apiVersion: API_VERSION, kind: "SysdumpParts", parts: listed };
  const bytes = new TextEncoder().encode(`${JSON.stringify(list, null, 2)}\n`);
  yield* tarPieces({ name: `${folder}/parts.json`, bytes, modifiedMs: nowMs() });
  yield tarEnd();
}
