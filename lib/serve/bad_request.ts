/**
 * What becomes of a request that cannot be understood.
 *
 * @module
 */

/** A request that no page answers; its connection ends with the answer. */
export class BadRequest extends Error {
  override readonly name = "BadRequest";

  /** @param message the answer's body, as Go's server words it */
  constructor(readonly status: number, message: string) {
    super(message);
  }
}
