/** What whole texts do not show; those are in tests/golden, tests/recorded and tests/flows. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseIp } from "../../../model/ip.ts";
import { testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import { formatProbability, planService, type ServiceRulesContext } from "./service_rules.ts";

const REMOTE = testEndpoint("10.244.1.1");
const CONTEXT: ServiceRulesContext = {
  node: { name: "node-a", zone: "" },
  masqueradeAll: false,
  detector: { kind: "cidr", cidr: "10.244.0.0/16" },
  nodeIp: parseIp("192.0.2.10"),
  large: false,
  countsLocalhostNodePorts: false,
};

Deno.test("a draining local endpoint: cluster's endpoints first, then it", { permissions: "none" }, () => {
  const draining = testEndpoint("10.244.0.1", { isLocal: true, ready: false, terminating: true });
  const port = testServicePort({ nodePort: 30080, externalPolicyLocal: true });
  const { chains, rules } = planService([port], new Map([[port.key, [draining, REMOTE]]]), CONTEXT);
  assertEquals(
    chains.map((chain) => chain.slice(0, 8)),
    ["EXT", "SVC", "SVL", "SEP", "SEP"].map((kind) => `KUBE-${kind}`),
  );
  const endpoints = rules.flatMap((rule) => / --to-destination (.*):/.exec(rule)?.[1] ?? []);
  assertEquals(endpoints, ["10.244.1.1", "10.244.0.1"]);
});

Deno.test("an IPv6 endpoint is written in brackets where a port follows", { permissions: "none" }, () => {
  const endpoint = testEndpoint("fd00::1", { key: "[fd00::1]:8080" });
  const port = testServicePort({ clusterIP: "fd00:96::1" });
  const { rules } = planService([port], new Map([[port.key, [endpoint]]]), CONTEXT);
  assert(rules.some((rule) => rule.endsWith("-s fd00::1 -j KUBE-MARK-MASQ")));
  assert(rules.some((rule) => rule.endsWith("--to-destination [fd00::1]:8080")));
});

Deno.test("a source range that is none is refused, by name", { permissions: "none" }, () => {
  const port = testServicePort({
    loadBalancerVIPs: ["203.0.113.1"],
    loadBalancerSourceRanges: ["everywhere"],
  });
  assertThrows(
    () => planService([port], new Map([[port.key, [REMOTE]]]), CONTEXT),
    RangeError,
    `Service port "shop/web" must be a CIDR: got "everywhere"`,
  );
});

for (
  const [count, text] of [
    [2, "0.5000000000"],
    [3, "0.3333333333"],
    [4, "0.2500000000"],
    [5, "0.2000000000"],
    [6, "0.1666666667"],
    [7, "0.1428571429"],
    [8, "0.1250000000"],
    [9, "0.1111111111"],
    [10, "0.1000000000"],
    [2047, "0.0004885198"],
    [2048, "0.0004882812"],
    [2049, "0.0004880429"],
  ] as const
) {
  Deno.test(`probability of one in ${count}`, { permissions: "none" }, () => {
    assertEquals(formatProbability(count), text);
  });
}
