/**
 * Flips of mode nftables that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const NFTABLES: Explanations = {
  "lib/backend/nftables/plan/service_rules.ts PortDraft.#addOwnChains: return; → dropped": [
    "equivalent",
    "a port without names is neither sticky nor has it source ranges",
  ],
  "lib/backend/nftables/store/store.ts assignSlots: return wanted; → dropped": [
    "performance",
    "where nothing has to move, every endpoint finds the slot that it has",
  ],
  "lib/backend/nftables/store/store.ts isInPlace: before[index] === undefined || before[index] === endpoint → before[index] === undefined && before[index] === endpoint":
    ["performance", "where nothing has to move, every endpoint finds the slot that it has"],
  "lib/backend/nftables/apply/traffic.ts TrafficTotals.take: continue; → dropped (2)": [
    "equivalent",
    "what no Service owns is summed up under no name, and goes with those that are gone",
  ],
  "lib/backend/nftables/store/full_sync.ts ListedRest.rest: this.#listed.chains.get(name) ?? [] → this.#listed.chains.get(name)":
    ["equivalent", "the names are those of the chains that were listed"],
  "lib/backend/nftables/store/full_sync.ts findDrift: ++services % SERVICES_AT_ONCE === 0 → ++services % SERVICES_AT_ONCE !== 0":
    ["performance", "other work is let go first more often"],
  'lib/netfilter/nft_listing.ts splitElements: return list.split(", "); → dropped': [
    "performance",
    "without quotes both ways find the same separators",
  ],
  "lib/netfilter/nft_listing.ts parseElement: colon < 0 → colon <= 0": [
    "equivalent",
    "no element begins with what follows its key",
  ],
  "lib/netfilter/nft_listing.ts parseElement: colon < 0 → colon <= 0 (2)": [
    "equivalent",
    "no element begins with what follows its key",
  ],
  "lib/netfilter/nft_listing.ts parseElement: decoration < 0 → decoration <= 0": [
    "equivalent",
    "no element begins with what follows its key",
  ],
};
