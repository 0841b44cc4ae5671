/**
 * A node on which IPVS mode begins: its device and its sets were not there, this process has made them, and nobody needs to look what is
 * in them.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import type { SetDefinition } from "../../../netfilter/ipset.ts";
import type { Observed } from "../plan/ruleset.ts";

/** The device and the sets are ours alone, but whoever else believes that has begun to fill them after so long. */
const FRESH_MS = 10_000;

/** What a read of the device, the sets and the IPVS table tells. */
export type ObservedOwn = Pick<Observed, "addresses" | "virtualServers" | "sets">;

/** What was made, and when. */
export interface MadeNode {
  /** Of all families. */
  readonly sets: readonly SetDefinition[];
  /** Of the same clock as is asked later. */
  readonly madeMs: number;
}

/** Tells each family once what it would find. */
export class FreshNode {
  readonly #made: MadeNode;
  readonly #told = new Set<IpFamily>();

  constructor(made: MadeNode) {
    this.#made = made;
  }

  /**
   * Null: somebody has to look. What other people's virtual servers there are is not known; ours are only those whose address is on the
   * device or in a set, and there is none. One that is in the way is found when it is written: that fails.
   */
  take(family: IpFamily, nowMs: number): ObservedOwn | null {
    const { sets, madeMs } = this.#made;
    const isFirst = !this.#told.has(family);
    this.#told.add(family);
    if (!isFirst || nowMs - madeMs > FRESH_MS) return null;
    return {
      addresses: new Set(),
      virtualServers: new Map(),
      sets: new Map(
        sets.filter((set) => set.family === family).map((definition) => {
          const { name } = definition;
          return [name, { name, definition, entries: new Set<string>() }];
        }),
      ),
    };
  }
}
