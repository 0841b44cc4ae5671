/**
 * fast-check, with a seed: every run of the tests tries the laws on the same cases, so that what fails was broken by what was changed.
 * `deno task explore` tries them on others.
 *
 * @module
 */
import fc from "fast-check";

/** Of every run that is not told another one. */
const DEFAULT_SEED = 1;
/** The environment's variable that tells another one: a whole number. */
export const SEED_VARIABLE = "KPROXY_SEED";

/** @throws {TypeError} if that is no whole number */
export function seedOf(text: string | undefined): number {
  const seed = text === undefined || text === "" ? DEFAULT_SEED : Number(text);
  if (!Number.isInteger(seed)) throw new TypeError(`${SEED_VARIABLE} must be a whole number, not "${text}"`);
  return seed;
}

fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: seedOf(Deno.env.get(SEED_VARIABLE)) });

export default fc;
