import { assertEquals, assertThrows } from "@std/assert";
import { defaultConfig } from "../../../config/defaults.ts";
import { nodePortAddresses } from "../../../model/node.ts";
import { testNode } from "../../../../tests/support/model_objects.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { configuredIpvs, hostIps, nodePortIps } from "./plan.ts";

const pure = { permissions: "none" } as const;

function address(device: string, text: string): DeviceAddress {
  return {
    device,
    family: text.includes(":") ? "IPv6" : "IPv4",
    address: text,
    prefixLength: 24,
    scope: "global",
  };
}

const DEVICES = [
  ["lo", "127.0.0.1"],
  ["lo", "::1"],
  ["lo", "192.0.2.77"],
  ["eth0", "192.0.2.10"],
  ["eth0", "fd00:192::10"],
  ["eth0", "fe80::1"],
  ["cni0", "10.244.0.1"],
  ["eth1", "192.0.2.10"],
  ["kube-ipvs0", "10.96.0.10"],
  ["kube-ipvs0", "fd00:10:96::9"],
].map(([device = "", text = ""]) => address(device, text));

Deno.test("the node's own addresses: no loopback, no link-local IPv6, not ours, each once", pure, () => {
  assertEquals(hostIps("IPv4", DEVICES), ["10.244.0.1", "192.0.2.10", "192.0.2.77"]);
  assertEquals(hostIps("IPv6", DEVICES), ["fd00:192::10"]);
});

Deno.test("node ports are served on all own addresses, or on those in the networks given", pure, () => {
  const own = hostIps("IPv4", DEVICES);
  const servedOn = (cidrs: readonly string[] | null) => nodePortIps(nodePortAddresses("IPv4", cidrs), own);
  assertEquals(servedOn(null), own);
  assertEquals(servedOn(["192.0.2.0/28", "127.0.0.0/8"]), ["192.0.2.10"]);
  assertEquals(servedOn(["198.51.100.0/24"]), []);
});

Deno.test(
  "options from the configuration: the iptables section masquerades, rr schedules by default",
  pure,
  () => {
    const config = defaultConfig();
    const configured = (changes: Partial<typeof config>) =>
      configuredIpvs({ ...config, ...changes }, "IPv4", testNode({ podCIDRs: ["10.244.0.0/24"] })).options;
    const plain = configured({});
    assertEquals([plain.scheduler, plain.masqueradeMark, plain.masqueradeAll], ["rr", 0x4000, false]);
    assertEquals(plain.excludeCIDRs, []);
    const changed = configured({
      iptables: { ...config.iptables, masqueradeBit: 3, masqueradeAll: true },
      ipvs: { ...config.ipvs, scheduler: "lc", excludeCIDRs: ["10.0.0.0/8", "fd00::/8"] },
      detectLocalMode: "NodeCIDR",
    });
    assertEquals([changed.scheduler, changed.masqueradeMark, changed.masqueradeAll], ["lc", 8, true]);
    assertEquals(changed.excludeCIDRs.map(({ text }) => text), ["10.0.0.0/8"]);
    assertEquals(changed.detector, { kind: "cidr", cidr: "10.244.0.0/24" });
    assertThrows(
      () => configured({ ipvs: { ...config.ipvs, excludeCIDRs: ["10.0.0.0"] } }),
      SyntaxError,
      "CIDR",
    );
  },
);
