/**
 * Requests to the kproxy that served this page: single ones, or repeated for as long as the page is visible.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";

/** Failed request: no answer, or an error status. */
export class AskError extends Error {
  /** @override */
  name = "AskError";

  /**
   * @param {number} status of the answer; 0: there was no answer
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Timeout of a request: longer than any answer takes. */
const LIMIT_MS = 15_000;

/**
 * The JSON of an answer. The browser sends the ETag it has: an unchanged answer is not sent again.
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

/** Wait after the first failure. */
const RETRY_MS = 1_000;

/**
 * The data loaded last, and the error of the latest attempt.
 *
 * @template T
 * @typedef {{ readonly data: T | null, readonly error: AskError | null }} Polled
 */

/**
 * Loads at once, and then every `periodMs` for as long as the page is visible. The data stay if a later attempt fails.
 *
 * @template T
 * @param {string} key names the data; when it changes, the old data are dropped
 * @param {number} periodMs
 * @param {(signal: AbortSignal) => Promise<T>} [load] default: `ask(key)`
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
 * @returns {() => void} stops the polling
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
