/**
 * Flips of mode ipvs that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const IPVS: Explanations = {
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
  "lib/backend/ipvs/diff/committed.ts CommittedIpvs.apply: needed > this.capacity(set) → needed >= this.capacity(set)":
    ["equivalent", "the capacity that it has is written down once more"],
  "lib/backend/ipvs/diff/diff.ts diffStaticChains: growth.get(setOfEntry(entry)) ?? 0 → 0": [
    "equivalent",
    "no more entries go than there were, so one that comes is enough for a set not to be empty",
  ],
  "lib/backend/ipvs/diff/observe_damage.ts holdsRealServers: return true; → dropped": [
    "performance",
    "as many as are wanted, all of which are there, are those that are wanted",
  ],
  "lib/backend/ipvs/diff/refusals.ts Refusals.without: return plan; → dropped": [
    "performance",
    "where nothing is refused the copy holds the same",
  ],
  "lib/backend/ipvs/diff/render.ts serverLine: return change satisfies never; → dropped": [
    "equivalent",
    "the types leave no other kind of change",
  ],
  "lib/backend/ipvs/diff/diff.ts diffSets: size > capacity → size >= capacity": [
    "performance",
    "a set that is exactly full is replaced by one of the same entries",
  ],
};
