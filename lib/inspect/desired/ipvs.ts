/**
 * What one family should hold in IPVS mode.
 *
 * @module
 */
import { planTexts, renderPlan } from "../../backend/ipvs/store/render.ts";
import { planIpvs } from "../../backend/ipvs/plan/plan.ts";
import { DEVICE, type IpvsOptions, type IpvsPlan } from "../../backend/ipvs/plan/ruleset.ts";
import { configuredIpvs, nodePortIps } from "../../backend/ipvs/plan/settings.ts";
import type { IpFamily } from "../../model/objects.ts";
import { parseSets } from "../../netfilter/ipset.ts";
import { parseIpvsTable } from "../../netfilter/ipvs.ts";
import { builtinRules, kernelTables } from "../../sim/held_rules.ts";
import type { HeldRules } from "../../sim/held_rules.ts";
import { type DesiredInput, stateOf } from "./desired.ts";
import { ownHostIps } from "./own_addresses.ts";

/** The settings and facts of the node that the plan of one family is made by. */
export function ipvsOptions(input: DesiredInput, family: IpFamily): IpvsOptions {
  const { config, node, warn } = input;
  const { options, problem } = configuredIpvs(config, family, node);
  if (problem?.kind === "wrongFamily") warn(`${family}: ${problem.message}`);
  const hostIps = ownHostIps(input, family, options.nodeIp);
  return {
    ...options,
    hostIps,
    nodePortIps: nodePortIps(options.nodePortAddresses, hostIps),
    randomFully: true,
    // The machine this runs on says nothing about the node's kernel.
    schedulers: [],
  };
}

/** The plan of all Services of one family. */
export function ipvsPlan(
  input: DesiredInput,
  family: IpFamily,
  options: IpvsOptions = ipvsOptions(input, family),
): IpvsPlan {
  return planIpvs(stateOf(input, family), "all", options);
}

/** The texts of all programs, each under the program that reads it. */
export function ipvsText(plan: IpvsPlan): string {
  return renderPlan(plan);
}

/** What an empty kernel holds after a sync of the plan. */
export function ipvsRules(plan: IpvsPlan): HeldRules {
  const texts = planTexts(plan);
  const added = new RegExp(`^address add (\\S+)/\\d+ dev ${DEVICE}$`, "gm");
  const bound = Array.from(texts.ip.matchAll(added), ([, address = ""]) => address);
  return {
    family: plan.base.family,
    iptables: [{ variant: "", tables: kernelTables(texts.iptables, builtinRules(plan.base.jumps)) }],
    nftables: [],
    sets: parseSets(texts.ipset),
    ipvs: { servers: parseIpvsTable(texts.ipvsadm), bound },
  };
}
