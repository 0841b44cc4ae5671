/**
 * How iptables printed a chain before, and what that says of how it prints it now. Each version prints rules in its own way, so nothing
 * is compared with what was written: a chain whose rules are the same must be printed as it was, and one whose rules are others must be
 * printed otherwise. If it is not, the program that wrote them did nothing and said that all is well, or somebody else changed them.
 *
 * @module
 */

/** How a chain was printed once. */
export interface SeenChain {
  /** Stands for the rules that it was meant to have. */
  readonly text: number;
  /** Stands for what iptables printed of it. */
  readonly print: number;
  /** True: it is printed so with other rules, too, and that was told. */
  readonly isLeft: boolean;
}

/** What is known of a chain that changed or was damaged since it was printed as it should be. */
export interface ChainDoubt {
  /** How it was printed with other rules than it has now. */
  readonly former?: SeenChain | undefined;
  /** How a look found it damaged; it is not written again yet. NaN: nobody knows whether it is. */
  readonly damaged?: number | undefined;
  /** How it was printed before it was written again. */
  readonly repaired?: number | undefined;
}

/** What a chain's print must be, or must not be; neither if nothing is known of it. */
export interface PrintExpectation {
  readonly same?: number | undefined;
  readonly other?: SeenChain | undefined;
  /** How it was printed before it was written again. */
  readonly repaired?: number | undefined;
}

/**
 * - `known`: it is printed as it was; `new`: it is printed as never before, which may be right.
 * - `damaged`: it is not as it should be.
 * - `stays`: it is not as it should be, and writing it again has not changed that.
 */
export type PrintFinding = "known" | "new" | "damaged" | "stays";

/** Judges what was printed of a chain that has as many rules as it should. */
export function judgePrint(print: number, { same, other, repaired }: PrintExpectation): PrintFinding {
  if (print === same || (other?.isLeft === true && print === other.print)) return "known";
  if (other !== undefined && print !== other.print) return "new";
  if (print === repaired) return "stays";
  return same === undefined && other === undefined ? "new" : "damaged";
}

/** Chains of one Service in their order, and what is known of how they are printed. */
export interface PrintMemory {
  /** Names of the chains, joined by blanks. */
  readonly chains: string;
  /** Stands for each chain's rules, in the order of `chains`. */
  readonly hashes: readonly number[];
  /** Stands for what iptables printed of each chain with these rules; NaN: nobody has looked. Null: at none. */
  prints: number[] | null;
  /** By chain, of those that changed or are damaged; null: of none. */
  doubts: Map<string, ChainDoubt> | null;
}

/** What stays known of chains that had the rules of `before` and have those of `hashes` now. */
export function inheritPrints(
  chains: readonly string[],
  hashes: readonly number[],
  before: PrintMemory | undefined,
): Pick<PrintMemory, "prints" | "doubts"> {
  if (before === undefined || (before.prints === null && before.doubts === null)) {
    return { prints: null, doubts: null };
  }
  const places = new Map(before.chains.split(" ").map((chain, index) => [chain, index]));
  const prints: number[] = [];
  const doubts = new Map<string, ChainDoubt>();
  for (const [index, chain] of chains.entries()) {
    const text = hashes[index]!;
    const place = places.get(chain);
    const doubt = before.doubts?.get(chain);
    const seen = place === undefined ? undefined : seenChain(before, place, doubt, text);
    const repaired = doubt?.damaged ?? doubt?.repaired;
    const isSame = seen?.text === text;
    prints.push(isSame ? seen!.print : Number.NaN);
    const former = isSame ? undefined : seen;
    if (former !== undefined || repaired !== undefined) doubts.set(chain, { former, repaired });
  }
  return { prints, doubts: doubts.size === 0 ? null : doubts };
}

/** How the chain was last printed as it should be. */
function seenChain(
  { prints, hashes }: PrintMemory,
  place: number,
  doubt: ChainDoubt | undefined,
  text: number,
): SeenChain | undefined {
  const print = prints?.[place] ?? Number.NaN;
  if (!Number.isNaN(print)) return { text: hashes[place]!, print, isLeft: false };
  if (doubt?.former === undefined || hashes[place] === text) return doubt?.former;
  // Of these rules nothing was told yet.
  return { ...doubt.former, isLeft: false };
}

/** What the chain's print must be. */
export function expectedPrint(
  { prints, doubts }: PrintMemory,
  index: number,
  chain: string,
): PrintExpectation {
  const print = prints?.[index] ?? Number.NaN;
  const { former, repaired } = doubts?.get(chain) ?? {};
  return { same: Number.isNaN(print) ? undefined : print, other: former, repaired };
}

/** It is printed as it was; how it was before it was written again does not matter any more. */
export function confirmPrint(memory: PrintMemory, chain: string): void {
  const doubt = memory.doubts?.get(chain);
  if (doubt?.former === undefined && doubt?.damaged === undefined) setDoubt(memory, chain, undefined);
}

/** From now on it is to be printed so. */
export function learnPrint(memory: PrintMemory, index: number, chain: string, print: number): void {
  memory.prints ??= memory.hashes.map(() => Number.NaN);
  memory.prints[index] = print;
  setDoubt(memory, chain, undefined);
}

/** It is printed as it should not be even after it was written again: nobody does that once more. */
export function leavePrint(memory: PrintMemory, index: number, chain: string, print: number): void {
  const former = memory.doubts?.get(chain)?.former;
  // With other rules it looked the same: whatever else it looks like later is right.
  if (former?.print === print) setDoubt(memory, chain, { former: { ...former, isLeft: true } });
  else learnPrint(memory, index, chain, print);
}

/** A look found it damaged; the next write of its Service writes it, too. */
export function markDamaged(memory: PrintMemory, chain: string, print: number): void {
  setDoubt(memory, chain, { ...memory.doubts?.get(chain), damaged: print });
}

/** True if it is to be written whatever rules it should have. */
export function isMarkedDamaged({ doubts }: PrintMemory, chain: string): boolean {
  return doubts?.get(chain)?.damaged !== undefined;
}

function setDoubt(memory: PrintMemory, chain: string, doubt: ChainDoubt | undefined): void {
  if (doubt !== undefined) (memory.doubts ??= new Map()).set(chain, doubt);
  else if (memory.doubts?.delete(chain) === true && memory.doubts.size === 0) memory.doubts = null;
}
