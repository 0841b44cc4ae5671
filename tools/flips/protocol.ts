/**
 * What the parent and a process of tests say to each other: JSON, one on a line.
 *
 * @module
 */

export type Question =
  /** Run a test without any flip. */
  | { readonly kind: "cover"; readonly test: number }
  /** Run tests with a flip on, until one fails. */
  | { readonly kind: "run"; readonly flip: number; readonly tests: readonly number[] };

export type Answer =
  /** All files are loaded: names of their tests, and the flips that loading came by. */
  | { readonly kind: "ready"; readonly tests: readonly string[]; readonly reached: readonly number[] }
  | {
    readonly kind: "covered";
    /** What the test threw; null if it passed. */
    readonly failure: string | null;
    readonly cpuMs: number;
    readonly reached: readonly number[];
  }
  | { readonly kind: "killed"; readonly test: string }
  /** The test fails without the flip, too: an earlier flip left something behind. */
  | { readonly kind: "spoilt"; readonly test: string }
  | { readonly kind: "survived"; readonly wasReached: boolean };
