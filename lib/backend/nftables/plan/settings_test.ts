import { assertEquals } from "@std/assert";
import { applyDefaults } from "../../../config/defaults.ts";
import type { FieldValue } from "../../../config/setting.ts";
import { testNode } from "../../../../tests/support/model_objects.ts";
import { configuredNftables, networksOfFamily } from "./plan.ts";

const NODE = testNode({ addresses: [{ type: "InternalIP", address: "192.0.2.10" }] });

function configured(values: Record<string, FieldValue> = {}): ReturnType<typeof configuredNftables> {
  return configuredNftables(applyDefaults(new Map(Object.entries(values))), "IPv4", NODE);
}

Deno.test("defaults of nftables mode", { permissions: "none" }, () => {
  const { options, problem } = configured();
  assertEquals([options.masqueradeMark, options.masqueradeAll, options.nodeIp], [
    0x4000,
    false,
    "192.0.2.10",
  ]);
  assertEquals([options.detector.kind, problem?.kind], ["none", "unset"]);
});

Deno.test("node ports are served on the primary address, also when the mode was chosen from auto", {
  permissions: "none",
}, () => {
  for (const mode of ["nftables", "auto"]) {
    const { nodePortAddresses } = configured({ mode }).options;
    assertEquals(nodePortAddresses.cidrs.map(({ text }) => text), ["192.0.2.10/32"], mode);
  }
  const { nodePortAddresses } = configured({ nodePortAddresses: ["198.51.100.0/24"] }).options;
  assertEquals(nodePortAddresses.cidrs.map(({ text }) => text), ["198.51.100.0/24"]);
});

Deno.test("mark and masqueradeAll are those of the nftables section", { permissions: "none" }, () => {
  const { options } = configured({
    "nftables.masqueradeBit": 3,
    "nftables.masqueradeAll": true,
    "iptables.masqueradeBit": 5,
    clusterCIDR: "10.244.0.0/16",
  });
  assertEquals([options.masqueradeMark, options.masqueradeAll], [8, true]);
  assertEquals(options.detector, { kind: "cidr", cidr: "10.244.0.0/16" });
});

Deno.test("networks are told apart by family, and single addresses written as nft prints them", {
  permissions: "none",
}, () => {
  const networks = ["10.96.0.0/16", "10.97.0.1/32", "fd00:10:96::/112", "fd00::1/128"];
  assertEquals(networksOfFamily(networks, "IPv4"), ["10.96.0.0/16", "10.97.0.1"]);
  assertEquals(networksOfFamily(networks, "IPv6"), ["fd00:10:96::/112", "fd00::1"]);
});
