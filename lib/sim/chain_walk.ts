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

/** One statement of an iptables or nft rule; statements are evaluated from left to right. */
export type Statement =
  | NftStatement
  | KnownCondition
  /** DNAT to a port of the node itself; 0: the packet's own port. */
  | { readonly kind: "redirect"; readonly port: number }
  /** Only inspects the packet, e.g. LOG. */
  | { readonly kind: "hit" }
  /** A target that the simulator does not know; the packet passes on unchanged. */
  | { readonly kind: "unknown"; readonly problem: string };

/** A rule, parsed to match packets against. */
export interface WalkedRule {
  /** The rule's text as written. */
  readonly text: string;
  readonly statements: readonly Statement[];
}

/** A table whose rules are walked, whatever tool has written it. */
export interface WalkedTable {
  /** The table's name as its tool prints it, e.g. `nat`, `ip kproxy`. */
  readonly label: string;
  /** Rules of a chain; undefined: there is no such chain. */
  readonly rulesOf: (chain: string) => readonly WalkedRule[] | undefined;
  /** The nft table with the sets and maps of its rules; null: an iptables table. */
  readonly nft: NftTable | null;
}

/** A base chain: one that the kernel calls from a hook. */
export interface BaseChain extends NftBase {
  readonly table: WalkedTable;
  readonly name: string;
}

/** Position of a rule in its chain. */
export interface RulePlace {
  readonly table: string;
  readonly chain: string;
  /** Counted from 1. */
  readonly index: number;
}

/** Problem report for words of a rule that cannot be evaluated. */
export function unknownWords(words: string, { table, chain, index }: RulePlace): string {
  return `table ${table} chain ${chain} rule ${index}: "${words}" is not understood and taken as not matching`;
}

/** Hook priority of connection tracking. */
const CONNTRACK_PRIORITY = -200;
/** The kernel's limit (`NFT_JUMP_STACK_SIZE`): it refuses rules that jump deeper. */
const DEEPEST_NFT_JUMP = 16;
/** No kernel takes loops of iptables; this only keeps hand-made text from running forever. */
const DEEPEST_IPTABLES_JUMP = 64;

/** Where a branch goes after a statement: it ends, leaves the chain, or goes on with the next rule or the next statement. */
type Fate =
  | { readonly kind: "ended"; readonly walk: EndedWalk }
  | { readonly kind: "returned" | "next" | "passing"; readonly walk: Walk };

/** Effect of a statement: null: the next rule follows; a walk: the next statement does; fates: the branch splits. */
type Step = Walk | null | readonly Fate[];

function isSplit(step: Step): step is readonly Fate[] {
  return Array.isArray(step);
}

function ending(walk: EndedWalk): readonly Fate[] {
  return [{ kind: "ended", walk }];
}

/** Fates of all branches that entered a chain; those in `next` return to the calling chain. */
interface ChainFates {
  readonly ended: readonly EndedWalk[];
  readonly next: readonly Walk[];
}

/** Each branch of a lookup passes or misses by itself; without any branch the packet misses. */
function matched(found: readonly Lookup[], not: boolean): Step {
  const [first] = found;
  const passes = ({ value }: Lookup): boolean => (value !== null) !== not;
  if (found.length < 2) return first !== undefined && passes(first) ? first.walk : null;
  return found.map((one): Fate => ({ kind: passes(one) ? "passing" : "next", walk: one.walk }));
}

/** Position of a rule, and the hit that a matching packet records. */
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

  /** Walks a base chain with its policy. One that the kernel would have refused is reported, and passes the packet. */
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

  /** Evaluates a rule, beginning at one of its statements. */
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
        // After connection tracking, `notrack` comes too late.
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
        // The kernel drops a packet that came in by an interface without an address of the family.
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
        // After a `goto` chain returns, the rest of this chain is skipped.
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

/** The value that was found decides; a branch without a value goes on with the next rule. */
function perValue(
  found: readonly Lookup[],
  decide: (value: string, walk: Walk) => readonly Fate[],
): readonly Fate[] | null {
  if (found.every(({ value }) => value === null) && found.length < 2) return null;
  return found.flatMap(({ value, walk }): readonly Fate[] =>
    value === null ? [{ kind: "next", walk }] : decide(value, walk)
  );
}

/** @throws {RangeError} if the kernel would refuse the statement in such a base chain */
function checkPlace(kind: "dnat" | "dnatMap" | "masquerade" | "reject", { type, hook }: NftBase): void {
  const allowed = kind === "reject"
    // In prerouting `reject` is allowed since Linux 5.9.
    ? type === "filter" && hook !== "postrouting"
    : kind === "masquerade"
    ? type === "nat" && hook === "postrouting"
    : type === "nat" && (hook === "prerouting" || hook === "output");
  if (!allowed) throw new RangeError(`${kind} is reached from a ${type} chain of ${hook}`);
}

/** @param port null: the packet's own port */
function translated(ip: string, port: number | null, walk: Walk): EndedWalk {
  const destination = parseIp(ip);
  if (destination === null) throw new RangeError(`"${ip}" is no destination`);
  return acceptedWalk({ ...walk, destination, port: port ?? walk.port, translated: true });
}
