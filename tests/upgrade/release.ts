/**
 * The node and the cluster that a release was recorded on, and what it left there.
 *
 * @module
 */
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import type { ApiJson } from "../flows/objects.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_OBJECT, type NodeLab } from "../support/node_lab.ts";
import { ServiceTraffic } from "../support/service_traffic.ts";

/** The commit whose program made the data: the last one that others may have. */
export const RELEASE = "6451af7d";
export const RELEASE_MODES = ["iptables", "nftables"] as const;
export type ReleaseMode = (typeof RELEASE_MODES)[number];

/** A Service in every layout that a release may know, beside the one that clients connect to. */
const WORLD = new URL("../recorded/cluster-cidr.objects.json", import.meta.url);
export const RELEASE_ARGS = [
  "--hostname-override=node-a",
  "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
  "--iptables-min-sync-period=0s",
  "--snapshot-max-age=0",
];

/** Where a piece of the data is. */
export function releaseFile(name: ReleaseMode | "snapshot"): string {
  return new URL(`${RELEASE}.${name}`, import.meta.url).pathname;
}

/** The clients of the node, and all that there is in its cluster. */
export async function releaseCluster(lab: NodeLab): Promise<[ServiceTraffic, readonly ApiJson[]]> {
  const traffic = new ServiceTraffic(lab, undefined);
  await traffic.serve();
  const world = JSON.parse(await Deno.readTextFile(WORLD)) as readonly ApiJson[];
  const others = world.filter(({ kind }) => kind !== "Node");
  return [traffic, [NODE_OBJECT, ...traffic.services, ...traffic.slices, ...others]];
}

/** Tools that print a mode's rules, and those that take what they print. */
const TOOLS: Readonly<Record<ReleaseMode, readonly (readonly [save: string, restore: string])[]>> = {
  iptables: [["iptables-save", "iptables-restore"], ["ip6tables-save", "ip6tables-restore"]],
  nftables: [["nft list ruleset", "nft -f -"]],
};
const HEADLINE = "## ";

/** All rules of a node, each tool's below its name. */
export async function savedRules(netns: Netns, mode: ReleaseMode): Promise<string> {
  const texts = TOOLS[mode].map(async ([save]) => `${HEADLINE}${save}\n${await netns.run(save.split(" "))}`);
  return (await Promise.all(texts)).join("");
}

/** Makes the node hold what {@linkcode savedRules} yielded. */
export async function restoreRules(netns: Netns, mode: ReleaseMode, saved: string): Promise<void> {
  for (const [save, restore] of TOOLS[mode]) {
    const [, text] = saved.split(`${HEADLINE}${save}\n`);
    const stdin = text!.split(HEADLINE)[0]!;
    await runOk(systemExec, ["ip", "netns", "exec", netns.name, ...restore.split(" ")], { stdin });
  }
}
