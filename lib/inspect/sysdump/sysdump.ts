/**
 * `kproxy sysdump`: what a bug report needs, as one archive.
 *
 * @module
 */
import { API_VERSION } from "../../serve/status/status_document.ts";
import { type Part, type PartLimits, type PartOutcome, readPart } from "./part.ts";
import { tarEnd, tarPieces } from "./tar.ts";

export interface SysdumpOptions {
  readonly parts: readonly Part[];
  /** Folder that everything is in. */
  readonly folder: string;
  readonly limits: Omit<PartLimits, "signal">;
  /** Ends it; the archive is cut off. */
  readonly signal: AbortSignal;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Hears of each part that is read next. */
  readonly say: (text: string) => void;
  /** Hears of each part that was read. */
  readonly onOutcome: (outcome: PartOutcome) => void;
}

/**
 * The pieces of the archive, uncompressed. One part is in memory at a time; the list of all comes last.
 *
 * @throws the reason of `signal`
 */
export async function* sysdump(options: SysdumpOptions): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const { parts, folder, limits, signal, nowMs, say, onOutcome } = options;
  const listed: ListedPart[] = [];
  for (const part of parts) {
    signal.throwIfAborted();
    say(`Reading ${part.from}`);
    const outcome = await readPart(part, { ...limits, signal }, nowMs);
    onOutcome(outcome);
    listed.push({ ...outcome, bytes: outcome.bytes?.length ?? null });
    if (outcome.bytes !== null) {
      yield* tarPieces({ name: `${folder}/${outcome.name}`, bytes: outcome.bytes, modifiedMs: nowMs() });
    }
  }
  const bytes = new TextEncoder().encode(partList(listed));
  yield* tarPieces({ name: `${folder}/parts.json`, bytes, modifiedMs: nowMs() });
  yield tarEnd();
}

/** A part as the list tells it. */
interface ListedPart extends Omit<PartOutcome, "bytes"> {
  /** How many; null: there is nothing. */
  readonly bytes: number | null;
}

/** Each part, where it comes from, and why it is not there or not whole. */
function partList(listed: readonly ListedPart[]): string {
  const parts = listed.map(({ name, from, bytes, problem, tookMs }) => ({
    name,
    from,
    bytes,
    problem,
    tookMs: Math.round(tookMs),
  }));
  return `${JSON.stringify({ apiVersion: API_VERSION, kind: "SysdumpParts", parts }, null, 2)}\n`;
}
