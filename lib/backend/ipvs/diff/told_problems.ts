/**
 * Which problems of Services have been told: each once, and again when it comes back.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import type { IpvsPlan } from "../plan/ruleset.ts";

/** Remembers no more than the problems that there are. */
export class ToldProblems {
  readonly #told = new Map<NamespacedName, readonly string[]>();

  /** How many Services have problems. */
  get size(): number {
    return this.#told.size;
  }

  /** The problems of the plan that were not there before. */
  news({ all, services, problems }: Pick<IpvsPlan, "all" | "services" | "problems">): readonly string[] {
    const gone = all
      ? [...this.#told.keys()].filter((name) => !problems.has(name))
      : [...services.keys()].filter((name) => !problems.has(name));
    for (const name of gone) this.#told.delete(name);
    const news: string[] = [];
    for (const [name, now] of problems) {
      const before = this.#told.get(name);
      news.push(...now.filter((problem) => before?.includes(problem) !== true));
      this.#told.set(name, now);
    }
    return news;
  }
}
