/**
 * fast-check, with a seed: every run of the tests tries the laws on the same cases, so that what fails was broken by what was changed.
 * `KPROXY_SEED=N` tries them on others, and so does CI on a tenth as many.
 *
 * @module
 */
import fastCheck from "fast-check";

/** Of every run that is not told another one. */
const DEFAULT_SEED = 1;
/** The environment's variable that tells another one: a whole number. */
const SEED_VARIABLE = "KPROXY_SEED";
/** The environment's variable with a seed for cases beside those; `""` or absent: there are none. `tools/run_tests.ts` draws it in CI. */
export const DRAWN_SEED_VARIABLE = "KPROXY_DRAWN_SEED";
/** Of how many cases of the usual seed there is one of the drawn one. */
const SHARE = 10;
/** As fast-check has it. */
const USUAL_RUNS = 100;

/** @throws {TypeError} if that is no whole number */
export function seedOf(text: string | undefined): number {
  const seed = text === undefined || text === "" ? DEFAULT_SEED : Number(text);
  if (!Number.isInteger(seed)) throw new TypeError(`${SEED_VARIABLE} must be a whole number, not "${text}"`);
  return seed;
}

const SEED = seedOf(Deno.env.get(SEED_VARIABLE));
const drawnText = Deno.env.get(DRAWN_SEED_VARIABLE) ?? "";
const DRAWN_SEED = drawnText === "" ? undefined : seedOf(drawnText);
const FILE = Deno.mainModule.replace(/^file:\/\//, "");

/** The seeds of this run, each with how many of so many cases it has. */
export function seedsFor(cases: number): readonly { readonly seed: number; readonly cases: number }[] {
  const usual = { seed: SEED, cases };
  if (DRAWN_SEED === undefined) return [usual];
  return [usual, { seed: DRAWN_SEED, cases: Math.ceil(cases / SHARE) }];
}

/** How to have the cases of the drawn seed again, all of them. */
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
