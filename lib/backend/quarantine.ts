/**
 * Quarantine of Services whose rules the tools refuse: their isolation, the problem of each, and when it is retried.
 *
 * @module
 */
import type { NamespacedName } from "../model/objects.ts";
import type { Changed } from "../model/state.ts";
import type { QuarantinedService } from "./backend.ts";

/** A Service that does not change is tried again this long after it was refused, when there is a sync anyway. */
export const RETRY_MS = 60_000;
/** Unchanged Services in quarantine that one sync retries at most: a tenant may make any number of them. */
export const MAX_RETRIES = 16;

/** A Service whose rules are refused, all or a part. */
export interface RefusedService extends QuarantinedService {
  /** The mode's name of the part. @default {""} all of it */
  readonly part?: string;
}

/** Refused parts of a Service, by the mode's names of them; `""`: all of it. */
export type RefusedParts = ReadonlyMap<string, { readonly problem: string; readonly refusedAtMs: number }>;

/** Quarantined Services, as a whole or in parts, and when they may be tried again. */
export class Quarantine {
  readonly #nowMs: () => number;
  /** Services in quarantine, the longest refused first. */
  readonly #services = new Map<NamespacedName, RefusedParts>();
  /** Services sorted by name, until something changes. */
  #listed: readonly QuarantinedService[] | undefined;

  /** @param nowMs milliseconds, monotonic */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Releases all: a full sync tries every Service. */
  clear(): void {
    this.#services.clear();
    this.#listed = undefined;
  }

  /** Puts the Service in quarantine, or renews its quarantine. */
  refused({ service, problem, part = "" }: RefusedService): void {
    const others = [...this.parts(service)].filter(([name]) => name !== part);
    this.#services.delete(service);
    this.#services.set(service, new Map([...others, [part, { problem, refusedAtMs: this.#nowMs() }]]));
    this.#listed = undefined;
  }

  release(service: NamespacedName): void {
    if (this.#services.delete(service)) this.#listed = undefined;
  }

  /** Refused parts of the Service. */
  parts(service: NamespacedName): RefusedParts {
    return this.#services.get(service) ?? new Map();
  }

  /** Releases the parts of the Service that are not to be kept, and the Service with the last of them. */
  keepParts(service: NamespacedName, isKept: (part: string) => boolean): void {
    const parts = this.parts(service);
    const kept = new Map([...parts].filter(([part]) => isKept(part)));
    if (kept.size === parts.size) return;
    if (kept.size === 0) this.#services.delete(service);
    else this.#services.set(service, kept);
    this.#listed = undefined;
  }

  /** Records a sync that has tried these: those with a problem are quarantined, all others released. */
  settle(services: Iterable<NamespacedName>, problems: ReadonlyMap<NamespacedName, string>): void {
    for (const service of services) {
      const problem = problems.get(service);
      if (problem === undefined) this.release(service);
      else this.refused({ service, problem });
    }
  }

  /** Services in quarantine to retry in a sync of `changed`: of unchanged ones only some, longest refused first. */
  due(changed: Exclude<Changed, "all">): readonly NamespacedName[] {
    const names: NamespacedName[] = [];
    let retries = 0;
    for (const [service, parts] of this.#services) {
      const isDue = changed.has(service) ||
        [...parts.keys()].some((part) => this.isPartDue(service, part)) && retries++ < MAX_RETRIES;
      if (isDue) names.push(service);
    }
    return names;
  }

  /** True if the part may be tried although nothing changed. */
  isPartDue(service: NamespacedName, part: string): boolean {
    const refusedAtMs = this.parts(service).get(part)?.refusedAtMs ?? -Infinity;
    return this.#nowMs() - refusedAtMs >= RETRY_MS;
  }

  /** All Services in quarantine, by name; the same list as long as nothing changes. */
  get services(): readonly QuarantinedService[] {
    return this.#listed ??= [...this.#services].map(([service, parts]) => ({
      service,
      problem: problemOf(parts),
    }))
      .sort((left, right) => left.service < right.service ? -1 : 1);
  }
}

function problemOf(parts: RefusedParts): string {
  const [first = "", ...others] = [...new Set(Array.from(parts.values(), ({ problem }) => problem))].sort();
  return others.length === 0 ? first : `${first} (and ${others.length} more)`;
}

/** A member of a group that the tool refuses even alone, or that it named. */
export interface Refused<Item> {
  readonly item: Item;
  readonly problem: string;
}

/** Why the tool refused a group. */
export interface Refusal<Item> {
  /** The member's problem, for a group of one. */
  readonly problem: string;
  /** The members that the tool named in its errors, if any. */
  readonly named: readonly Refused<Item>[];
}

/**
 * Tries the group; what is refused is split, by the names the tool gives or else in halves, until each member went in or is
 * known to be refused.
 *
 * @param attempt writes all of these or none; resolves to null if written; rejects if splitting cannot help
 * @returns the members that were not written, in the order in which they were found
 */
export async function isolateRefused<Item>(
  items: readonly Item[],
  attempt: (items: readonly Item[]) => Promise<Refusal<Item> | null>,
): Promise<readonly Refused<Item>[]> {
  if (items.length === 0) return [];
  const refusal = await attempt(items);
  if (refusal === null) return [];
  const [first] = items;
  if (items.length === 1 && first !== undefined) return [{ item: first, problem: refusal.problem }];
  const named = new Set(refusal.named.map(({ item }) => item));
  // The tool may give up after some errors; those it reported hold, whatever else is in the group.
  const groups = named.size === 0
    ? [items.slice(0, items.length >> 1), items.slice(items.length >> 1)]
    : [items.filter((item) => !named.has(item))];
  const refused = [...refusal.named];
  for (const group of groups) refused.push(...await isolateRefused(group, attempt));
  return refused;
}
