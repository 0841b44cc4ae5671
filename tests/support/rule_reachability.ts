/**
 * What packets can reach in a state of the tables, coarse enough to compare any two moments of a sync.
 *
 * @module
 */
import type { RestoredTables } from "./fake_iptables.ts";

const VERDICTS = /^(?:ACCEPT|DROP|REJECT|RETURN|MARK|MASQUERADE|DNAT|REDIRECT)$/;

/** User chain that a rule jumps to; null: none. */
function jumpTarget(rule: string): string | null {
  const target = / -j (\S+)/.exec(` ${rule}`)?.[1] ?? null;
  return target === null || VERDICTS.test(target) ? null : target;
}

/** Possible results for packets to one address (or node port) of a Service. */
export interface Fate {
  /** Endpoints for some of the sources. */
  readonly endpoints: ReadonlySet<string>;
  /** True if filter rejects or drops packets that nat leaves untranslated. */
  readonly hasVerdict: boolean;
}

/** Conditions of a Service's dispatch rule; null for other rules. */
function dispatchMatch(rule: string): string | null {
  const found =
    /--comment (?:"[^"]*"|\S+) (?:-m addrtype --dst-type LOCAL )?(-m \S+ -p \S+ (?:-d \S+ )?--dport \d+)/
      .exec(rule);
  return found?.[1] ?? null;
}

function endpointsBehind(
  nat: ReadonlyMap<string, readonly string[]>,
  chain: string,
  found: Set<string>,
): void {
  for (const rule of nat.get(chain) ?? []) {
    const destination = /--to-destination (\S+)$/.exec(rule)?.[1];
    if (destination !== undefined) found.add(destination);
    const target = jumpTarget(rule);
    if (target !== null && target !== chain) endpointsBehind(nat, target, found);
  }
}

const isReached = (
  chains: ReadonlyMap<string, readonly string[]>,
  source: string,
  target: string,
): boolean => (chains.get(source) ?? []).some((rule) => jumpTarget(rule) === target);

/** Fate of every address in the tables. */
export function fates(tables: RestoredTables): Map<string, Fate> {
  const nat = tables.chains("nat");
  const filter = tables.chains("filter");
  const result = new Map<string, { endpoints: Set<string>; hasVerdict: boolean }>();
  const fate = (match: string): { endpoints: Set<string>; hasVerdict: boolean } => {
    let known = result.get(match);
    if (known === undefined) result.set(match, known = { endpoints: new Set(), hasVerdict: false });
    return known;
  };
  if (isReached(nat, "PREROUTING", "KUBE-SERVICES")) {
    const services = nat.get("KUBE-SERVICES") ?? [];
    const nodePorts = services.some((rule) => jumpTarget(rule) === "KUBE-NODEPORTS")
      ? nat.get("KUBE-NODEPORTS") ?? []
      : [];
    for (const rule of [...services, ...nodePorts]) {
      const match = dispatchMatch(rule);
      // The first matching rule decides.
      if (match === null || result.has(match)) continue;
      endpointsBehind(nat, jumpTarget(rule)!, fate(match).endpoints);
    }
  }
  for (
    const [source, chain] of [["FORWARD", "KUBE-SERVICES"], ["INPUT", "KUBE-EXTERNAL-SERVICES"]] as const
  ) {
    if (!isReached(filter, source, chain)) continue;
    for (const rule of filter.get(chain) ?? []) {
      const match = dispatchMatch(rule);
      if (match !== null) fate(match).hasVerdict = true;
    }
  }
  return result;
}

/** True if translated packets are masqueraded where rules request it. */
export function isMasqueradeReady(tables: RestoredTables): boolean {
  const nat = tables.chains("nat");
  const translates = isReached(nat, "PREROUTING", "KUBE-SERVICES") &&
    (nat.get("KUBE-SERVICES") ?? []).some((rule) => dispatchMatch(rule) !== null);
  return !translates || (isReached(nat, "POSTROUTING", "KUBE-POSTROUTING") &&
    (nat.get("KUBE-POSTROUTING") ?? []).length > 0 && (nat.get("KUBE-MARK-MASQ") ?? []).length > 0);
}
