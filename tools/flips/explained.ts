/**
 * Flips that no test can or need notice, each with its reason. What is not here and survives wants a test.
 *
 * @module
 */
import type { Flip } from "./source_flips.ts";

/**
 * - `equivalent`: nothing that kproxy does or says changes.
 * - `text`: only words of a log line or a message change.
 * - `performance`: the outcome is the same and costs more or less work.
 */
export type ExplanationKind = "equivalent" | "text" | "performance";

export interface Explanation {
  readonly kind: ExplanationKind;
  readonly why: string;
}

/** Key of the flip → kind and reason. */
type Explanations = Readonly<Record<string, readonly [kind: ExplanationKind, why: string]>>;

const IPVS_PLAN: Explanations = {
  'lib/backend/ipvs/plan/service_claims.ts ClaimsDraft.addServer: known.outFilter === "" && wanted.outFilter !== "" → known.outFilter === "" || wanted.outFilter !== ""':
    [
      "equivalent",
      "address and port make both the server's key and its rule, so two rules of one server are the same",
    ],
  'lib/backend/ipvs/plan/settings.ts hostIps: family === "IPv6" && LINK_LOCAL !== null → family === "IPv6" || LINK_LOCAL !== null':
    ["equivalent", "no IPv4 address is in a network of IPv6"],
  "lib/backend/ipvs/plan/settings.ts nodePortIps: return ownIps; → dropped": [
    "performance",
    "where all addresses match, the networks are all addresses",
  ],
  "lib/backend/ipvs/plan/union.ts Counter.entry: (this.counts.get(entry) ?? 0) + by → (this.counts.get(entry) ?? 0) - by":
    ["equivalent", "all counts change their sign, and only whether one is 0 matters"],
  "lib/backend/ipvs/plan/union.ts ClaimUnion.apply: continue; → dropped": [
    "equivalent",
    "an entry that is taken and given back was there before, and its count stays",
  ],
  "lib/backend/ipvs/plan/union.ts ClaimUnion.#appearances: continue; → dropped": [
    "equivalent",
    "an entry that is taken and given back was there before, and neither comes nor goes",
  ],
};

/** All of them. */
export const EXPLANATIONS: ReadonlyMap<string, Explanation> = new Map(
  Object.entries({ ...IPVS_PLAN }).map(([key, [kind, why]]) => [key, { kind, why }]),
);

/** What is known of a flip that survives; null if nothing is. */
export function explain(flip: Flip): Explanation | null {
  return EXPLANATIONS.get(flip.key) ?? null;
}
