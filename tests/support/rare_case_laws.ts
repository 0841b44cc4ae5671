/**
 * Tests for `tools/explore_test.ts`, which nothing else runs: a law that fails for one case of four, of which a run tries one, and
 * a law that holds.
 *
 * @module
 */
import fc from "./fast_check.ts";

Deno.test("no number is the fourth of four", () => {
  fc.assert(fc.property(fc.integer({ min: 1, max: 4 }), (number) => number !== 4), { numRuns: 1 });
});

Deno.test("a number is itself", () => {
  fc.assert(fc.property(fc.nat(), (number) => number === Number(`${number}`)));
});
