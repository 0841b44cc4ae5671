/**
 * What rules about a configuration find.
 *
 * @module
 */
import type { Problem } from "../errors.ts";

/** A problem and the other fields that have a part in it. */
export interface Finding extends Problem {
  readonly related?: readonly string[];
}

/** One finding in kube-proxy's words. */
export function invalidValue(
  path: string,
  value: unknown,
  detail: string,
  related?: readonly string[],
): Finding {
  const message = `Invalid value: ${JSON.stringify(value)}: ${detail}`;
  return related === undefined ? { path, message } : { path, message, related };
}
