/**
 * Flips of mode nftables that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const NFTABLES: Explanations = {
  "lib/backend/nftables/plan/claims.ts ClaimsAfter: compareBytes(name, first) < 0 → compareBytes(name, first) <= 0":
    ["equivalent", "a Service that comes after itself wants the destination in several maps"],
  "lib/backend/nftables/plan/claims.ts ClaimsAfter.winner: return planned; → dropped": [
    "performance",
    "where nobody had anything, nobody else is found",
  ],
  "lib/backend/nftables/plan/claims.ts ClaimsAfter.winner: compareBytes(planned, other) < 0 → compareBytes(planned, other) <= 0":
    ["equivalent", "one of both is planned and the other is not, so they are never the same"],
  "lib/backend/nftables/plan/claims.ts ClaimsAfter.lostBy: return []; → dropped": [
    "performance",
    "where it has all of them, none is found to be lost",
  ],
  "lib/backend/nftables/plan/claims.ts withoutDestinations: return rules; → dropped": [
    "performance",
    "without a lost destination the copy holds the same",
  ],
  "lib/backend/nftables/plan/service_rules.ts PortDraft.#addOwnChains: return; → dropped": [
    "equivalent",
    "a port without names is neither sticky nor has it source ranges",
  ],
  "lib/backend/nftables/plan/slots.ts assignSlots: return wanted; → dropped": [
    "performance",
    "where nothing has to move, every endpoint finds the slot that it has",
  ],
  "lib/backend/nftables/plan/slots.ts isInPlace: before[index] === undefined || before[index] === endpoint → before[index] === undefined && before[index] === endpoint":
    ["performance", "where nothing has to move, every endpoint finds the slot that it has"],
  "lib/backend/nftables/plan/traffic.ts TrafficTotals.take: continue; → dropped (2)": [
    "equivalent",
    "what nobody owns is summed up under no name, and goes with those that are gone",
  ],
  "lib/backend/nftables/diff/canary.ts CanarySampler.#serviceWritten: sentinel === name && !containers.has(container) → sentinel === name || !containers.has(container)":
    ["performance", "one that is forgotten without need is looked for again"],
  "lib/backend/nftables/diff/canary.ts CanarySampler.next: (index + this.#turn) % 2 === 0 → (index + this.#turn) % 2 !== 0":
    [
      "equivalent",
      "each look deletes the elements of half of the Services that are its turn and adds the others; which half changes",
    ],
  "lib/backend/nftables/diff/canary.ts CanarySampler.next: index + this.#turn → index - this.#turn": [
    "equivalent",
    "each look deletes the elements of half of the Services that are its turn and adds the others; which half changes",
  ],
  "lib/backend/nftables/diff/canary.ts CanarySampler.#findSentinels: break; → dropped": [
    "performance",
    "once nothing is wanted, the others are passed over",
  ],
  "lib/backend/nftables/diff/committed.ts hashComment: hashRules([comment]) % 2 ** 32 → hashRules([comment]) * 2 ** 32":
    ["performance", "the text that stands for a comment is longer"],
  "lib/backend/nftables/diff/committed.ts slotsOf: lists.find(({ id }) => id === list.id) ?? lists.find(({ destinations }) => destinations.some(has)) → lists.find(({ destinations }) => destinations.some(has))":
    ["performance", "where none of its destinations stays, all elements are new, in whatever order"],
  "lib/backend/nftables/diff/observe_damage.ts ElementDigest.set: this.#count++ → this.#count--": [
    "equivalent",
    "both sides are counted so, and only whether they are the same matters",
  ],
  "lib/backend/nftables/diff/observe_damage.ts ElementDigest.set: this.#sum + hashRules([key, value]) % DIGESTS → this.#sum - hashRules([key, value]) % DIGESTS":
    ["equivalent", "both sides are counted so, and only whether they are the same matters"],
  "lib/backend/nftables/diff/observe_damage.ts findDamage: ++services → --services": [
    "equivalent",
    "a count below 0 is divisible as often",
  ],
  "lib/backend/nftables/diff/observe_damage.ts findDamage: ++services % SERVICES_AT_ONCE === 0 → ++services % SERVICES_AT_ONCE !== 0":
    ["performance", "others are let go first more often"],
  'lib/backend/nftables/diff/parse.ts splitElements: return list.split(", "); → dropped': [
    "performance",
    "without quotes both ways find the same separators",
  ],
  "lib/backend/nftables/diff/parse.ts parseElement: colon < 0 → colon <= 0": [
    "equivalent",
    "no element begins with what follows its key",
  ],
  "lib/backend/nftables/diff/parse.ts parseElement: colon < 0 → colon <= 0 (2)": [
    "equivalent",
    "no element begins with what follows its key",
  ],
  "lib/backend/nftables/diff/parse.ts parseElement: counter < 0 → counter <= 0": [
    "equivalent",
    "no element begins with what follows its key",
  ],
};
