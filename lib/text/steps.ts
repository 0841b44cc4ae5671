/**
 * Work in steps.
 *
 * @module
 */

/** Takes all steps at once. */
export function toEnd<T>(steps: Iterator<void, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
