/**
 * The recorded worlds: their objects, the configuration that kube-proxy ran with, and what the node's programs printed then.
 *
 * @module
 */
import { KproxyProcess } from "../support/kproxy_process.ts";
import { inComparableOrder, tablesIn } from "../support/lab_rules.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import type { Netns } from "../support/netns.ts";

/** All worlds. */
export const WORLDS = ["cluster-cidr", "masquerade-all", "node-cidr-ports", "bridge-no-localhost"] as const;
export type World = (typeof WORLDS)[number];
export type RecordedMode = "iptables" | "ipvs";

/** The node's own addresses, on `eth0`. */
export const NODE_ADDRESSES = ["10.200.0.1/24", "fd00:10:200::1/64"] as const;

function recordedFile(name: string): Promise<string> {
  return Deno.readTextFile(new URL(name, import.meta.url));
}

/** Section → its lines without blank ones, as kube-proxy left them: `iptables`, `ip6tables`, in mode ipvs also `ipvs`, `ipset`, `addresses`. */
export function loadRecorded(
  world: World,
  mode: RecordedMode,
): Promise<ReadonlyMap<string, readonly string[]>> {
  return recordedSections(`${world}.${mode}.kube-proxy-1.36.2.txt`);
}

/** Section → its lines without blank ones. */
export async function recordedSections(name: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const text = await recordedFile(name);
  const sections = text.split(/^## /m).slice(1).map((section): [string, readonly string[]] => {
    const [name = "", ...lines] = section.split("\n");
    return [name, lines.filter((line) => line !== "")];
  });
  return new Map(sections);
}

/** Table → its lines of `iptables-save` without counters and comments, as {@linkcode inComparableOrder} puts them. */
export function comparableTables(
  lines: readonly string[],
  mode: RecordedMode,
): Record<string, readonly string[]> {
  return Object.fromEntries(
    tablesIn(lines.join("\n")).map(([name, [, ...rest]]) => [name, inComparableOrder(rest, mode)]),
  );
}

/** Runs `work` while kproxy serves the world on `netns`, whose `eth0` has {@linkcode NODE_ADDRESSES}. */
export async function withWorld(
  world: World,
  mode: RecordedMode,
  netns: Netns,
  work: () => Promise<void>,
): Promise<void> {
  await using manifests = await LabManifests.create();
  const objects = await recordedFile(`${world}.objects.json`);
  await manifests.replace("objects.json", JSON.parse(objects));
  const config = await Deno.makeTempFile({ prefix: `kproxy-recorded-${Deno.pid}-`, suffix: ".json" });
  try {
    await Deno.writeTextFile(config, await recordedFile(`${world}.${mode}.config.json`));
    await using _kproxy = await KproxyProcess.start({
      netns,
      args: [`--config=${config}`, `--manifests=${manifests.folder}`],
    });
    await work();
  } finally {
    await Deno.remove(config);
  }
}
