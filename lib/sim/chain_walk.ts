/**
 * A virtual packet's path through base chains of iptables and nftables, following every branch of a random choice.
 *
 * @module
 */
import { parseIp } from "../model/ip.ts";
import type { NftStatement, NftVerdict } from "../netfilter/nft_rule.ts";
import type { NftBase, NftTable } from "../netfilter/nft_ruleset.ts";
import { parseNftVerdict } from "../netfilter/parse_nft_rule.ts";
import type { RuleHit } from "./flow.ts";
import type { IptablesMatcher, KnownCondition } from "./iptables_match.ts";
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
  | KnownCondition
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

/** What becomes of a history in a statement: it ends, leaves the chain, or goes on with the next rule or the next statement. */
type Fate =
  | { readonly kind: "ended"; readonly walk: EndedWalk }
  | { readonly kind: "returned" | "next" | "passing"; readonly walk: Walk };

/** What a statement does with a history: null: it goes on with the next rule; a history: it goes on in this one; or several. */
type Step = Walk | null | readonly Fate[];

function isSplit(step: Step): step is readonly Fate[] {
  return Array.isArray(step);
}

function ending(walk: EndedWalk): readonly Fate[] {
  return [{ kind: "ended", walk }];
}

/** What became of all histories that entered a chain; those in `next` are back in the chain that called it. */
interface ChainFates {
  readonly ended: readonly EndedWalk[];
  readonly next: readonly Walk[];
}

/** Each history that was looked up passes or misses by itself; without any the packet misses. */
function matched(found: readonly Lookup[], not: boolean): Step {
  const [first] = found;
  const passes = ({ value }: Lookup): boolean => (value !== null) !== not;
  if (found.length < 2) return first !== undefined && passes(first) ? first.walk : null;
  return found.map((one): Fate => ({ kind: passes(one) ? "passing" : "next", walk: one.walk }));
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

  #chain(base: BaseChain, chain: string, entering: readonly Walk[], depth: number): ChainFates {
    const ended: EndedWalk[] = [];
    const returned: Walk[] = [];
    let live = entering;
    for (const [index, { text, statements }] of (base.table.rulesOf(chain) ?? []).entries()) {
      if (live.length === 0) break;
      const own = { table: base.table.label, chain, index: index + 1, rule: text, hook: base.hook };
      const position = { base, depth, own };
      const next: Walk[] = [];
      for (const walk of live) {
        if (!this.#budget.step()) return { ended, next: [...returned, ...live] };
        for (const fate of this.#rule(position, statements, walk)) {
          if (fate.kind === "ended") ended.push(fate.walk);
          else (fate.kind === "returned" ? returned : next).push(fate.walk);
        }
      }
      const isSame = next.length === live.length && next.every((walk, at) => walk === live[at]);
      if (!isSame) live = this.#budget.ways(mergeWalks(next));
    }
    return { ended, next: [...returned, ...live] };
  }

  /** A rule from one of its statements on. */
  #rule(
    position: Position,
    statements: readonly Statement[],
    walk: Walk,
    from = 0,
  ): readonly Fate[] {
    let live = walk;
    for (let at = from; at < statements.length; at++) {
      const step = this.#statement(position, statements[at]!, live);
      if (step === null) break;
      if (isSplit(step)) {
        return step.flatMap((fate) =>
          fate.kind === "passing" ? this.#rule(position, statements, fate.walk, at + 1) : [fate]
        );
      }
      live = step;
    }
    return [{ kind: "next", walk: live }];
  }

  #statement(position: Position, statement: Statement, walk: Walk): Step {
    const { base, own } = position;
    switch (statement.kind) {
      case "option":
      case "chance":
      case "recent": {
        const { passing, missed } = this.iptables.match(statement, walk, own);
        if (missed === null) return passing;
        if (passing === null) return missed === walk ? null : [{ kind: "next", walk: missed }];
        return [{ kind: "next", walk: missed }, { kind: "passing", walk: passing }];
      }
      case "match":
        return matched(this.#lookUp(base, statement, walk), statement.not);
      case "mark": {
        const { mask, value, not } = statement;
        return (((walk.mark & mask) >>> 0) === value) !== not ? walk : null;
      }
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

  #follow(position: Position, verdict: NftVerdict, walk: Walk): readonly Fate[] {
    switch (verdict.kind) {
      case "accept":
      case "drop":
        return ending({ walk, verdict: verdict.kind, rejectWith: "" });
      case "return":
        return [{ kind: "returned", walk }];
      case "continue":
        return [{ kind: "next", walk }];
      case "jump":
      case "goto": {
        const { base, depth } = position;
        const isThere = base.table.rulesOf(verdict.chain) !== undefined;
        const deepest = base.table.nft === null ? DEEPEST_IPTABLES_JUMP : DEEPEST_NFT_JUMP;
        if (!isThere || depth >= deepest) {
          const problem = isThere ? "jumps never end at" : "a rule jumps to a chain that does not exist:";
          this.#context.report(`Table ${base.table.label}: ${problem} ${verdict.chain}`);
          return [{ kind: "next", walk }];
        }
        if (!this.#budget.jump()) return [{ kind: "next", walk }];
        const { ended, next } = this.#chain(base, verdict.chain, [walk], depth + 1);
        // What a `goto` chain gives back skips the rest of this one.
        const kind = verdict.kind === "jump" ? "next" : "returned";
        return [...ended.flatMap(ending), ...next.map((one): Fate => ({ kind, walk: one }))];
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
function perValue(
  found: readonly Lookup[],
  decide: (value: string, walk: Walk) => readonly Fate[],
): readonly Fate[] | null {
  if (found.every(({ value }) => value === null) && found.length < 2) return null;
  return found.flatMap(({ value, walk }): readonly Fate[] =>
    value === null ? [{ kind: "next", walk }] : decide(value, walk)
  );
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
