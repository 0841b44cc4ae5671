/**
 * The Services whose rules the kernel refuses.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import type { Changed } from "../../model/state.ts";
import type { QuarantinedService } from "../backend.ts";

/** A Service that does not change is tried again this long after it was refused, when there is a sync anyway. */
const RETRY_MS = 60_000;

/** Which Services are quarantined, and when they may be tried again. */
export class Quarantine {
  readonly #nowMs: () => number;
  readonly #services = new Map<
    NamespacedName,
    { readonly problem: string; readonly refusedAtMs: number }
  >();

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Those of a full sync, which has tried every Service. */
  replace(services: Iterable<QuarantinedService>): void {
    this.#services.clear();
    for (const quarantined of services) this.refused(quarantined);
  }

  refused({ service, problem }: QuarantinedService): void {
    this.#services.set(service, { problem, refusedAtMs: this.#nowMs() });
  }

  release(service: NamespacedName): void {
    this.#services.delete(service);
  }

  /** Those to be tried in a sync of these Services. */
  due(changed: Exclude<Changed, "all">): readonly NamespacedName[] {
    const nowMs = this.#nowMs();
    return [...this.#services].filter(([service, { refusedAtMs }]) =>
      changed.has(service) || nowMs - refusedAtMs >= RETRY_MS
    ).map(([service]) => service);
  }

  /** All of them, by name. */
  get services(): readonly QuarantinedService[] {
    return [...this.#services].map(([service, { problem }]) => ({ service, problem }))
      .sort((left, right) => left.service < right.service ? -1 : 1);
  }
}
