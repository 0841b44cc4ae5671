/**
 * A virtual packet's path through base chains of iptables and nftables, following every branch of a random choice.
 *
 * @module
 */
import type { Cidr } from "../model/ip.ts";
import { parseIp } from "../model/ip.ts";
import type { RuleMatch } from "../netfilter/iptables_rule.ts";
import type { NftStatement, NftVerdict } from "../netfilter/nft_rule.ts";
import type { NftTable } from "../netfilter/nft_tables.ts";
import { parseNftVerdict } from "../netfilter/parse_nft_rule.ts";
import type { NftBase } from "../netfilter/parse_nft_spec.ts";
import type { IptablesMatcher } from "./iptables_match.ts";
import { type Lookup, NftMatcher } from "./nftables_match.ts";
import {
  acceptedWalk,
  type EndedWalk,
  leavesThrough,
  mergeWalks,
  redirectedTo,
  rejectedWalk,
  rememberedIn,
  type Surroundings,
  type Walk,
  WalkBudget,
} from "./packet_walk.ts";

/** One step of a rule, of iptables or nft; they are taken from left to right. */
export type Statement =
  | NftStatement
  | { readonly kind: "iptables"; readonly match: RuleMatch }
  /** To a port of the node itself; 0: the packet's own. */
  | { readonly kind: "redirect"; readonly port: number }
  /** Only looks at the packet, such as a log. */
  | { readonly kind: "hit" }
  /** Does what no simulator knows; the packet goes on. */
  | { readonly kind: "unknown"; readonly problem: string };

/** A rule, ready for packets. */
export interface WalkedRule {
  /** As it was written. */
  readonly text: string;
  readonly statements: readonly Statement[];
}

/** A table whose rules are walked, whatever tool has written them. */
export interface WalkedTable {
  /** As the tool calls it, e.g. `nat`, `ip kproxy`. */
  readonly label: string;
  /** The rules of a chain; undefined: there is no such chain. */
  readonly rulesOf: (chain: string) => readonly WalkedRule[] | undefined;
  /** With the sets and maps that its rules look into; null: the table is one of iptables. */
  readonly nft: NftTable | null;
}

/** A chain that the kernel calls. */
export interface BaseChain extends NftBase {
  readonly table: WalkedTable;
  readonly name: string;
}

/** Where a rule stands. */
export interface RulePlace {
  readonly table: string;
  readonly chain: string;
  /** From 1 on. */
  readonly index: number;
}

/** What is told of words that nobody can judge. */
export function unknownWords(words: string, { table, chain, index }: RulePlace): string {
  return `table ${table} chain ${chain} rule ${index}: "${words}" is not understood and taken as not matching`;
}

/** Connection tracking looks at packets at this priority. */
const CONNTRACK_PRIORITY = -200;
/** nftables takes no deeper ones, and no kernel loops; this only keeps hand-made text from running forever. */
const DEEPEST_JUMP = 64;

/** What became of histories in a chain, a rule or a statement. */
interface Fates {
  readonly ended: readonly EndedWalk[];
  /** Those that leave the chain for the one that called it. */
  readonly returned: readonly Walk[];
  /** Those that go on: with the next chain, the next rule. */
  readonly next: readonly Walk[];
  /** Those that go on with the rule's next statement. */
  readonly passing: readonly Walk[];
}

const NOWHERE: Fates = { ended: [], returned: [], next: [], passing: [] };

function ending(walk: EndedWalk): Fates {
  return { ...NOWHERE, ended: [walk] };
}

/** Each history that was looked up passes or misses by itself; without any the packet misses. */
function matched(found: readonly Lookup[], not: boolean, walk: Walk): Fates {
  if (found.length === 0) return { ...NOWHERE, next: [walk] };
  const walks = (isPassing: boolean): readonly Walk[] =>
    found.filter(({ value }) => ((value !== null) !== not) === isPassing).map((one) => one.walk);
  return { ...NOWHERE, next: walks(false), passing: walks(true) };
}

/** Where a statement stands. */
interface Position {
  readonly base: BaseChain;
  readonly depth: number;
  readonly place: RulePlace;
  /** The history with the rule among those that it has met. */
  readonly hit: (walk: Walk) => Walk;
}

/** One packet's path through base chains. */
export class ChainWalk {
  readonly iptables: IptablesMatcher;
  readonly #surroundings: Surroundings;
  readonly #cidrs: Map<string, Cidr | null>;
  readonly #report: (problem: string) => void;
  readonly #budget: WalkBudget;
  readonly #matchers = new Map<NftTable, NftMatcher>();

  /** @param report receives what cannot be evaluated */
  constructor(
    surroundings: Surroundings,
    iptables: IptablesMatcher,
    cidrs: Map<string, Cidr | null>,
    report: (problem: string) => void,
  ) {
    this.iptables = iptables;
    this.#surroundings = surroundings;
    this.#cidrs = cidrs;
    this.#report = report;
    this.#budget = new WalkBudget(report);
  }

  /** A base chain, its policy included. One that the kernel would not have taken is reported, and lets the packet pass. */
  baseChain(base: BaseChain, walk: Walk): readonly EndedWalk[] {
    const { table: { label, nft }, name, policy } = base;
    try {
      const { ended, next } = this.#chain(base, name, [walk], 0);
      const fall = (one: Walk): EndedWalk => {
        if (policy === "accept") return acceptedWalk(one);
        const rule = `policy ${nft === null ? policy.toUpperCase() : policy}`;
        const hit = { table: label, chain: name, index: 0, rule };
        return { walk: { ...one, hits: [...one.hits, hit] }, verdict: policy, rejectWith: "" };
      };
      return [...ended, ...next.map(fall)];
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
      this.#report(`Table ${label} chain ${name}: ${error.message}; it is taken to let the packet pass`);
      return [acceptedWalk(walk)];
    }
  }

  /** Yields as `next` those that come back to the chain that called it. */
  #chain(base: BaseChain, chain: string, entering: readonly Walk[], depth: number): Fates {
    const ended: EndedWalk[] = [];
    const returned: Walk[] = [];
    let live = entering;
    for (const [index, rule] of (base.table.rulesOf(chain) ?? []).entries()) {
      if (live.length === 0) break;
      const place = { table: base.table.label, chain, index: index + 1 };
      const next: Walk[] = [];
      for (const walk of live) {
        if (!this.#budget.step()) return { ...NOWHERE, ended, next: [...returned, ...live] };
        const fates = this.#rule(base, depth, place, rule, walk);
        ended.push(...fates.ended);
        returned.push(...fates.returned);
        next.push(...fates.next, ...fates.passing);
      }
      live = this.#budget.ways(mergeWalks(next));
    }
    return { ...NOWHERE, ended, next: [...returned, ...live] };
  }

  #rule(base: BaseChain, depth: number, place: RulePlace, rule: WalkedRule, walk: Walk): Fates {
    const own = { ...place, rule: rule.text };
    const hit = (one: Walk): Walk => one.hits.at(-1) === own ? one : { ...one, hits: [...one.hits, own] };
    const position: Position = { base, depth, place, hit };
    const ended: EndedWalk[] = [];
    const returned: Walk[] = [];
    const next: Walk[] = [];
    let passing: readonly Walk[] = [walk];
    for (const statement of rule.statements) {
      if (passing.length === 0) break;
      const fates = passing.map((one) => this.#statement(position, statement, one));
      for (const one of fates) {
        ended.push(...one.ended);
        returned.push(...one.returned);
        next.push(...one.next);
      }
      passing = fates.flatMap((one) => one.passing);
    }
    return { ended, returned, next, passing };
  }

  #statement(position: Position, statement: Statement, walk: Walk): Fates {
    const { base, place, hit } = position;
    if (this.#looksAtUnknown(statement, walk)) {
      this.#report("A rule that looks at the outInterface is not understood and taken as not matching");
      return { ...NOWHERE, next: [walk] };
    }
    const passed = (one: Walk): Fates => ({ ...NOWHERE, passing: [one] });
    switch (statement.kind) {
      case "iptables": {
        const { passing, missed } = this.iptables.match(statement.match, walk, place);
        return { ...NOWHERE, next: missed, passing };
      }
      case "match":
        return matched(this.#lookUp(base, statement, walk), statement.not, walk);
      case "state":
      case "status":
      case "direction":
      case "addressType":
      case "mark":
        return this.#matcher(base).holds(statement, walk) ? passed(walk) : { ...NOWHERE, next: [walk] };
      case "notrack":
        // Behind connection tracking it comes too late.
        return passed(base.priority < CONNTRACK_PRIORITY ? hit({ ...walk, state: "UNTRACKED" }) : walk);
      case "note":
        return passed(walk);
      case "hit":
        return passed(hit(walk));
      case "unknown":
        this.#report(statement.problem);
        return passed(hit(walk));
      case "unread":
        this.#report(unknownWords(statement.text, place));
        return { ...NOWHERE, next: [walk] };
      case "setMark":
        return passed(hit({ ...walk, mark: ((walk.mark & statement.keep) ^ statement.flip) >>> 0 }));
      case "remember": {
        const known = !statement.refresh && this.#matcher(base).remembers(statement.set, walk);
        return passed(hit(known ? walk : rememberedIn(statement.set, walk)));
      }
      case "verdict":
        return this.#follow(position, statement.verdict, hit(walk));
      case "verdictMap":
        return perValue(
          this.#lookUp(base, statement, walk),
          walk,
          (value, one) => this.#follow(position, parseNftVerdict(value), hit(one)),
        );
      case "masquerade":
        checkPlace(statement.kind, base);
        return ending(acceptedWalk({ ...hit(walk), masquerade: true }));
      case "reject":
        checkPlace(statement.kind, base);
        return ending(rejectedWalk(hit(walk), statement.with));
      case "dnat":
        checkPlace(statement.kind, base);
        return ending(translated(statement.ip, statement.port, hit(walk)));
      case "dnatMap":
        checkPlace(statement.kind, base);
        return perValue(this.#lookUp(base, statement, walk), walk, (value, one) => {
          const [ip = "", port] = value.split(" . ");
          return ending(translated(ip, port === undefined ? null : Number(port), hit(one)));
        });
      case "redirect": {
        const destination = redirectedTo(walk, this.#surroundings);
        // What comes in by an interface without an address of the family is dropped.
        if (destination === null) return ending({ walk: hit(walk), verdict: "drop", rejectWith: "" });
        return ending(translated(destination.text, statement.port === 0 ? null : statement.port, hit(walk)));
      }
      default:
        return statement satisfies never;
    }
  }

  /** True if the device decides by which the packet leaves, and nobody knows which that is. */
  #looksAtUnknown(statement: Statement, walk: Walk): boolean {
    return "key" in statement && statement.key.some(({ kind }) => kind === "outInterface") &&
      leavesThrough(walk, this.#surroundings) === undefined;
  }

  #follow(position: Position, verdict: NftVerdict, walk: Walk): Fates {
    switch (verdict.kind) {
      case "accept":
      case "drop":
        return ending({ walk, verdict: verdict.kind, rejectWith: "" });
      case "return":
        return { ...NOWHERE, returned: [walk] };
      case "continue":
        return { ...NOWHERE, next: [walk] };
      case "jump":
      case "goto": {
        const { base, depth } = position;
        const isThere = base.table.rulesOf(verdict.chain) !== undefined;
        if (!isThere || depth >= DEEPEST_JUMP) {
          const problem = isThere ? "jumps never end at" : "a rule jumps to a chain that does not exist:";
          this.#report(`Table ${base.table.label}: ${problem} ${verdict.chain}`);
          return { ...NOWHERE, next: [walk] };
        }
        if (!this.#budget.jump()) return { ...NOWHERE, next: [walk] };
        const { ended, next } = this.#chain(base, verdict.chain, [walk], depth + 1);
        // What a `goto` chain gives back skips the rest of this one.
        return verdict.kind === "jump" ? { ...NOWHERE, ended, next } : { ...NOWHERE, ended, returned: next };
      }
    }
  }

  #lookUp(
    base: BaseChain,
    { key, operand }: NftStatement & { readonly kind: "match" | "verdictMap" | "dnatMap" },
    walk: Walk,
  ): readonly Lookup[] {
    return this.#matcher(base).lookUp(key, operand, walk);
  }

  #matcher({ table: { nft, label } }: BaseChain): NftMatcher {
    if (nft === null) throw new RangeError(`Table ${label} has no words of nft`);
    const known = this.#matchers.get(nft) ?? new NftMatcher(nft, this.#surroundings, this.#cidrs);
    this.#matchers.set(nft, known);
    return known;
  }
}

/** What was found decides; where nothing was, the next rule does. */
function perValue(
  found: readonly Lookup[],
  walk: Walk,
  decide: (value: string, walk: Walk) => Fates,
): Fates {
  const all = found.map((one) =>
    one.value === null ? { ...NOWHERE, next: [one.walk] } : decide(one.value, one.walk)
  );
  return {
    ...NOWHERE,
    ended: all.flatMap((one) => one.ended),
    returned: all.flatMap((one) => one.returned),
    next: found.length === 0 ? [walk] : all.flatMap((one) => one.next),
  };
}

/** @throws {RangeError} if the kernel would refuse the statement there */
function checkPlace(kind: "dnat" | "dnatMap" | "masquerade" | "reject", { type, hook }: NftBase): void {
  const allowed = kind === "reject"
    // In prerouting since Linux 5.9.
    ? type === "filter" && hook !== "postrouting"
    : kind === "masquerade"
    ? type === "nat" && hook === "postrouting"
    : type === "nat" && (hook === "prerouting" || hook === "output");
  if (!allowed) throw new RangeError(`${kind} is reached from a ${type} chain of ${hook}`);
}

/** @param port null: the packet's own */
function translated(ip: string, port: number | null, walk: Walk): EndedWalk {
  const destination = parseIp(ip);
  if (destination === null) throw new RangeError(`"${ip}" is no destination`);
  return acceptedWalk({ ...walk, destination, port: port ?? walk.port, translated: true });
}
