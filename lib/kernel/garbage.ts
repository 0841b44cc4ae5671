/**
 * What the engine has not given back yet.
 *
 * @module
 */

interface EngineGlobals {
  /** There with the engine's flag `--expose-gc`. */
  readonly gc?: (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;
}

/** Gives back all memory of this thread that nothing needs; without the flag that allows it, nothing happens. */
export function collectGarbage(): void {
  (globalThis as EngineGlobals).gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
}
