/**
 * Asks the kproxy that has served this page.
 *
 * @module
 */

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
