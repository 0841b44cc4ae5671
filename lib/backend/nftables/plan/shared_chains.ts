/**
 * The chains that Services of equal shape share: one for each number of endpoints, not one for each Service.
 *
 * @module
 */
import type { LocalDetector } from "../../../model/node.ts";
import { type EndpointMap, endpointMapName, FAMILY_WORDS, type FamilyWords } from "./chains.ts";
import { formatMark } from "../../family_settings.ts";
import type { Chain } from "../../../netfilter/nft_objects.ts";
import type { NftablesOptions } from "./ruleset.ts";

/** Parts of rules that are the same for all addresses of a family. */
export interface RuleWords extends FamilyWords {
  /** Sets the mark that asks for masquerading. */
  readonly setMark: string;
  /** Matches traffic of pods of this node or cluster; null if nothing distinguishes it. */
  readonly local: string | null;
  /** The opposite of `local`. */
  readonly notLocal: string | null;
}

/**
 * @throws {RangeError} if the masquerade mark is not one bit
 */
export function ruleWords(options: NftablesOptions): RuleWords {
  const words = FAMILY_WORDS[options.family];
  return {
    ...words,
    setMark: `meta mark set meta mark | ${formatMark(options.masqueradeMark)}`,
    ...detectorMatches(options.detector, words),
  };
}

function detectorMatches(
  detector: LocalDetector,
  { ip }: FamilyWords,
): { local: string | null; notLocal: string | null } {
  switch (detector.kind) {
    case "none":
      return { local: null, notLocal: null };
    case "cidr":
      return { local: `${ip} saddr ${detector.cidr}`, notLocal: `${ip} saddr != ${detector.cidr}` };
    case "interface":
      return { local: `iifname "${detector.name}"`, notLocal: `iifname != "${detector.name}"` };
    case "interfacePrefix":
      return { local: `iifname "${detector.prefix}*"`, notLocal: `iifname != "${detector.prefix}*"` };
  }
}

/**
 * The rules of traffic from outside to a Service of policy Local: pods and the node itself get any endpoint.
 *
 * @param cluster chain that chooses among all endpoints
 * @param local chain that chooses among those of this node; null if there are none: the packet is dropped later
 */
export function localPolicyRules(words: RuleWords, cluster: string, local: string | null): string[] {
  const rules: string[] = [];
  if (words.local !== null) {
    rules.push(`${words.local} goto ${cluster} comment "short-circuit pod traffic"`);
  }
  rules.push(`fib saddr type local ${words.setMark} comment "masquerade local traffic"`);
  rules.push(`fib saddr type local goto ${cluster} comment "short-circuit local traffic"`);
  if (local !== null) rules.push(`goto ${local}`);
  return rules;
}

/** The rules of traffic from outside to a Service of policy Cluster. */
export function clusterPolicyRules(words: RuleWords, cluster: string): string[] {
  return [`${words.setMark} comment "masquerade"`, `goto ${cluster}`];
}

/** The shared chains of one plan, made when first asked for; each goes only to earlier ones. */
export class SharedChains {
  readonly #chains = new Map<string, Chain>();
  readonly #words: RuleWords;

  constructor(words: RuleWords) {
    this.#words = words;
  }

  get byName(): ReadonlyMap<string, Chain> {
    return this.#chains;
  }

  /** `tcp-3`: chooses one of `count` endpoints and translates. */
  choice(map: EndpointMap, count: number): string {
    const { ip } = this.#words;
    const { protocol, nodePort } = map;
    const key = `${nodePort ? "" : `${ip} daddr . `}${protocol} dport . numgen random mod ${count}`;
    return this.#ensure(
      `${prefix(map)}${map.local ? "local-" : ""}${protocol}-${count}`,
      () => [`dnat ${ip} to ${key} map @${endpointMapName(map)}`],
    );
  }

  /** `masq-tcp-3`: traffic from outside under policy Cluster. */
  masqueraded(map: EndpointMap, count: number): string {
    const cluster = this.choice({ ...map, local: false }, count);
    return this.#ensure(
      `${prefix(map)}masq-${map.protocol}-${count}`,
      () => clusterPolicyRules(this.#words, cluster),
    );
  }

  /** `external-tcp-3-1`: traffic from outside under policy Local. */
  localOnly(map: EndpointMap, count: number, localCount: number): string {
    const cluster = this.choice({ ...map, local: false }, count);
    const local = localCount === 0 ? null : this.choice({ ...map, local: true }, localCount);
    return this.#ensure(
      `${prefix(map)}external-${map.protocol}-${count}-${localCount}`,
      () => localPolicyRules(this.#words, cluster, local),
    );
  }

  #ensure(name: string, rules: () => readonly string[]): string {
    if (!this.#chains.has(name)) this.#chains.set(name, { name, rules: rules() });
    return name;
  }
}

function prefix({ nodePort }: EndpointMap): string {
  return nodePort ? "nodeport-" : "";
}
