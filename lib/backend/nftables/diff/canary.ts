/**
 * A text whose dry run tells whether what was committed is still in the kernel. It costs the same at any size of our
 * table, while every listing of nft 1.0.6 loads all elements. It adds nothing: whoever lists rules meanwhile would see some
 * twice or not at all (Linux 6.18).
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed } from "../../../model/state.ts";
import { type CommittedService, type CommittedTable, ownElements } from "./committed.ts";
import type { BaseRules, Element } from "../plan/ruleset.ts";

/** Services whose elements and chains one check looks at, beside one element of each set and map. */
const SAMPLED_SERVICES = 100;
/** Of one Service; a Service may have thousands of endpoints. */
const SAMPLED_ELEMENTS = 50;

/** What one check looks at. */
export interface CanarySample {
  /** Chain → a number of rules that it has. */
  readonly chains: ReadonlyMap<string, number>;
  /** A chain that the kernel sends packets to. */
  readonly hookedChain: string;
  /** Must be there, whatever their values. */
  readonly present: readonly Element[];
  /** Must have their values if they are there. */
  readonly unchanged: readonly Element[];
}

/** Chooses what each check looks at: always all base and shared chains and an element of each set and map; Services in turn. */
export class CanarySampler {
  /** Container → Service that has an element in it; null: none has. One that is not here has to be looked for. */
  readonly #sentinels = new Map<string, NamespacedName | null>();
  #turn = 0;

  /** These Services were written. */
  written(services: Changed, committed: CommittedTable): void {
    if (services === "all") this.#sentinels.clear();
    else for (const name of services) this.#serviceWritten(name, committed.service(name));
  }

  #serviceWritten(name: NamespacedName, service: CommittedService | null): void {
    const containers = containersOf(service);
    for (const container of containers) {
      if (this.#sentinels.get(container) === null) this.#sentinels.set(container, name);
    }
    for (const [container, sentinel] of this.#sentinels) {
      if (sentinel === name && !containers.has(container)) this.#sentinels.delete(container);
    }
  }

  next(committed: CommittedTable): CanarySample {
    const seen = new Set<string>();
    const take = (elements: Iterable<Element>, into: Element[], limit: number): void => {
      for (const element of elements) {
        if (into.length >= limit) return;
        const name = `${element.container} ${element.key}`;
        if (seen.has(name)) continue;
        seen.add(name);
        into.push(element);
      }
    };
    const { base } = committed;
    const present: Element[] = [];
    const unchanged: Element[] = [];
    take(base.elements, present, Infinity);
    this.#findSentinels(committed);
    for (const [container, name] of this.#sentinels) {
      if (name !== null) {
        take(elementsIn(container, committed.service(name)), present, present.length + 1);
      }
    }
    const chains = baseChains(base);
    for (const name of committed.sharedChainNames) chains.set(name, 1);
    for (const [index, service] of this.#nextServices(committed).entries()) {
      const into = (index + this.#turn) % 2 === 0 ? present : unchanged;
      take(allElements(service), into, into.length + SAMPLED_ELEMENTS);
      for (const name of service.chains.keys()) chains.set(name, 1);
    }
    return { chains, hookedChain: base.hookedChains[0]!.name, present, unchanged };
  }

  #nextServices(committed: CommittedTable): readonly CommittedService[] {
    const names = [...committed.serviceNames];
    const count = Math.min(SAMPLED_SERVICES, names.length);
    const start = this.#turn++ * SAMPLED_SERVICES % names.length;
    return Array.from(
      { length: count },
      (_, index) => committed.service(names[(start + index) % names.length]!),
    )
      .filter((service) => service !== null);
  }

  /** Finds a Service for each container that has none yet, in one pass over as few Services as it takes. */
  #findSentinels(committed: CommittedTable): void {
    const { base: { containers }, serviceNames } = committed;
    const wanted = new Set(containers.map(({ name }) => name).filter((name) => !this.#sentinels.has(name)));
    for (const name of wanted.size === 0 ? [] : serviceNames) {
      for (const container of containersOf(committed.service(name))) {
        if (wanted.delete(container)) this.#sentinels.set(container, name);
      }
      if (wanted.size === 0) break;
    }
    for (const container of wanted) this.#sentinels.set(container, null);
  }
}

/** The elements that a Service has in a container. */
function* elementsIn(container: string, service: CommittedService | null): Generator<Element> {
  if (service === null) return;
  for (const element of allElements(service)) if (element.container === container) yield element;
}

function containersOf(service: CommittedService | null): ReadonlySet<string> {
  if (service === null) return new Set();
  return new Set([
    ...service.elements.map(({ container }) => container),
    ...service.sharedElements.map(({ container }) => container),
    ...service.lists.flatMap(({ destinations }) => destinations.map(({ container }) => container)),
  ]);
}

function* allElements(service: CommittedService): Generator<Element> {
  yield* ownElements(service);
  yield* service.sharedElements;
}

function baseChains({ chains, hookedChains }: BaseRules): Map<string, number> {
  return new Map([...chains, ...hookedChains].map(({ name, rules }) => [name, rules.length]));
}

/** A dry run, and what comes of it where all is well. */
export interface Canary {
  readonly text: string;
  /** 1-based numbers of the lines that are refused where all is well, each for the same reason. No other line is. */
  readonly refused: ReadonlySet<number>;
}

/**
 * A dry run that flushes each chain, deletes elements that must be there and adds elements with the value that they must have: each of
 * this fails if something is missing or another.
 *
 * @param table family and name, e.g. `ip kproxy`
 * @param deep looks for the last rule of each chain, too. nft has no command that finds a rule by its place and adds none, so the kernel
 * gets a rule that it finds the place for and then refuses: a jump to a chain with a hook. For that nft reads all rules of all tables
 */
export function canaryOf(
  table: string,
  { chains, hookedChain, present, unchanged }: CanarySample,
  deep: boolean,
): Canary {
  const lines: string[] = [];
  const refused = new Set<number>();
  for (const [name, rules] of chains) {
    if (deep && rules > 0) {
      refused.add(lines.push(`add rule ${table} ${name} index ${rules - 1} jump ${hookedChain}`));
    } else lines.push(`flush chain ${table} ${name}`);
  }
  for (const { container, key } of present) lines.push(`delete element ${table} ${container} { ${key} }`);
  for (const { container, key, value } of unchanged) {
    lines.push(`add element ${table} ${container} { ${value === "" ? key : `${key} : ${value}`} }`);
  }
  return { text: lines.join("\n") + "\n", refused };
}

/** What is said of a chain or a place that is not there. Of a jump to a chain with a hook every kernel and libc may say something else. */
const MISSING_REGEXP = /^No such file or directory/;

/** What is said of one line. */
export interface Complaint {
  /** 1-based. */
  readonly line: number;
  readonly message: string;
}

/**
 * What the complaints of a refused dry run tell: the first damage, in one line, or null if all is well.
 *
 * @returns undefined if they tell neither
 */
export function canaryDamage(
  { text, refused }: Canary,
  complaints: readonly Complaint[],
): string | null | undefined {
  const isExpected = ({ line, message }: Complaint): boolean =>
    refused.has(line) && !MISSING_REGEXP.test(message);
  const damage = complaints.find((complaint) => !isExpected(complaint));
  if (damage !== undefined) return `${damage.message}: ${text.split("\n")[damage.line - 1]}`;
  const told = new Set(complaints.map(({ line }) => line));
  return told.size > 0 && refused.isSubsetOf(told) ? null : undefined;
}

/** What a deep check may take at any time, in milliseconds. */
const CHEAP_MS = 250;
/** One that takes longer may take this part of the time. */
const DEEP_SHARE = 0.01;

/** Decides when the next deep check is due: rarely where others have so many rules that it takes long. */
export class DeepChecks {
  #dueMs = Number.NEGATIVE_INFINITY;

  isDue(nowMs: number): boolean {
    return nowMs >= this.#dueMs;
  }

  done(startMs: number, endMs: number): void {
    const tookMs = endMs - startMs;
    this.#dueMs = tookMs <= CHEAP_MS ? endMs : endMs + tookMs / DEEP_SHARE;
  }
}
