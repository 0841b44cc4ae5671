/**
 * What one family should hold in IPVS mode.
 *
 * @module
 */
import { planTexts } from "../../backend/ipvs/store/render.ts";
import { planIpvs } from "../../backend/ipvs/plan/plan.ts";
import { DEVICE, type IpvsOptions, type IpvsPlan } from "../../backend/ipvs/plan/ruleset.ts";
import { configuredIpvs, hostIps, nodePortIps } from "../../backend/ipvs/plan/settings.ts";
import { isLoopback, parseIp } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import { parseSets } from "../../netfilter/ipset.ts";
import { parseIpvsTable } from "../../netfilter/ipvs.ts";
import { builtinRules, kernelTables, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "./desired.ts";

/** The settings and facts of the node that the plan of one family is made by. */
export function ipvsOptions(input: DesiredInput, family: IpFamily): IpvsOptions {
  const { config, node } = input;
  const options = warned(configuredIpvs(config, family, node), input, family);
  const own = ownHostIps(input, family, options.nodeIp);
  return {
    ...options,
    hostIps: own,
    nodePortIps: nodePortIps(options.nodePortAddresses, own),
    randomFully: true,
    // The machine this runs on says nothing about the node's kernel.
    schedulers: [],
  };
}

/** The addresses that mode ipvs takes for the node's own, sorted. */
function ownHostIps(input: DesiredInput, family: IpFamily, nodeIp: string): readonly string[] {
  const { addresses } = input.machine;
  if (addresses !== null) return hostIps(family, addresses);
  const own = hostAddresses(input, nodeIp).map(parseIp)
    .filter((ip) => ip?.family === family && !isLoopback(ip)).map((ip) => ip?.text ?? "");
  return [...new Set(own)].sort();
}

/** The plan of all Services of one family. */
export function ipvsPlan(
  input: DesiredInput,
  family: IpFamily,
  options: IpvsOptions = ipvsOptions(input, family),
): IpvsPlan {
  return planIpvs(stateOf(input, family), "all", options);
}

/** What an empty kernel holds after a sync of the plan. */
export function ipvsRules(plan: IpvsPlan): RulesetSnapshot {
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
