/**
 * Asks the kproxy that has served this page, once or for as long as the page is seen.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";

/** No answer, or one that refuses. */
export class AskError extends Error {
  /** @override */
  name = "AskError";

  /**
   * @param {number} status of the answer; 0: there was none
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Longer than any answer takes. */
const LIMIT_MS = 15_000;

/**
 * The JSON of an answer; the browser asks with what it has whether there is anything new.
 *
 * @param {string} path below `/kproxy/v1/`, with a query
 * @param {AbortSignal} signal
 * @returns {Promise<any>}
 */
export async function ask(path, signal) {
  const until = AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]);
  let response, text;
  try {
    response = await fetch(`v1/${path}`, { signal: until, credentials: "omit" });
    text = await response.text();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new AskError(0, "kproxy does not answer");
  }
  const answer = parsed(text);
  if (response.ok) return answer;
  const message = typeof answer?.error === "string" ? answer.error : text.slice(0, 300).trim();
  throw new AskError(response.status, message || `status ${response.status}`);
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** After a failure, at first. */
const RETRY_MS = 1_000;

/**
 * What was loaded last, and what went wrong since.
 *
 * @template T
 * @typedef {{ readonly data: T | null, readonly error: AskError | null }} Polled
 */

/**
 * Loads at once, and then every `periodMs` for as long as the page is seen. What was loaded stays if a later attempt fails.
 *
 * @template T
 * @param {string} key what is loaded; of another one, nothing stays
 * @param {number} periodMs
 * @param {(signal: AbortSignal) => Promise<T>} [load] `ask(key)` without it
 * @returns {Polled<T>}
 */
export function usePolled(key, periodMs, load = (signal) => ask(key, signal)) {
  /** @type {Polled<T> & { readonly key: string }} */
  const start = { data: null, error: null, key };
  const [state, setState] = useState(start);
  useEffect(() => startPolling(load, periodMs, (next) => setState({ ...next, key })), [key, periodMs]);
  return state.key === key ? state : start;
}

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {number} periodMs
 * @param {(next: Polled<T>) => void} onLoaded
 * @returns {() => void} ends it
 */
function startPolling(load, periodMs, onLoaded) {
  const end = new AbortController();
  /** @type {T | null} */
  let data = null;
  let failures = 0;
  let isAsking = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const next = async () => {
    clearTimeout(timer);
    if (isAsking || document.hidden || end.signal.aborted) return;
    isAsking = true;
    /** @type {AskError | null} */
    let error = null;
    try {
      data = await load(end.signal);
      failures = 0;
    } catch (thrown) {
      error = thrown instanceof AskError ? thrown : new AskError(500, String(thrown));
      failures++;
    }
    isAsking = false;
    if (end.signal.aborted) return;
    onLoaded({ data, error });
    timer = setTimeout(next, error === null ? periodMs : Math.min(RETRY_MS * failures, 5_000));
  };
  document.addEventListener("visibilitychange", next, { signal: end.signal });
  next();
  return () => {
    end.abort();
    clearTimeout(timer);
  };
}
