/**
 * fast-check, with a seed: every test run tries properties on the same cases, so that a failure comes from a change of the code.
 * `KPROXY_SEED=N` tries other cases, and so does CI for a tenth as many.
 *
 * @module
 */
import fastCheck from "fast-check";

/** Seed without `KPROXY_SEED`. */
const DEFAULT_SEED = 1;
/** Environment variable with another seed: a whole number. */
const SEED_VARIABLE = "KPROXY_SEED";
/** Environment variable with a seed for additional cases; `""` or absent: none. `tools/run_tests.ts` draws it in CI. */
export const DRAWN_SEED_VARIABLE = "KPROXY_DRAWN_SEED";
/** Cases of the usual seed per case of the drawn one. */
const SHARE = 10;
/** Default number of cases in fast-check. */
const USUAL_RUNS = 100;

/** @throws {TypeError} if the text is no whole number */
export function seedOf(text: string | undefined): number {
  const seed = text === undefined || text === "" ? DEFAULT_SEED : Number(text);
  if (!Number.isInteger(seed)) throw new TypeError(`${SEED_VARIABLE} must be a whole number, not "${text}"`);
  return seed;
}

const SEED = seedOf(Deno.env.get(SEED_VARIABLE));
const drawnText = Deno.env.get(DRAWN_SEED_VARIABLE) ?? "";
const DRAWN_SEED = drawnText === "" ? undefined : seedOf(drawnText);
const FILE = Deno.mainModule.replace(/^file:\/\//, "");

/** Seeds of this run with their numbers of cases, for so many cases. */
export function seedsFor(cases: number): readonly { readonly seed: number; readonly cases: number }[] {
  const usual = { seed: SEED, cases };
  if (DRAWN_SEED === undefined) return [usual];
  return [usual, { seed: DRAWN_SEED, cases: Math.ceil(cases / SHARE) }];
}

/** Command that repeats all cases of the drawn seed. */
export function drawnAgain(seed: number): string {
  return `Again: ${SEED_VARIABLE}=${seed} deno test -A --no-check ${FILE}`;
}

function drawnFailure(error: unknown, seed: number): Error {
  return new Error(`With the seed that this run has drawn. ${drawnAgain(seed)}`, { cause: error });
}

function law<Cases>(property: fastCheck.IRawProperty<Cases>, params: fastCheck.Parameters<Cases> = {}) {
  const { examples: _, numRuns = fastCheck.readConfigureGlobal().numRuns ?? USUAL_RUNS, ...rest } = params;
  const [, drawn] = params.seed === undefined ? seedsFor(numRuns) : [];
  const first = fastCheck.assert(property, params);
  if (drawn === undefined) return first;
  const failed = (error: unknown): never => {
    throw drawnFailure(error, drawn.seed);
  };
  const second = (): Promise<void> | void =>
    fastCheck.assert(property, { ...rest, seed: drawn.seed, numRuns: drawn.cases });
  if (first instanceof Promise) return first.then(() => Promise.resolve(second()).catch(failed));
  try {
    return second();
  } catch (error) {
    return failed(error);
  }
}

fastCheck.configureGlobal({ ...fastCheck.readConfigureGlobal(), seed: SEED });

/** fast-check; its `assert` tries the cases of all seeds of this run. */
const fc = { ...fastCheck, assert: law as typeof fastCheck.assert };
declare namespace fc {
  export type Arbitrary<T> = fastCheck.Arbitrary<T>;
}
export default fc;
