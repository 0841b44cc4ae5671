/**
 * What ends a look at parts of the rules: everything is read instead.
 *
 * @module
 */

/** Something cannot be read bit by bit. */
export class UntoldError extends Error {
  override readonly name = "UntoldError";
}
