/**
 * A virtual packet's way through the base chains of nftables tables, following every branch of a random choice.
 *
 * @module
 */
import { parseIp } from "../../model/ip.ts";
import type { NftStatement, NftVerdict } from "../../netfilter/nft_rule.ts";
import type { NftChain, NftRule, NftTable } from "../../netfilter/nft_tables.ts";
import { parseNftVerdict } from "../../netfilter/parse_nft_rule.ts";
import type { NftBase } from "../../netfilter/parse_nft_spec.ts";
import {
  acceptedWalk,
  type EndedWalk,
  leavesThrough,
  mergeWalks,
  rejectedWalk,
  rememberedIn,
  type Surroundings,
  type Walk,
} from "../packet_walk.ts";
import { type RulePlace, unknownWords } from "../iptables_match.ts";
import { WalkBudget } from "../walk_budget.ts";
import { type Lookup, NftMatcher } from "./simulate_match.ts";

/** Connection tracking looks at packets at this priority. */
export const CONNTRACK_PRIORITY = -200;
/** The kernel refuses deeper jumps and all loops. */
const DEEPEST_JUMP = 16;

/** A chain that the kernel calls. */
export interface HookedChain {
  readonly table: NftTable;
  readonly chain: NftChain;
  readonly base: NftBase;
}

/** Where a rule stands. */
interface Place {
  readonly table: NftTable;
  readonly base: NftBase;
  readonly depth: number;
}

/** What became of histories in a chain, a rule or a statement. */
interface Fates {
  readonly ended: readonly EndedWalk[];
  /** Those that leave the chain for the one that called it. */
  readonly returned: readonly Walk[];
  /** Those that go on: with the next chain, the next rule, the next statement. */
  readonly next: readonly Walk[];
}

const NOWHERE: Fates = { ended: [], returned: [], next: [] };

/** What a statement made of a history. */
interface Step {
  /** `next`: those that go on with the next rule. */
  readonly fates: Fates;
  /** Those that go on with the rule's next statement. */
  readonly passing: readonly Walk[];
}

function passed(walk: Walk): Step {
  return { fates: NOWHERE, passing: [walk] };
}

function missed(walk: Walk): Step {
  return { fates: { ...NOWHERE, next: [walk] }, passing: [] };
}

/** Each way that was looked up passes or misses by itself; without any the history misses. */
function matched(found: readonly Lookup[], not: boolean, walk: Walk): Step {
  if (found.length === 0) return missed(walk);
  const walks = (isPassing: boolean): readonly Walk[] =>
    found.filter(({ value }) => ((value !== null) !== not) === isPassing).map((one) => one.walk);
  return { fates: { ...NOWHERE, next: walks(false) }, passing: walks(true) };
}

/** One packet's way through base chains. */
export class NftPass {
  readonly #surroundings: Surroundings;
  readonly #report: (problem: string) => void;
  readonly #budget: WalkBudget;
  readonly #matchers = new Map<NftTable, NftMatcher>();

  /** @param report receives what cannot be evaluated */
  constructor(surroundings: Surroundings, report: (problem: string) => void) {
    this.#surroundings = surroundings;
    this.#report = report;
    this.#budget = new WalkBudget(report);
  }

  /** A base chain, its policy included. */
  baseChain({ table, chain, base }: HookedChain, walk: Walk): readonly EndedWalk[] {
    const { ended, next } = this.#chain({ table, base, depth: 0 }, chain, [walk]);
    const fall = (one: Walk): EndedWalk => {
      if (base.policy === "accept") return acceptedWalk(one);
      const hit = { table: tableLabel(table), chain: chain.name, index: 0, rule: "policy drop" };
      return { walk: { ...one, hits: [...one.hits, hit] }, verdict: base.policy, rejectWith: "" };
    };
    return [...ended, ...next.map(fall)];
  }

  /** Yields as `next` those that come back to whoever called the chain. */
  #chain(place: Place, chain: NftChain, entering: readonly Walk[]): Fates {
    const ended: EndedWalk[] = [];
    const returned: Walk[] = [];
    let live = entering;
    for (const [position, rule] of chain.rules.entries()) {
      if (live.length === 0) break;
      const next: Walk[] = [];
      for (const walk of live) {
        if (!this.#budget.step()) return { ended, returned: [], next: [...returned, ...live] };
        const fates = this.#rule(place, chain, position, rule, walk);
        ended.push(...fates.ended);
        returned.push(...fates.returned);
        next.push(...fates.next);
      }
      live = this.#budget.ways(mergeWalks(next));
    }
    return { ended, returned: [], next: [...returned, ...live] };
  }

  #rule(place: Place, chain: NftChain, position: number, rule: NftRule, walk: Walk): Fates {
    const ended: EndedWalk[] = [];
    const returned: Walk[] = [];
    const next: Walk[] = [];
    let live: readonly Walk[] = [walk];
    const { table } = place;
    const hit = {
      table: tableLabel(table),
      chain: chain.name,
      index: position + 1,
      rule: rule.text,
    };
    const counted = (one: Walk): Walk => one.hits.at(-1) === hit ? one : { ...one, hits: [...one.hits, hit] };
    for (const statement of rule.statements) {
      const passing: Walk[] = [];
      for (const one of live) {
        const step = this.#statement({ ...place, hit }, statement, one, counted);
        ended.push(...step.fates.ended);
        returned.push(...step.fates.returned);
        next.push(...step.fates.next);
        passing.push(...step.passing);
      }
      live = passing;
    }
    return { ended, returned, next: [...next, ...live] };
  }

  #statement(
    place: Place & { readonly hit: RulePlace },
    statement: NftStatement,
    walk: Walk,
    counted: (walk: Walk) => Walk,
  ): Step {
    const matcher = this.#matcher(place.table);
    if (this.#looksAtUnknown(statement, walk)) {
      this.#report("A rule that looks at the outInterface is not understood and taken as not matching");
      return missed(walk);
    }
    switch (statement.kind) {
      case "match":
        return matched(matcher.lookUp(statement.key, statement.operand, walk), statement.not, walk);
      case "state":
      case "status":
      case "direction":
      case "addressType":
      case "mark":
        return matcher.holds(statement, walk) ? passed(walk) : missed(walk);
      case "notrack":
        // Behind connection tracking it comes too late.
        return passed(
          place.base.priority < CONNTRACK_PRIORITY ? counted({ ...walk, state: "UNTRACKED" }) : walk,
        );
      case "note":
        return passed(walk);
      case "unread":
        this.#report(unknownWords(statement.text, place.hit));
        return missed(walk);
      case "setMark": {
        const mark = ((walk.mark & statement.keep) ^ statement.flip) >>> 0;
        return passed(counted({ ...walk, mark }));
      }
      case "remember": {
        const known = !statement.refresh && matcher.remembers(statement.set, walk);
        return passed(counted(known ? walk : rememberedIn(statement.set, walk)));
      }
      case "verdict":
        return { fates: this.#follow(place, statement.verdict, counted(walk)), passing: [] };
      case "verdictMap":
        return {
          fates: this.#perValue(
            matcher.lookUp(statement.key, statement.operand, walk),
            walk,
            (value, one) => this.#follow(place, parseNftVerdict(value), counted(one)),
          ),
          passing: [],
        };
      case "dnat":
      case "dnatMap":
      case "masquerade":
      case "reject":
        return { fates: this.#end(place, statement, walk, counted), passing: [] };
      default:
        return statement satisfies never;
    }
  }

  /** True if the device decides by which the packet leaves, and nobody knows which that is. */
  #looksAtUnknown(statement: NftStatement, walk: Walk): boolean {
    return "key" in statement && statement.key.some(({ kind }) => kind === "outInterface") &&
      leavesThrough(walk, this.#surroundings) === undefined;
  }

  /** What ends the packet's way through the base chain. */
  #end(
    place: Place,
    statement: NftStatement & { readonly kind: "dnat" | "dnatMap" | "masquerade" | "reject" },
    walk: Walk,
    counted: (walk: Walk) => Walk,
  ): Fates {
    checkPlace(statement.kind, place.base);
    switch (statement.kind) {
      case "masquerade":
        return { ...NOWHERE, ended: [acceptedWalk({ ...counted(walk), masquerade: true })] };
      case "reject":
        return { ...NOWHERE, ended: [rejectedWalk(counted(walk), statement.with)] };
      case "dnat": {
        const to = [statement.ip, ...(statement.port === null ? [] : [statement.port])].join(" . ");
        return { ...NOWHERE, ended: [acceptedWalk(translatedTo(to, counted(walk)))] };
      }
      case "dnatMap":
        return this.#perValue(
          this.#matcher(place.table).lookUp(statement.key, statement.operand, walk),
          walk,
          (value, one) => ({ ...NOWHERE, ended: [acceptedWalk(translatedTo(value, counted(one)))] }),
        );
    }
  }

  /** What was found decides; where nothing was, the next rule does. */
  #perValue(found: readonly Lookup[], walk: Walk, decide: (value: string, walk: Walk) => Fates): Fates {
    const all = found.map((one) =>
      one.value === null ? { ...NOWHERE, next: [one.walk] } : decide(one.value, one.walk)
    );
    return {
      ended: all.flatMap((one) => one.ended),
      returned: all.flatMap((one) => one.returned),
      next: found.length === 0 ? [walk] : all.flatMap((one) => one.next),
    };
  }

  #follow(place: Place, verdict: NftVerdict, walk: Walk): Fates {
    switch (verdict.kind) {
      case "accept":
      case "drop":
        return { ...NOWHERE, ended: [{ walk, verdict: verdict.kind, rejectWith: "" }] };
      case "return":
        return { ...NOWHERE, returned: [walk] };
      case "continue":
        return { ...NOWHERE, next: [walk] };
      case "jump":
      case "goto": {
        const chain = place.table.chains.get(verdict.chain);
        if (chain === undefined) throw new RangeError(`There is no chain ${verdict.chain} to go to`);
        const depth = place.depth + 1;
        if (depth > DEEPEST_JUMP) throw new RangeError(`Jumps never end at chain ${verdict.chain}`);
        if (!this.#budget.jump()) return { ...NOWHERE, next: [walk] };
        const { ended, next } = this.#chain({ ...place, depth }, chain, [walk]);
        // What a `goto` chain gives back skips the rest of this one.
        return verdict.kind === "jump" ? { ended, returned: [], next } : { ended, returned: next, next: [] };
      }
    }
  }

  #matcher(table: NftTable): NftMatcher {
    const known = this.#matchers.get(table) ?? new NftMatcher(table, this.#surroundings);
    this.#matchers.set(table, known);
    return known;
  }
}

/** As nft calls it, e.g. `ip kproxy`. */
function tableLabel({ family, name, label }: NftTable): string {
  return label ?? `${family === "IPv4" ? "ip" : "ip6"} ${name}`;
}

/** Whether a chain sees the packet at all: nat only until the connection's translation is settled. */
export function isShown({ type, hook }: NftBase, walk: Walk): boolean {
  if (type !== "nat") return true;
  if (walk.state !== "NEW") return false;
  if (hook === "prerouting" || hook === "output") {
    // Back in through lo, its destination was settled on the way out.
    return !walk.translated && walk.inInterface !== "lo";
  }
  return !walk.masquerade;
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

/** @param to `ip . port`, or `ip` */
function translatedTo(to: string, walk: Walk): Walk {
  const [ip = "", port] = to.split(" . ");
  const destination = parseIp(ip);
  if (destination === null) throw new RangeError(`"${ip}" is no destination`);
  return { ...walk, destination, port: port === undefined ? walk.port : Number(port), translated: true };
}
