/**
 * The rows of all Services, kept while the page is open and brought up to date by what has changed.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";
import { ask, usePolled } from "./api.js";

/** @typedef {import("../page_document.ts").ServiceRow} ServiceRow */
/** @typedef {import("../page_document.ts").ServicesDocument} ServicesDocument */

/**
 * @typedef {object} Known
 * @property {string} cursor
 * @property {ReadonlyMap<string, ServiceRow>} byName
 * @property {readonly ServiceRow[]} rows by name
 */

const PERIOD_MS = 3_000;

/** @type {Known | null} */
let last = null;

/** @returns {import("./api.js").Polled<Known>} */
export function useServiceRows() {
  const polled = usePolled(loadRows, PERIOD_MS, "services");
  return polled.data === null && last !== null ? { ...polled, data: last } : polled;
}

/**
 * @param {Known | null} _before
 * @param {AbortSignal} signal
 * @returns {Promise<Known>}
 */
async function loadRows(_before, signal) {
  const before = last;
  /** @type {ServicesDocument} */
  const document = await ask(`services?since=${encodeURIComponent(before?.cursor ?? "")}`, signal);
  last = withChanges(before, document);
  return last;
}

/**
 * @param {Known | null} before
 * @param {ServicesDocument} document
 * @returns {Known}
 */
export function withChanges(before, { cursor, full, rows, gone }) {
  if (!full && before !== null && rows.length === 0 && gone.length === 0) {
    return before.cursor === cursor ? before : { ...before, cursor };
  }
  const byName = new Map(full || before === null ? [] : before.byName);
  for (const row of rows) byName.set(row[0], row);
  for (const name of gone) byName.delete(name);
  const all = [...byName.values()].sort(([one], [other]) => one < other ? -1 : one > other ? 1 : 0);
  return { cursor, byName, rows: all };
}

/**
 * The value, a moment after it was changed last: thousands of rows are not gone through for every key.
 *
 * @template Value
 * @param {Value} value
 * @returns {Value}
 */
export function useDeferred(value) {
  const [deferred, setDeferred] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDeferred(value), 60);
    return () => clearTimeout(timer);
  }, [value]);
  return deferred;
}
