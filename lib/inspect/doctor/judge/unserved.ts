/**
 * Judges what Services ask for and do not get.
 *
 * @module
 */
import type { UnservedDestination } from "../../../model/destination_claims.ts";
import { counted } from "../../../text/words.ts";
import { type Finding, ok, warning } from "../finding.ts";

const CHECK = "addresses";

/** As a running kproxy tells them: how many, and the first of them. */
export interface UnservedDestinations {
  readonly count: number;
  readonly destinations: readonly UnservedDestination[];
}

/** One finding. */
export function judgeUnserved({ count, destinations }: UnservedDestinations): readonly Finding[] {
  const [first] = destinations;
  if (first === undefined) return [ok(CHECK, "Services get all that they ask for")];
  const { service, destination, reason } = first;
  const others = count === 1 ? "" : `; and ${count - 1} more`;
  return [
    warning(
      CHECK,
      `${
        counted(count, "destination")
      } of Services not served: ${destination} of ${service}: ${reason}${others}`,
      "take it out of the Service, or allow it; kproxy service list tells all of them",
    ),
  ];
}
