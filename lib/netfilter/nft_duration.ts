/**
 * Times as nft writes them.
 *
 * @module
 */

/** A part for each unit at most. */
const WHOLE = /^(?:\d{1,10}(?:ms|[smhd])){1,5}$/;
const PART = /(\d+)(ms|[smhd])/g;
const UNIT_SECONDS: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** Seconds: `600s`, `1h30m`, `2h59m58s92ms`; null for anything else. */
export function nftSeconds(text: string): number | null {
  if (!WHOLE.test(text)) return null;
  return [...text.matchAll(PART)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * (UNIT_SECONDS[unit ?? ""] ?? 0),
    0,
  );
}
