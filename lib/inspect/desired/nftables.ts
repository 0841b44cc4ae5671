/**
 * What one family should hold in nftables mode.
 *
 * @module
 */
import { TABLE_NAME } from "../../backend/nftables/plan/chains.ts";
import { planNftables } from "../../backend/nftables/plan/plan.ts";
import type { NftablesPlan } from "../../backend/nftables/plan/ruleset.ts";
import { configuredNftables, networksOfFamily } from "../../backend/nftables/plan/settings.ts";
import {
  FullSync,
  NO_TABLE,
  renderPlan,
  tableLine,
  tableOf,
} from "../../backend/nftables/store/full_sync.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import { NftTables } from "../../netfilter/nft_tables.ts";
import { type HeldRules, nothingHeld } from "../../sim/held_rules.ts";
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
  const sync = new FullSync(plan, NO_TABLE);
  const table = tableOf(plan.family);
  const kernel = new NftTables();
  const transactions = [sync.base, ...sync.services().map(({ transaction }) => transaction)];
  // To write 100,000 elements as text and read them again takes seconds.
  const elements = transactions.flatMap(({ addedElements }) => addedElements.splice(0));
  const lines = transactions.flatMap((transaction) => transaction.lines(table));
  kernel.run([tableLine(table, ""), ...lines].join("\n"));
  for (const { container, key, value } of elements) {
    kernel.addElement({ family: plan.family, table: TABLE_NAME, container, key, value });
  }
  return { ...nothingHeld(plan.family), nftables: kernel.tables };
}
