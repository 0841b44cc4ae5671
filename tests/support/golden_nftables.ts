/**
 * The golden cases in nftables mode: the table that each case's objects must yield, as text that nft loads.
 *
 * A case has `nftables-ip.nft` and/or `nftables-ip6.nft` beside its other files.
 *
 * @module
 */
import { planNftables } from "../../lib/backend/nftables/plan/plan.ts";
import type { NftablesOptions, NftablesPlan } from "../../lib/backend/nftables/plan/ruleset.ts";
import { FullSync, NO_TABLE } from "../../lib/backend/nftables/store/full_sync.ts";
import type { NftStore } from "../../lib/backend/nftables/store/store.ts";
import { nodePortAddresses } from "../../lib/model/node.ts";
import type { ApiObject, IpFamily } from "../../lib/model/objects.ts";
import { exampleState } from "./golden.ts";

const FOLDER = new URL("../golden/", import.meta.url);
const FILES: Readonly<Record<IpFamily, string>> = { IPv4: "nftables-ip.nft", IPv6: "nftables-ip6.nft" };
const NODE_IPS = {
  primaryFamily: "IPv4",
  IPv4: "192.0.2.10",
  IPv6: "2001:db8::10",
  primaryIsLoopback: false,
  areMissing: false,
} as const;

/** Settings of the captures; IPv6 has the same as IPv4. */
export function exampleNftablesOptions(
  family: IpFamily,
  changes: Partial<NftablesOptions> = {},
): NftablesOptions {
  return {
    family,
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "cidr", cidr: family === "IPv4" ? "10.244.0.0/16" : "fd00:10:244::/56" },
    nodePortAddresses: nodePortAddresses(family, ["primary"], NODE_IPS),
    nodePortIps: [NODE_IPS[family]],
    nodeIp: NODE_IPS[family],
    serviceCidrs: [family === "IPv4" ? "10.96.0.0/16" : "fd00:10:96::/112"],
    objectComments: true,
    ...changes,
  };
}

/** Plan of all Services with the example settings. */
export function exampleNftablesPlan(
  family: IpFamily,
  objects: readonly ApiObject[],
  changes: Partial<NftablesOptions> = {},
): NftablesPlan {
  return planNftables(exampleState(family, objects), "all", exampleNftablesOptions(family, changes));
}

/** Kernel state after a full sync of these objects in IPv4. */
export function exampleStore(objects: readonly ApiObject[]): NftStore {
  return syncedStore(exampleNftablesPlan("IPv4", objects));
}

/** Kernel state after a full sync of a plan. */
export function syncedStore(plan: NftablesPlan): NftStore {
  const sync = new FullSync(plan, NO_TABLE);
  for (const _ of sync.services());
  return sync.store;
}

/** Expected text of each family that a case covers. */
export function loadGoldenNftables(name: string): Partial<Readonly<Record<IpFamily, string>>> {
  const expected: Partial<Record<IpFamily, string>> = {};
  for (const family of ["IPv4", "IPv6"] as const) {
    try {
      expected[family] = Deno.readTextFileSync(new URL(`${name}/${FILES[family]}`, FOLDER));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  return expected;
}
