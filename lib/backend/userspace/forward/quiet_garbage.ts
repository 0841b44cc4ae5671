/**
 * When the thread that forwards gives back what connections have left: while nobody waits for it, because everybody would.
 *
 * @module
 */
import { collectGarbage } from "../../../kernel/garbage.ts";

/** So many sessions that came or went have left some megabytes. */
const WORTH = 2_000;
/** After so many looks without news it is quiet. */
const QUIET_LOOKS = 4;

/** Is told at equal intervals how things are. */
export class QuietGarbage {
  readonly #collect: () => void;
  #quietLooks = 0;
  #collectedAt = 0;

  /** @param collect gives memory back */
  constructor(collect: () => void = collectGarbage) {
    this.#collect = collect;
  }

  /**
   * Looks.
   *
   * @param isQuiet true if nothing was forwarded since the last look
   * @param changes how many sessions came, and how many went, up to now
   */
  look(isQuiet: boolean, changes: number): void {
    this.#quietLooks = isQuiet ? this.#quietLooks + 1 : 0;
    if (this.#quietLooks !== QUIET_LOOKS || changes - this.#collectedAt < WORTH) return;
    this.#collectedAt = changes;
    this.#collect();
  }
}
