/**
 * What one family should hold in nftables mode.
 *
 * @module
 */
import { planNftables } from "../../backend/nftables/plan/plan.ts";
import type { NftablesPlan } from "../../backend/nftables/plan/ruleset.ts";
import { configuredNftables, networksOfFamily } from "../../backend/nftables/plan/settings.ts";
import { FullSync, NO_TABLE, tableOf } from "../../backend/nftables/store/full_sync.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import { OpenContainer, OpenTable } from "../../netfilter/nft_listing.ts";
import { emptySnapshot, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "./desired.ts";

/** The plan of all Services of one family. */
export function nftablesPlan(input: DesiredInput, family: IpFamily): NftablesPlan {
  const { config, node, serviceCidrs } = input;
  const options = warned(configuredNftables(config, family, node), input, family);
  return planNftables(stateOf(input, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, hostAddresses(input, options.nodeIp)),
    serviceCidrs: networksOfFamily(serviceCidrs, family),
    objectComments: true,
  });
}

/** What an empty kernel holds after a sync of the plan. */
export function nftablesRules(plan: NftablesPlan): RulesetSnapshot {
  const sync = new FullSync(plan, NO_TABLE);
  const table = new OpenTable(tableOf(plan.family));
  for (const transaction of [sync.base, ...sync.services().map((one) => one.transaction)]) {
    for (const { name, kind, spec, timeoutSeconds } of transaction.containers) {
      const container = new OpenContainer(kind);
      for (const part of spec.split(";")) container.define(part.trim());
      container.timeoutSeconds = timeoutSeconds;
      table.containers.set(name, container);
    }
    for (const { name, hook, rules } of [...transaction.chains, ...transaction.baseChains]) {
      table.chains.set(name, { name, ...(hook === undefined ? {} : { hook }), rules: [...rules] });
    }
    for (const { container, key, value } of transaction.addedElements) {
      table.containers.get(container)?.elements.set(key, value);
    }
  }
  return { ...emptySnapshot(plan.family), nftables: [table] };
}
