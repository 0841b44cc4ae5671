/**
 * Flips of the model that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const MODEL: Explanations = {
  "lib/model/change_tracker.ts ChangeTracker: options.report ?? (() => {}) → options.report": [
    "equivalent",
    "those that are given it have one of their own",
  ],
  "lib/model/change_tracker.ts ChangeTracker.#servicePorts: invalid.size > 0 → invalid.size >= 0": [
    "performance",
    "an empty list is kept, which means the same as none",
  ],
  "lib/model/destination_claims.ts compareClaimants: leftTime < rightTime → leftTime <= rightTime": [
    "equivalent",
    "two equal times never come there",
  ],
  "lib/model/destination_claims.ts DestinationClaims.update: ports.lost.size > 0 → ports.lost.size >= 0": [
    "performance",
    "a Service that loses nothing is kept among those that do, with the same ports",
  ],
  "lib/model/destination_claims.ts Holders.changed: continue; → dropped": [
    "performance",
    "Services to which nothing happened are looked at, and nothing is found",
  ],
  "lib/model/endpoint.ts categorizeEndpoints: return { cluster: [], local: [], allReachable: [], hasAny: false }; → dropped":
    ["performance", "of no endpoints the rest makes the same"],
  "lib/model/endpoint.ts categorizeEndpoints: local.length > 0 → local.length >= 0": [
    "performance",
    "together with nothing the list is the same: it is sorted",
  ],
  "lib/model/endpoint_slices.ts sameSlice: return true; → dropped": [
    "performance",
    "what is one and the same compares as equal",
  ],
  "lib/model/endpoint_slices.ts sameLists: return true; → dropped": [
    "performance",
    "lists that are the same as they are, are so when sorted",
  ],
  "lib/model/endpoint_slices.ts comparePorts: left.port ?? 0 → left.port": [
    "equivalent",
    "null counts as 0 where it is subtracted",
  ],
  "lib/model/endpoint_slices.ts comparePorts: right.port ?? 0 → right.port": [
    "equivalent",
    "null counts as 0 where it is subtracted",
  ],
  "lib/model/endpoint_slices.ts sortedWithoutDuplicates: return tight(endpoints); → dropped": [
    "performance",
    "of one endpoint the rest makes the same",
  ],
  "lib/model/ip.ts parseIpv4: digits === 1 && octet === 0 → digits === 1 || octet === 0": [
    "performance",
    "whether the text is canonical decides only whether it is written again",
  ],
  "lib/model/ip.ts parseIpv4: digits === 1 → digits !== 1": [
    "performance",
    "whether the text is canonical decides only whether it is written again",
  ],
  "lib/model/ip.ts textOfBytes: index < 16 → index <= 16": [
    "equivalent",
    "of more than eight groups only eight are written",
  ],
  "lib/model/ip.ts formatGroups: index < 8 → index <= 8": ["equivalent", "behind the last group none is 0"],
  "lib/model/ipvs_annotations.ts ipvsAnnotations: return NO_IPVS_ANNOTATIONS; → dropped": [
    "performance",
    "without both annotations the same wishes are made anew",
  ],
  "lib/model/change_tracker.ts ChangeTracker.#reportUnreachable: now.size > 0 → now.size >= 0": [
    "performance",
    "an empty list is kept, which means the same as none",
  ],
  "lib/model/change_tracker.ts ChangeTracker.#reportUnreachable: return; → dropped": [
    "performance",
    "between equal lists nothing is found",
  ],
  'lib/model/endpoint_slices.ts comparePorts: right.name ?? "" → right.name': [
    "equivalent",
    "a sort asks for the later one on the left, which stays behind one without a name",
  ],
  "lib/model/ip.ts parseIpv4: digits === 1 && octet === 0 → !(digits === 1 && octet === 0)": [
    "performance",
    "whether the text is canonical decides only whether it is written again",
  ],
};
