/**
 * Finds, in a group of which the tool took nothing, the members that it refuses, and brings all others in.
 *
 * @module
 */

/** A member that the tool refuses even alone, or that it named. */
export interface Refused<Item> {
  readonly item: Item;
  readonly problem: string;
}

/** Why the tool refused a group. */
export interface Refusal<Item> {
  /** For a group of one. */
  readonly problem: string;
  /** The members that the tool named in its errors, if any. */
  readonly named: readonly Refused<Item>[];
}

/**
 * Tries the group; what is refused is split, by the names the tool gives or else in halves, until each member went in or is
 * known to be refused.
 *
 * @param attempt brings all of these in or none; resolves to null if they are in; rejects if splitting cannot help
 * @returns the members that are not in, in the order in which they were found
 */
export async function isolateRefused<Item>(
  items: readonly Item[],
  attempt: (items: readonly Item[]) => Promise<Refusal<Item> | null>,
): Promise<readonly Refused<Item>[]> {
  if (items.length === 0) return [];
  const refusal = await attempt(items);
  if (refusal === null) return [];
  const [first] = items;
  if (items.length === 1 && first !== undefined) return [{ item: first, problem: refusal.problem }];
  const named = new Set(refusal.named.map(({ item }) => item));
  // The tool may give up after some complaints; those it made stand, whatever else is in the group.
  const groups = named.size === 0
    ? [items.slice(0, items.length >> 1), items.slice(items.length >> 1)]
    : [items.filter((item) => !named.has(item))];
  const refused = [...refusal.named];
  for (const group of groups) refused.push(...await isolateRefused(group, attempt));
  return refused;
}
