/**
 * The rules of each chain of a Service, told apart in the text of all of them: a start does that with every Service.
 *
 * @module
 */
import { RulesHash } from "../../../netfilter/rules_hash.ts";

const BLANK = 0x20;
const APPEND = "-A ";

/** What stands for the rules of each chain, and how many there are, in the order of the chains. */
export interface BodyHashes {
  readonly hashes: readonly number[];
  readonly counts: readonly number[];
}

/**
 * As `hashRules` of each chain's lines.
 *
 * @param text `-A CHAIN …` lines with line ends between them; those of one chain need not be neighbours
 * @throws {TypeError} if a line is of none of the chains
 */
export function hashBodies(text: string, chains: readonly string[]): BodyHashes {
  const bodies = chains.map(() => new RulesHash());
  const counts = chains.map(() => 0);
  let index = 0;
  for (let from = 0; from < text.length;) {
    const newline = text.indexOf("\n", from);
    const to = newline < 0 ? text.length : newline;
    index = chainAt(text, from, chains, index);
    bodies[index]!.add(text, from, to);
    counts[index]!++;
    from = to + 1;
  }
  return { hashes: bodies.map(({ value }) => value), counts };
}

/** Whose line begins there: mostly that of the line before, or the next one. */
function chainAt(text: string, from: number, chains: readonly string[], guess: number): number {
  const at = from + APPEND.length;
  for (let step = 0; step < chains.length; step++) {
    const index = (guess + step) % chains.length;
    const chain = chains[index]!;
    if (text.startsWith(chain, at) && text.charCodeAt(at + chain.length) === BLANK) return index;
  }
  throw new TypeError(`A line is of none of the chains ${chains.join(", ")}: ${text.slice(from, at + 40)}`);
}
