import { assertEquals, assertThrows } from "@std/assert";
import type { NodeObject } from "../model/objects.ts";
import { nodePortListenAddresses } from "./service_health_addresses.ts";

const PURE = { permissions: "none" } as const;
const INTERFACE_IPS = ["127.0.0.1", "10.0.0.5", "192.0.2.7", "::1", "fd00::5", "fe80::1%eth0"];
const NODE: NodeObject = {
  kind: "Node",
  name: "node-a",
  labels: {},
  podCIDRs: [],
  addresses: [{ type: "InternalIP", address: "10.0.0.5" }, { type: "InternalIP", address: "fd00::5" }],
  taintKeys: [],
  deleting: false,
};

Deno.test("health check ports are opened where node ports are", PURE, () => {
  const cases: [configured: string[] | null, IPv4: "all" | string[], IPv6: "all" | string[]][] = [
    [null, "all", "all"],
    [[], "all", "all"],
    [["0.0.0.0/0", "::/0"], "all", "all"],
    [["10.0.0.0/8"], ["10.0.0.5"], "all"],
    [["10.0.0.0/8", "fd00::/8"], ["10.0.0.5"], ["fd00::5"]],
    [["0.0.0.0/0", "fd00::/8"], "all", ["fd00::5"]],
    [["primary"], ["10.0.0.5"], ["fd00::5"]],
    [["192.0.2.0/24", "10.0.0.0/8"], ["10.0.0.5", "192.0.2.7"], "all"],
    [["203.0.113.0/24"], [], "all"],
    [["fe80::/10"], "all", []],
  ];
  for (const [configured, ipv4, ipv6] of cases) {
    const config = { nodePortAddresses: configured, bindAddress: "0.0.0.0" };
    assertEquals(nodePortListenAddresses("IPv4", config, NODE, INTERFACE_IPS), ipv4, `IPv4 ${configured}`);
    assertEquals(nodePortListenAddresses("IPv6", config, NODE, INTERFACE_IPS), ipv6, `IPv6 ${configured}`);
  }
});

Deno.test("an entry that is no network is an error", PURE, () => {
  const config = { nodePortAddresses: ["nonsense"], bindAddress: "0.0.0.0" };
  assertThrows(() => nodePortListenAddresses("IPv4", config, NODE, []), SyntaxError, "nonsense");
});
