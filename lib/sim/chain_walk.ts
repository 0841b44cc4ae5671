/**
 * A virtual packet's path through base chains of iptables and nftables, following every branch of a random choice.
 *
 * @module
 */
import { parseIp } from "../model/ip.ts";
import type { RuleMatch } from "../netfilter/iptables_rule.ts";
import type { NftStatement, NftVerdict } from "../netfilter/nft_rule.ts";
import type { NftBase, NftTable } from "../netfilter/nft_ruleset.ts";
import { parseNftVerdict } from "../netfilter/parse_nft_rule.ts";
import type { RuleHit } from "./flow.ts";
import type { IptablesMatcher } from "./iptables_match.ts";
import { type Lookup, NftMatcher } from "./nftables_match.ts";
import {
  acceptedWalk,
  type EndedWalk,
  mergeWalks,
  type PacketContext,
  redirectedTo,
  rejectedWalk,
  rememberedIn,
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

/** What is reported of words that cannot be judged. */
export function unknownWords(words: string, { table, chain, index }: RulePlace): string {
  return `table ${table} chain ${chain} rule ${index}: "${words}" is not understood and taken as not matching`;
}

/** Connection tracking looks at packets at this priority. */
const CONNTRACK_PRIORITY = -200;
/** The kernel's limit (`NFT_JUMP_STACK_SIZE`): it refuses rules that jump deeper. */
const DEEPEST_NFT_JUMP = 16;
/** No kernel takes loops of iptables; this only keeps hand-made text from running forever. */
const DEEPEST_IPTABLES_JUMP = 64;

/** What became of histories in a chain or a statement. */
interface Fates {
  readonly ended: readonly EndedWalk[];
  /** Those that leave the chain for the one that called it. */
  readonly returned: readonly Walk[];
  /** Those that go on: with the next chain, the next rule. */
  readonly next: readonly Walk[];
  /** Those that go on with the rule's next statement. */
  readonly passing: readonly Walk[];
}

/** The same, while a chain is walked. */
interface OpenFates extends Fates {
  readonly ended: EndedWalk[];
  readonly returned: Walk[];
  next: Walk[];
}

const NOWHERE: Fates = { ended: [], returned: [], next: [], passing: [] };

/** What a statement does with a history: null: it goes on with the next rule; a history: it goes on in this one. */
type Step = Walk | Fates | null;

function ending(walk: EndedWalk): Fates {
  return { ...NOWHERE, ended: [walk] };
}

/** Each history that was looked up passes or misses by itself; without any the packet misses. */
function matched(found: readonly Lookup[], not: boolean): Step {
  const [first] = found;
  if (first === undefined) return null;
  const passes = ({ value }: Lookup): boolean => (value !== null) !== not;
  if (found.length === 1) return passes(first) ? first.walk : null;
  const walks = (isPassing: boolean): readonly Walk[] =>
    found.filter((one) => passes(one) === isPassing).map((one) => one.walk);
  return { ...NOWHERE, next: walks(false), passing: walks(true) };
}

/** Where a rule stands, and the hit of a packet that matches it. */
interface Position {
  readonly base: BaseChain;
  readonly depth: number;
  readonly own: RuleHit;
}

function hit({ own }: Position, walk: Walk): Walk {
  return walk.hits.at(-1) === own ? walk : { ...walk, hits: [...walk.hits, own] };
}

/** One packet's path through base chains. */
export class ChainWalk {
  readonly iptables: IptablesMatcher;
  readonly #context: PacketContext;
  readonly #budget: WalkBudget;
  readonly #matchers = new Map<NftTable, NftMatcher>();

  constructor(context: PacketContext, iptables: IptablesMatcher) {
    this.iptables = iptables;
    this.#context = context;
    this.#budget = new WalkBudget(context.report);
  }

  /** A base chain, its policy included. One that the kernel would not have taken is reported, and lets the packet pass. */
  baseChain(base: BaseChain, walk: Walk): readonly EndedWalk[] {
    const { table: { label, nft }, name, policy } = base;
    try {
      const { ended, next } = this.#chain(base, name, [walk], 0);
      const fall = (one: Walk): EndedWalk => {
        if (policy === "accept") return acceptedWalk(one);
        const rule = `policy ${nft === null ? policy.toUpperCase() : policy}`;
        const own = { table: label, chain: name, index: 0, rule, hook: base.hook };
        return { walk: { ...one, hits: [...one.hits, own] }, verdict: policy, rejectWith: "" };
      };
      return [...ended, ...next.map(fall)];
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
      this.#context.report(
        `Table ${label} chain ${name}: ${error.message}; it is taken to let the packet pass`,
      );
      return [acceptedWalk(walk)];
    }
  }

  /** Yields as `next` those that come back to the chain that called it. */
  #chain(base: BaseChain, chain: string, entering: readonly Walk[], depth: number): Fates {
    const fates: OpenFates = { ...NOWHERE, ended: [], returned: [], next: [] };
    let live = entering;
    for (const [index, { text, statements }] of (base.table.rulesOf(chain) ?? []).entries()) {
      if (live.length === 0) break;
      const own = { table: base.table.label, chain, index: index + 1, rule: text, hook: base.hook };
      const position = { base, depth, own };
      fates.next = [];
      for (const walk of live) {
        if (!this.#budget.step()) return { ...fates, returned: [], next: [...fates.returned, ...live] };
        this.#rule(position, statements, 0, walk, fates);
      }
      const { next } = fates;
      const isSame = next.length === live.length && next.every((walk, at) => walk === live[at]);
      if (!isSame) live = this.#budget.ways(mergeWalks(next));
    }
    return { ...fates, returned: [], next: [...fates.returned, ...live] };
  }

  /** A rule from one of its statements on. */
  #rule(
    position: Position,
    statements: readonly Statement[],
    from: number,
    walk: Walk,
    fates: OpenFates,
  ): void {
    let live = walk;
    for (let at = from; at < statements.length; at++) {
      const step = this.#statement(position, statements[at]!, live);
      if (step === null) break;
      if (!("passing" in step)) {
        live = step;
        continue;
      }
      fates.ended.push(...step.ended);
      fates.returned.push(...step.returned);
      fates.next.push(...step.next);
      for (const one of step.passing) this.#rule(position, statements, at + 1, one, fates);
      return;
    }
    fates.next.push(live);
  }

  #statement(position: Position, statement: Statement, walk: Walk): Step {
    const { base, own } = position;
    switch (statement.kind) {
      case "iptables": {
        const { passing, missed } = this.iptables.match(statement.match, walk, own);
        if (missed.length === 0 && passing.length === 1) return passing[0]!;
        return { ...NOWHERE, next: missed, passing };
      }
      case "match":
        return matched(this.#lookUp(base, statement, walk), statement.not);
      case "state":
      case "status":
      case "direction":
      case "addressType":
      case "mark":
        return this.#matcher(base).holds(statement, walk) ? walk : null;
      case "notrack":
        // Behind connection tracking it comes too late.
        return base.priority < CONNTRACK_PRIORITY ? hit(position, { ...walk, state: "UNTRACKED" }) : walk;
      case "note":
        return walk;
      case "hit":
        return hit(position, walk);
      case "unknown":
        this.#context.report(statement.problem);
        return hit(position, walk);
      case "unread":
        this.#context.report(unknownWords(statement.text, own));
        return null;
      case "setMark":
        return hit(position, { ...walk, mark: ((walk.mark & statement.keep) ^ statement.flip) >>> 0 });
      case "remember": {
        const known = !statement.refresh && this.#matcher(base).remembers(statement.set, walk);
        return hit(position, known ? walk : rememberedIn(statement.set, walk));
      }
      case "verdict":
        return this.#follow(position, statement.verdict, hit(position, walk));
      case "verdictMap":
        return perValue(
          this.#lookUp(base, statement, walk),
          (value, one) => this.#follow(position, parseNftVerdict(value), hit(position, one)),
        );
      case "masquerade":
        checkPlace(statement.kind, base);
        return ending(acceptedWalk({ ...hit(position, walk), masquerade: true }));
      case "reject":
        checkPlace(statement.kind, base);
        return ending(rejectedWalk(hit(position, walk), statement.with));
      case "dnat":
        checkPlace(statement.kind, base);
        return ending(translated(statement.ip, statement.port, hit(position, walk)));
      case "dnatMap":
        checkPlace(statement.kind, base);
        return perValue(this.#lookUp(base, statement, walk), (value, one) => {
          const [ip = "", port] = value.split(" . ");
          return ending(translated(ip, port === undefined ? null : Number(port), hit(position, one)));
        });
      case "redirect": {
        const destination = redirectedTo(walk, this.#context.hostState);
        const met = hit(position, walk);
        // What comes in by an interface without an address of the family is dropped.
        if (destination === null) return ending({ walk: met, verdict: "drop", rejectWith: "" });
        return ending(translated(destination.text, statement.port === 0 ? null : statement.port, met));
      }
      default:
        return statement satisfies never;
    }
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
        const deepest = base.table.nft === null ? DEEPEST_IPTABLES_JUMP : DEEPEST_NFT_JUMP;
        if (!isThere || depth >= deepest) {
          const problem = isThere ? "jumps never end at" : "a rule jumps to a chain that does not exist:";
          this.#context.report(`Table ${base.table.label}: ${problem} ${verdict.chain}`);
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
    const known = this.#matchers.get(nft) ?? new NftMatcher(nft, this.#context);
    this.#matchers.set(nft, known);
    return known;
  }
}

/** What was found decides; where nothing was, the next rule does. */
function perValue(found: readonly Lookup[], decide: (value: string, walk: Walk) => Fates): Step {
  const [first] = found;
  if (first === undefined) return null;
  if (found.length === 1) return first.value === null ? null : decide(first.value, first.walk);
  const all = found.map((one) =>
    one.value === null ? { ...NOWHERE, next: [one.walk] } : decide(one.value, one.walk)
  );
  return {
    ...NOWHERE,
    ended: all.flatMap((one) => one.ended),
    returned: all.flatMap((one) => one.returned),
    next: all.flatMap((one) => one.next),
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
