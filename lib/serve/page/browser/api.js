/**
 * Asks the kproxy that has served this page, once or for as long as the page is seen.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";

/** It does not answer. */
export class UnreachableError extends Error {
  /** @override */
  name = "UnreachableError";
}

/** It says no. */
export class RefusedError extends Error {
  /** @override */
  name = "RefusedError";

  /**
   * @param {number} status
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
    throw new UnreachableError("kproxy does not answer", { cause: error });
  }
  const answer = parsed(text);
  if (response.ok) return answer;
  const message = typeof answer?.error === "string" ? answer.error : text.slice(0, 300).trim();
  throw new RefusedError(response.status, message || `status ${response.status}`);
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
 * @typedef {{ readonly data: T | null, readonly error: Error | null }} Polled
 */

/**
 * Loads at once, and then every `periodMs` for as long as the page is seen. What was loaded stays if a later attempt fails.
 *
 * @template T
 * @param {(before: T | null, signal: AbortSignal) => Promise<T>} load may return what was there before, if it is the same
 * @param {number} periodMs
 * @param {string} key of another thing, nothing stays
 * @returns {Polled<T>}
 */
export function usePolled(load, periodMs, key) {
  const [state, setState] = useState(() => startOf(load, key));
  useEffect(() => startPolling(load, periodMs, (next) => setState({ ...next, key })), [key, periodMs]);
  return state.key === key ? state : startOf(load, key);
}

/**
 * Before anything was loaded.
 *
 * @template T
 * @param {(before: T | null, signal: AbortSignal) => Promise<T>} _load
 * @param {string} key
 * @returns {Polled<T> & { readonly key: string }}
 */
function startOf(_load, key) {
  return { data: null, error: null, key };
}

/**
 * @template T
 * @param {(before: T | null, signal: AbortSignal) => Promise<T>} load
 * @param {number} periodMs
 * @param {(next: Polled<T>) => void} tell
 * @returns {() => void} ends it
 */
function startPolling(load, periodMs, tell) {
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
    /** @type {Error | null} */
    let error = null;
    try {
      data = await load(data, end.signal);
      failures = 0;
    } catch (thrown) {
      error = thrown instanceof Error ? thrown : new Error(String(thrown));
      failures++;
    }
    isAsking = false;
    if (end.signal.aborted) return;
    tell({ data, error });
    timer = setTimeout(next, error === null ? periodMs : Math.min(RETRY_MS * failures, 5_000));
  };
  document.addEventListener("visibilitychange", next);
  next();
  return () => {
    end.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", next);
  };
}
