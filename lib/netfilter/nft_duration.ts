/**
 * Times as nft writes them.
 *
 * @module
 */

const PART = /(\d+)(ms|[smhd])/g;
const UNIT_SECONDS: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** Seconds: `600s`, `1h30m`, `2h59m58s92ms`; null for anything else. */
export function nftSeconds(text: string): number | null {
  const parts = [...text.matchAll(PART)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text) return null;
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * (UNIT_SECONDS[unit ?? ""] ?? 0), 0);
}
