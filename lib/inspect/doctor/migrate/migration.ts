/**
 * What would change if the node ran another mode.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { compareBytes } from "../../../model/names.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ProxyState } from "../../../model/state.ts";
import { COMMON_TRAITS, type MigrationMode, SERVICE_TRAITS, type Trait } from "./traits.ts";

/** One thing that changes. */
export interface Difference {
  readonly topic: string;
  /** In the mode that runs. */
  readonly from: string;
  /** In the other mode. */
  readonly to: string;
}

/** A Service that would behave differently. */
export interface ChangedService {
  readonly namespace: string;
  readonly name: string;
  /** At least one; each topic once. */
  readonly differences: readonly Difference[];
}

/** All that changes. */
export interface Migration {
  readonly from: MigrationMode;
  readonly to: MigrationMode;
  /** Where the Services are from, e.g. the address of the API server. */
  readonly objectsFrom: string;
  /** How many Services were looked at. */
  readonly serviceCount: number;
  /** What changes for every Service, and for the node. */
  readonly everyService: readonly Difference[];
  /** By namespace and name; those that only `everyService` is about are left out. */
  readonly services: readonly ChangedService[];
}

/** What a migration is judged from. */
export interface MigrationInput {
  readonly from: MigrationMode;
  readonly to: MigrationMode;
  readonly config: KubeProxyConfiguration;
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
  readonly objectsFrom: string;
}

/** Compares the modes for every Service. */
export function judgeMigration({ from, to, config, states, objectsFrom }: MigrationInput): Migration {
  const changed = new Map<string, Map<string, Difference>>();
  const names = new Set<string>();
  for (const [family, { services }] of states) {
    for (const [name, ports] of services) {
      names.add(name);
      for (const port of ports) {
        for (const difference of compare(SERVICE_TRAITS, { port, family, config }, { from, to })) {
          const known = changed.get(name) ?? new Map<string, Difference>();
          if (!known.has(difference.topic)) known.set(difference.topic, difference);
          changed.set(name, known);
        }
      }
    }
  }
  return {
    from,
    to,
    objectsFrom,
    serviceCount: names.size,
    everyService: compare(COMMON_TRAITS, config, { from, to }),
    services: [...changed].sort(([one], [other]) => compareBytes(one, other)).map(([key, differences]) => {
      const [namespace = "", name = ""] = key.split("/", 2);
      return { namespace, name, differences: [...differences.values()] };
    }),
  };
}

function compare<T>(
  traits: readonly Trait<T>[],
  subject: T,
  { from, to }: { readonly from: MigrationMode; readonly to: MigrationMode },
): readonly Difference[] {
  return traits.flatMap(({ topic, behaviour }) => {
    const [before, after] = [behaviour(from, subject), behaviour(to, subject)];
    if (before === null || after === null || before === after) return [];
    return [{ topic: topic(subject), from: before, to: after }];
  });
}
