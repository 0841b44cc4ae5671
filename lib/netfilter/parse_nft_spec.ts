/**
 * Reads what stands in braces where a chain, set or map of nftables is made.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import { nftSeconds } from "./nft_duration.ts";
import { type NftType, typeOfExpression } from "./nft_rule.ts";
import { NftWords } from "./nft_words.ts";
import { takeKey } from "./parse_nft_rule.ts";

/** Where packets are shown to rules. */
export type NftHook = "prerouting" | "input" | "forward" | "output" | "postrouting";

/** How the kernel calls a chain. */
export interface NftBase {
  /** What its rules may do: translate (`nat`) or not. */
  readonly type: "filter" | "nat";
  /** Where it is called. */
  readonly hook: NftHook;
  /** Chains of one hook are called from the lowest to the highest. */
  readonly priority: number;
  /** What becomes of a packet that no rule decides about. */
  readonly policy: "accept" | "drop";
}

/** What a set (`values` null) or a map holds. */
export interface NftSpec {
  /** The types of a key's parts, in order. */
  readonly keys: readonly NftType[];
  /** The types of a value's parts, `verdict` of a verdict map. */
  readonly values: readonly NftType[] | "verdict" | null;
  /** After which time an element is forgotten; null: never. */
  readonly timeoutSeconds: number | null;
}

const HOOKS: readonly NftHook[] = ["prerouting", "input", "forward", "output", "postrouting"];
/** What nft calls priorities, where it does not print numbers. */
export const PRIORITIES: ReadonlyMap<string, number> = new Map([
  ["raw", -300],
  ["mangle", -150],
  ["dstnat", -100],
  ["filter", 0],
  ["security", 50],
  ["srcnat", 100],
]);
const TYPES: ReadonlySet<string> = new Set<NftType>([
  "ipv4_addr",
  "ipv6_addr",
  "inet_proto",
  "inet_service",
  "ifname",
]);

/** `{ comment "…" ; }`. */
export function takeComment(words: NftWords): void {
  words.expect("{");
  words.expect("comment");
  words.take();
  words.takeIf(";");
  words.expect("}");
}

/** `{ type filter hook input priority 0 ; policy drop ; comment "…" ; }`, null if it only has a comment. */
export function takeBase(words: NftWords): NftBase | null {
  words.expect("{");
  let base: NftBase | undefined;
  while (!words.takeIf("}")) {
    if (words.takeIf("type")) base = takeHook(words);
    else if (words.takeIf("policy")) {
      const policy = words.take();
      if (base === undefined || (policy !== "accept" && policy !== "drop")) {
        throw words.refusal("has no such policy", -1);
      }
      base = { ...base, policy };
    } else {
      words.expect("comment");
      words.take();
    }
    if (words.peek() !== "}") words.expect(";");
  }
  return base ?? null;
}

function takeHook(words: NftWords): NftBase {
  const type = words.take();
  if (type !== "filter" && type !== "nat") throw words.refusal("has an unknown type", -1);
  words.expect("hook");
  const hookWord = words.take();
  const hook = HOOKS.find((one) => one === hookWord);
  if (hook === undefined) throw words.refusal("has an unknown hook", -1);
  words.expect("priority");
  const word = words.take();
  let priority = PRIORITIES.get(word) ?? Number(word);
  if (words.takeIf("-")) priority -= words.takeNumber();
  else if (words.takeIf("+")) priority += words.takeNumber();
  if (!Number.isInteger(priority)) throw words.refusal("has an unknown priority", -1);
  return { type, hook, priority, policy: "accept" };
}

/** What a set or map is, in braces: `{ type ipv4_addr . inet_service : verdict ; flags dynamic,timeout ; timeout 600s ; }`. */
export function takeSpec(
  words: NftWords,
  kind: "set" | "map",
  family: IpFamily,
): NftSpec {
  let keys: readonly NftType[] | null = null;
  let values: NftSpec["values"] = null;
  let timeoutSeconds: number | null = null;
  words.expect("{");
  while (!words.takeIf("}")) {
    const word = words.take();
    if (word === "type" || word === "typeof") {
      const takeTypes = (): NftType[] => word === "type" ? takeTypeNames(words) : takeTypesOf(words, family);
      keys = takeTypes();
      if (words.takeIf(":")) values = words.takeIf("verdict") ? "verdict" : takeTypes();
    } else if (word === "timeout") timeoutSeconds = takeSeconds(words);
    else if (word === "flags") takeFlags(words);
    else if (word === "comment" || word === "size" || word === "gc-interval") words.take();
    // Each element counts; that decides nothing.
    else if (word !== "counter") throw words.refusal("is not understood", -1);
    if (words.peek() !== "}") words.expect(";");
  }
  if (keys === null || (values === null) !== (kind === "set")) throw words.refusal(`is no ${kind}`);
  return { keys, values, timeoutSeconds };
}

/**
 * What a line of a listing such as `type ipv4_addr . inet_service : verdict` or `typeof ip daddr` says.
 *
 * @throws {SyntaxError} if it is about types that are not known here
 */
export function readTypes(line: string, family: IpFamily): Pick<NftSpec, "keys" | "values"> {
  const words = new NftWords(line);
  const takeTypes = words.take() === "type" ? takeTypeNames : takeTypesOf;
  const keys = takeTypes(words, family);
  if (!words.takeIf(":")) return { keys, values: null };
  return { keys, values: words.takeIf("verdict") ? "verdict" : takeTypes(words, family) };
}

function takeTypeNames(words: NftWords): NftType[] {
  const types: NftType[] = [];
  do {
    const type = words.take();
    if (!TYPES.has(type)) throw words.refusal("has an unknown type", -1);
    types.push(type as NftType);
  } while (words.takeIf("."));
  return types;
}

function takeTypesOf(words: NftWords, family: IpFamily): NftType[] {
  return takeKey(words, family).map((expression) => typeOfExpression(expression, family));
}

function takeFlags(words: NftWords): void {
  do {
    const flag = words.take();
    if (flag !== "dynamic" && flag !== "timeout") throw words.refusal("has an unknown flag", -1);
  } while (words.takeIf(","));
}

/** E.g. `600s`, `1h30m`. */
function takeSeconds(words: NftWords): number {
  const seconds = nftSeconds(words.take());
  if (seconds === null) throw words.refusal("has an unknown time", -1);
  return seconds;
}
