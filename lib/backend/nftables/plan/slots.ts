/**
 * Which endpoint of a list has which slot.
 *
 * @module
 */

const DUPLICATES = "Wanted endpoints must differ from each other";

/**
 * Slots 0 to n - 1 for n wanted endpoints. An endpoint keeps its slot if it can: a new one takes the place of one that
 * is gone, and what is beyond the end moves into what is still free.
 *
 * @param before index → endpoint as it was; `undefined` where nothing is
 * @param wanted no two the same
 */
export function assignSlots(
  before: readonly (string | undefined)[],
  wanted: readonly string[],
): readonly string[] {
  if (isInPlace(before, wanted)) return wanted;
  const left = new Set(wanted);
  const slots: (string | undefined)[] = wanted.map((_, index) => {
    const endpoint = before[index];
    return endpoint !== undefined && left.delete(endpoint) ? endpoint : undefined;
  });
  const rest = left.values();
  return slots.map((endpoint) => endpoint ?? nextOf(rest));
}

/** True, and nearly always so, if nothing has to move. */
function isInPlace(before: readonly (string | undefined)[], wanted: readonly string[]): boolean {
  return wanted.every((endpoint, index) => before[index] === undefined || before[index] === endpoint);
}

function nextOf(rest: Iterator<string>): string {
  const { done, value } = rest.next();
  if (done === true) throw new RangeError(DUPLICATES);
  return value;
}
