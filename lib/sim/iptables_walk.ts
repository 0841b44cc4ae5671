/**
 * A virtual packet's way through chains of iptables, following every branch of a random choice. Shared by the simulators of
 * the modes that write such rules.
 *
 * @module
 */
import { type Cidr, parseIp } from "../model/ip.ts";
import { markBits } from "../netfilter/canonical_iptables_rule.ts";
import { type ModeConditions, RuleMatcher } from "./iptables_match.ts";
import type { IptablesRule, RuleTarget } from "../netfilter/iptables_rule.ts";
import type { IptablesRuleset } from "../netfilter/iptables_save.ts";
import {
  acceptedWalk,
  type EndedWalk,
  mergeWalks,
  redirectedTo,
  rejectedWalk,
  type Surroundings,
  type Walk,
} from "./packet_walk.ts";
import { WalkBudget } from "./walk_budget.ts";
import { parseIptablesRule } from "../netfilter/parse_iptables_rule.ts";

interface ChainResult {
  readonly ended: readonly EndedWalk[];
  /** Those that came back to the calling chain. */
  readonly returned: readonly Walk[];
}

interface ParsedRule {
  readonly rule: IptablesRule;
  readonly text: string;
}

/** Targets that only look at the packet or touch what no rule here reads. */
const PASSING_TARGETS: ReadonlySet<string> = new Set([
  "LOG",
  "NFLOG",
  "TRACE",
  "AUDIT",
  "CONNMARK",
  "SECMARK",
]);
/** The kernel refuses loops; this only keeps hand-made text from running forever. */
const DEEPEST_JUMP = 64;

/**
 * A chain of 10,000 rules that was parsed for one walk need not be for the next, which has its own tables. Of what was read: it does not
 * change any more.
 */
const FOREIGN_RULES = new WeakMap<readonly string[], readonly ParsedRule[]>();

/** One family's rules, ready for packets. Chains are parsed when a packet first reaches them. */
export class IptablesTables {
  readonly #ruleset: IptablesRuleset;
  readonly #isForeign: boolean;
  readonly #chains = new Map<string, readonly ParsedRule[]>();
  readonly #cidrs = new Map<string, Cidr | null>();

  /** @param isForeign true: anybody may have written the rules, and one that does not parse matches nothing */
  constructor(ruleset: IptablesRuleset, isForeign = false) {
    this.#ruleset = ruleset;
    this.#isForeign = isForeign;
  }

  /** A way for one packet; `problems` collects what the simulator cannot do. */
  pass(
    surroundings: Surroundings,
    problems: Set<string>,
    conditions: ModeConditions | null = null,
  ): IptablesPass {
    const report = (problem: string): void => void problems.add(problem);
    const matcher = new RuleMatcher(surroundings, this.#cidrs, report, conditions);
    const rules = (table: string, chain: string): readonly ParsedRule[] | null => this.#rules(table, chain);
    return new IptablesPass(rules, this.#ruleset, matcher, surroundings, problems);
  }

  #rules(table: string, chain: string): readonly ParsedRule[] | null {
    const key = `${table} ${chain}`;
    const known = this.#chains.get(key);
    if (known !== undefined) return known;
    const saved = this.#ruleset.get(table)?.get(chain);
    if (saved === undefined) return null;
    const { rules } = saved;
    const before = this.#isForeign ? FOREIGN_RULES.get(rules) : undefined;
    const parsed = before ?? rules.map((text) => ({ rule: this.#parse(text), text }));
    if (this.#isForeign) FOREIGN_RULES.set(rules, parsed);
    this.#chains.set(key, parsed);
    return parsed;
  }

  #parse(text: string): IptablesRule {
    try {
      return parseIptablesRule(text);
    } catch (error) {
      if (!this.#isForeign || !(error instanceof SyntaxError)) throw error;
      return { matches: [{ kind: "opaque", words: [text] }], target: null };
    }
  }
}

/** One packet's way through the chains. */
export class IptablesPass {
  readonly #rules: (table: string, chain: string) => readonly ParsedRule[] | null;
  readonly #ruleset: IptablesRuleset;
  readonly #matcher: RuleMatcher;
  readonly #surroundings: Surroundings;
  readonly #problems: Set<string>;
  readonly #budget: WalkBudget;

  constructor(
    rules: (table: string, chain: string) => readonly ParsedRule[] | null,
    ruleset: IptablesRuleset,
    matcher: RuleMatcher,
    surroundings: Surroundings,
    problems: Set<string>,
  ) {
    this.#rules = rules;
    this.#ruleset = ruleset;
    this.#matcher = matcher;
    this.#surroundings = surroundings;
    this.#problems = problems;
    this.#budget = new WalkBudget((problem) => void problems.add(problem));
  }

  /** Runs a built-in chain, its policy included. */
  hook(table: string, chain: string, walk: Walk): readonly EndedWalk[] {
    // Only a connection's first packet asks the nat table; later ones follow conntrack, invalid ones nothing.
    if (table === "nat" && walk.state !== "NEW") return [acceptedWalk(walk)];
    const { ended, returned } = this.#chain(table, chain, [walk], 0);
    const policy = this.#ruleset.get(table)?.get(chain)?.policy ?? "ACCEPT";
    if (policy !== "DROP") return [...ended, ...returned.map(acceptedWalk)];
    const hit = { table, chain, index: 0, rule: "policy DROP" };
    return [
      ...ended,
      ...returned.map((one): EndedWalk => ({
        walk: { ...one, hits: [...one.hits, hit] },
        verdict: "drop",
        rejectWith: "",
      })),
    ];
  }

  #chain(table: string, chain: string, entering: readonly Walk[], depth: number): ChainResult {
    const ended: EndedWalk[] = [];
    const returned: Walk[] = [];
    let live = entering;
    for (const [position, { rule, text }] of (this.#rules(table, chain) ?? []).entries()) {
      if (live.length === 0) break;
      const next: Walk[] = [];
      for (const walk of live) {
        if (!this.#budget.step()) return { ended, returned: [...returned, ...live] };
        const place = { table, chain, index: position + 1 };
        const { hit, missed } = this.#matcher.match(rule.matches, walk, place);
        next.push(...missed);
        if (hit === null) continue;
        const hits = [...hit.hits, { ...place, rule: text }];
        const result = this.#follow(table, rule.target, { ...hit, hits }, depth);
        ended.push(...result.ended);
        // What a `goto` chain gives back skips the rest of this one.
        const skips = rule.target?.kind === "chain" ? rule.target.goto : isReturn(rule.target);
        (skips ? returned : next).push(...result.returned);
      }
      live = this.#budget.ways(mergeWalks(next));
    }
    return { ended, returned: [...returned, ...live] };
  }

  #follow(table: string, target: RuleTarget | null, walk: Walk, depth: number): ChainResult {
    const goesOn: ChainResult = { ended: [], returned: [walk] };
    if (target === null) return goesOn;
    switch (target.kind) {
      case "verdict": {
        if (target.verdict === "RETURN") return goesOn;
        const verdict = target.verdict === "DROP" ? "drop" : "accept";
        return { ended: [{ walk, verdict, rejectWith: "" }], returned: [] };
      }
      case "reject":
        return { ended: [rejectedWalk(walk, target.with)], returned: [] };
      case "setMark": {
        const { value, mask } = markBits(target);
        return { ended: [], returned: [{ ...walk, mark: ((walk.mark & ~mask) ^ value) >>> 0 }] };
      }
      case "masquerade":
        return { ended: [acceptedWalk({ ...walk, masquerade: true })], returned: [] };
      case "dnat":
        return this.#translate(target.to, walk);
      case "redirect":
        return this.#redirect(target.port, walk);
      case "chain":
        return this.#jump(table, target.chain, walk, depth);
      case "opaque":
        if (isNotrack(target.name, target.words)) return untracked(walk);
        if (!PASSING_TARGETS.has(target.name)) {
          this.#problems.add(`Target "${[target.name, ...target.words].join(" ")}" is not understood`);
        }
        return goesOn;
      default:
        return target satisfies never;
    }
  }

  #jump(table: string, chain: string, walk: Walk, depth: number): ChainResult {
    if (PASSING_TARGETS.has(chain)) return { ended: [], returned: [walk] };
    if (isNotrack(chain, [])) return untracked(walk);
    if (this.#rules(table, chain) === null || depth >= DEEPEST_JUMP) {
      const problem = depth >= DEEPEST_JUMP
        ? "jumps never end at"
        : "a rule jumps to a chain that does not exist:";
      this.#problems.add(`Table ${table}: ${problem} ${chain}`);
      return { ended: [], returned: [walk] };
    }
    if (!this.#budget.jump()) return { ended: [], returned: [walk] };
    return this.#chain(table, chain, [walk], depth + 1);
  }

  #translate(to: string, walk: Walk): ChainResult {
    const [, bracketed, plain, portText] = /^(?:\[([^\]]+)\]|([^:]+|[0-9a-fA-F:]+))(?::(\d+))?$/.exec(to) ??
      [];
    const destination = parseIp(bracketed ?? plain ?? "");
    if (destination === null) {
      this.#problems.add(`Destination "${to}" is not understood`);
      return { ended: [acceptedWalk(walk)], returned: [] };
    }
    const port = portText === undefined ? walk.port : Number(portText);
    return { ended: [acceptedWalk({ ...walk, destination, port, translated: true })], returned: [] };
  }

  /** What comes in by an interface without an address of the family is dropped. */
  #redirect(to: number, walk: Walk): ChainResult {
    const destination = redirectedTo(walk, this.#surroundings);
    if (destination === null) return { ended: [{ walk, verdict: "drop", rejectWith: "" }], returned: [] };
    const port = to === 0 ? walk.port : to;
    return { ended: [acceptedWalk({ ...walk, destination, port, translated: true })], returned: [] };
  }
}

/** The kernel takes both in table raw only, which comes before connection tracking. */
function isNotrack(name: string, words: readonly string[]): boolean {
  return name === "NOTRACK" || (name === "CT" && words.includes("--notrack"));
}

function untracked(walk: Walk): ChainResult {
  return { ended: [], returned: [{ ...walk, state: "UNTRACKED" }] };
}

function isReturn(target: RuleTarget | null): boolean {
  return target?.kind === "verdict" && target.verdict === "RETURN";
}
