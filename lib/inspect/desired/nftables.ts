/**
 * What one family should hold in nftables mode.
 *
 * @module
 */
import { diffObserved, NO_TABLE } from "../../backend/nftables/diff/diff_observed.ts";
import { renderOperations, renderPlan } from "../../backend/nftables/diff/render.ts";
import { FAMILY_WORDS, TABLE_NAME } from "../../backend/nftables/plan/chains.ts";
import { planNftables } from "../../backend/nftables/plan/plan.ts";
import type { NftablesPlan } from "../../backend/nftables/plan/ruleset.ts";
import { configuredNftables, networksOfFamily } from "../../backend/nftables/plan/settings.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import { NftTables } from "../../netfilter/nft_tables.ts";
import { type HeldRules, nothingHeld } from "../../sim/node/held_rules.ts";
import { type DesiredInput, stateOf } from "./desired.ts";
import { ownAddresses } from "./own_addresses.ts";

/** The plan of all Services of one family. */
export function nftablesPlan(input: DesiredInput, family: IpFamily): NftablesPlan {
  const { config, node, serviceCidrs, warn } = input;
  const { options, problem } = configuredNftables(config, family, node);
  if (problem?.kind === "wrongFamily") warn(`${family}: ${problem.message}`);
  return planNftables(stateOf(input, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, ownAddresses(input, options.nodeIp)),
    serviceCidrs: networksOfFamily(serviceCidrs, family),
    objectComments: true,
  });
}

/** Text for `nft -f -` that makes the table where there is none. */
export function nftablesText(plan: NftablesPlan): string {
  return renderPlan(plan);
}

/** What an empty kernel holds after a sync of the plan. */
export function nftablesRules(plan: NftablesPlan): HeldRules {
  const { operations } = diffObserved(plan, NO_TABLE);
  const { base, services } = operations;
  const bare = {
    ...operations,
    base: { ...base, addedElements: [] },
    services: services.map((one) => ({ ...one, addedElements: [] })),
  };
  const { ip } = FAMILY_WORDS[plan.family];
  const kernel = new NftTables();
  kernel.run(`add table ${ip} ${TABLE_NAME}\n${renderOperations(bare, plan.family)}`);
  // To write 100,000 elements as text and read them again takes seconds.
  for (const { addedElements } of [base, ...services]) {
    for (const { container, key, value } of addedElements) {
      kernel.addElement({ family: plan.family, table: TABLE_NAME, container, key, value });
    }
  }
  return { ...nothingHeld(plan.family), nftables: kernel.tables };
}
