/**
 * The words for a range of ports: `N`, `N-M` or `N+K`.
 *
 * @module
 */

/** Ports from `first` to `last`, both included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

const HIGHEST_PORT = 65_535;

/**
 * Reads a range as kube-proxy does; null for no range at all: an empty text, `0` and `0-0` let the kernel choose.
 *
 * @throws {SyntaxError} if it is none
 */
export function parsePortRange(text: string): PortRange | null {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  const [, low = "", sign, high = ""] = /^(\d+)(?:([-+])(\d+))?$/.exec(trimmed) ?? [];
  const first = Number(low);
  const last = sign === "-"
    ? Number(high)
    : sign === "+"
    ? Math.min(HIGHEST_PORT, first + Number(high))
    : first;
  if (low === "" || first > HIGHEST_PORT || last > HIGHEST_PORT || last < first) {
    throw new SyntaxError(`"${text}" is no range of ports such as 30000-31000, 30000+1000 or 30000`);
  }
  return last === 0 ? null : { first: Math.max(1, first), last };
}
