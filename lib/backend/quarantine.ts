/**
 * The Services of which the tools refuse something: what is wrong with each, and when it may be tried again.
 *
 * @module
 */
import type { NamespacedName } from "../model/objects.ts";
import type { Changed } from "../model/state.ts";
import type { QuarantinedService } from "./backend.ts";

/** A Service that does not change is tried again this long after it was refused, when there is a sync anyway. */
export const RETRY_MS = 60_000;
/** How many that did not change one sync tries: a tenant may make any number of them. */
export const MAX_RETRIES = 16;

/** Which Services are quarantined, and when they may be tried again. */
export class Quarantine {
  readonly #nowMs: () => number;
  /** The longest refused ones come first. */
  readonly #services = new Map<
    NamespacedName,
    { readonly problem: string; readonly refusedAtMs: number }
  >();
  /** By name, until something changes. */
  #listed: readonly QuarantinedService[] | undefined;

  /** @param nowMs milliseconds, monotonic */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Those of a full sync, which has tried every Service. */
  replace(services: Iterable<QuarantinedService>): void {
    this.#services.clear();
    this.#listed = undefined;
    for (const quarantined of services) this.refused(quarantined);
  }

  /** From now on it is, or is once more, in quarantine. */
  refused({ service, problem }: QuarantinedService): void {
    this.#listed = undefined;
    this.#services.delete(service);
    this.#services.set(service, { problem, refusedAtMs: this.#nowMs() });
  }

  release(service: NamespacedName): void {
    if (this.#services.delete(service)) this.#listed = undefined;
  }

  /**
   * Tries one Service.
   *
   * @param attempt writes it, alone; resolves to why it is refused, or to null
   */
  async tryAgain(service: NamespacedName, attempt: () => Promise<string | null>): Promise<void> {
    const problem = await attempt();
    if (problem === null) this.release(service);
    else this.refused({ service, problem });
  }

  /** Those to be tried in a sync of these Services: of the others only some, the longest refused ones. */
  due(changed: Exclude<Changed, "all">): readonly NamespacedName[] {
    const nowMs = this.#nowMs();
    const names: NamespacedName[] = [];
    let retries = 0;
    for (const [service, { refusedAtMs }] of this.#services) {
      const isDue = changed.has(service) ||
        nowMs - refusedAtMs >= RETRY_MS && retries++ < MAX_RETRIES;
      if (isDue) names.push(service);
    }
    return names;
  }

  /** All of them, by name; the same list as long as nothing changes. */
  get services(): readonly QuarantinedService[] {
    return this.#listed ??= [...this.#services].map(([service, { problem }]) => ({ service, problem }))
      .sort((left, right) => left.service < right.service ? -1 : 1);
  }
}
