import { assertEquals } from "@std/assert";
import type { IpFamily } from "../model/objects.ts";
import { defaultConfig } from "./defaults.ts";
import { checkFamilies } from "./families.ts";
import type { KubeProxyConfiguration } from "./types.ts";

const BOTH: readonly IpFamily[] = ["IPv4", "IPv6"];
const OPEN = { nodePortAddresses: ["primary"] };

const CASES: readonly [
  name: string,
  changes: Partial<KubeProxyConfiguration>,
  families: readonly IpFamily[],
  problems: readonly string[],
  warnings: readonly string[],
][] = [
  ["the default, wide open", {}, BOTH, [], ["nodePortAddresses"]],
  ["an empty list is as none", { nodePortAddresses: [] }, BOTH, [], ["nodePortAddresses"]],
  ["a word stands for both families", OPEN, BOTH, [], []],
  ["node ports of one family only", { nodePortAddresses: ["10.0.0.0/8"] }, BOTH, [], ["nodePortAddresses"]],
  ["of the only family", { nodePortAddresses: ["10.0.0.0/8"] }, ["IPv4"], [], []],
  ["both families", { clusterCIDR: "10.244.0.0/16,fd00::/56", ...OPEN }, BOTH, [], []],
  ["the primary one is enough", { clusterCIDR: "10.244.0.0/16", ...OPEN }, BOTH, [], []],
  ["of two families, one has a network", { clusterCIDR: "fd00::/56", ...OPEN }, BOTH, [], []],
  ["without the only one", { clusterCIDR: "fd00::/56", ...OPEN }, ["IPv4"], ["clusterCIDR"], []],
  [
    "without the only one, which is not used",
    { clusterCIDR: "fd00::/56", detectLocalMode: "NodeCIDR", ...OPEN },
    ["IPv4"],
    [],
    ["clusterCIDR"],
  ],
  ["servers elsewhere", { healthzBindAddress: "[fd00::1]:10256", ...OPEN }, ["IPv4"], [], [
    "healthzBindAddress",
  ]],
  ["servers everywhere", { healthzBindAddress: "[::]:10256", ...OPEN }, ["IPv4"], [], []],
  ["servers of one of two families", { metricsBindAddress: "[::1]:10249", ...OPEN }, BOTH, [], []],
];

for (const [name, changes, families, problems, warnings] of CASES) {
  Deno.test(`IP families of a configuration: ${name}`, { permissions: "none" }, () => {
    const found = checkFamilies({ ...defaultConfig(), ...changes }, families);
    assertEquals(found.problems.map(({ path }) => path), problems);
    assertEquals(found.warnings.map(({ path }) => path), warnings);
  });
}
