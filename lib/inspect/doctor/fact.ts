/**
 * A fact about the node that may be unknown: each reader fails by itself, and what it could not read is told as such.
 *
 * @module
 */
import { errorText } from "../../observe/log.ts";
import { type Finding, warning } from "./finding.ts";

/** What was read, or why it could not be. */
export type Fact<T> = { readonly value: T } | { readonly unread: string };

/** Reads one thing, however that ends. `signal` ends the wait: what does not end by itself is left to its fate. */
export async function readFact<T>(read: () => Promise<T>, { signal, limitMs }: FactLimit): Promise<Fact<T>> {
  const over = Promise.withResolvers<Fact<T>>();
  const end = (): void => over.resolve({ unread: `it took longer than ${limitMs / 1000} s` });
  if (signal.aborted) end();
  signal.addEventListener("abort", end, { once: true });
  try {
    return await Promise.race([attempt(read, signal, limitMs), over.promise]);
  } finally {
    signal.removeEventListener("abort", end);
  }
}

/** When the time is over. */
export interface FactLimit {
  readonly signal: AbortSignal;
  /** For the words only. */
  readonly limitMs: number;
}

async function attempt<T>(
  read: () => Promise<T>,
  signal: AbortSignal,
  limitMs: number,
): Promise<Fact<T>> {
  try {
    return { value: await read() };
  } catch (error) {
    // What was ended at the limit says so in many ways.
    if (signal.aborted) return { unread: `it took longer than ${limitMs / 1000} s` };
    return { unread: errorText(error) };
  }
}

/** The value, or undefined if it is not known. */
export function known<T>(fact: Fact<T>): T | undefined {
  return "value" in fact ? fact.value : undefined;
}

/** Judges what is known; what is not known is a warning, because nobody can tell whether it is well. */
export function judged<T>(
  check: string,
  fact: Fact<T>,
  judge: (value: T) => readonly Finding[],
): readonly Finding[] {
  return "value" in fact ? judge(fact.value) : [unread(check, fact.unread)];
}

/** The finding about something that could not be looked at. */
export function unread(check: string, reason: string): Finding {
  return warning(check, `could not be looked at: ${reason}`, "mend that, and run kproxy doctor again");
}
