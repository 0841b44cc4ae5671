/** Rules of Services with source ranges. */
import { assertEquals, assertThrows } from "@std/assert";
import { testServicePort } from "../../../../tests/support/model_objects.ts";
import { serviceChains } from "./chains.ts";
import { elements, EXTERNAL, plan, REMOTE } from "../../../../tests/support/nftables_service_rules.ts";

const NONE = { permissions: "none" } as const;

Deno.test("source ranges: a chain of its own before the translation, with or without endpoints", NONE, () => {
  const port = testServicePort({
    ...EXTERNAL,
    loadBalancerSourceRanges: ["198.18.0.0/15", "192.0.2.7/32", "198.18.0.0/15"],
  });
  for (const endpoints of [[REMOTE], []]) {
    const planned = plan([port], endpoints);
    assertEquals(elements(planned).filter((line) => line.includes("firewall")), [
      `firewall-ips 203.0.113.40 . tcp . 80 : goto ${serviceChains(port).firewall}`,
    ]);
    assertEquals(planned.rules.chains, [{
      name: serviceChains(port).firewall,
      rules: ["ip saddr 198.18.0.0/15 return", "ip saddr 192.0.2.7 return", "drop"],
    }]);
  }
});

Deno.test(
  "a source range with the node in it lets packets back that have the load balancer's address",
  NONE,
  () => {
    const port = testServicePort({
      loadBalancerVIPs: ["203.0.113.40", "203.0.113.41"],
      loadBalancerSourceRanges: ["192.0.2.0/24"],
    });
    assertEquals(plan([port], [REMOTE]).rules.chains[0]?.rules, [
      "ip saddr 192.0.2.0/24 return",
      "ip saddr 203.0.113.40 return",
      "ip saddr 203.0.113.41 return",
      "drop",
    ]);
    assertEquals(plan([port], [REMOTE], { nodeIp: "198.51.100.99" }).rules.chains[0]?.rules.length, 2);
  },
);

Deno.test("source ranges without load-balancer addresses change nothing", NONE, () => {
  const planned = plan([testServicePort({ loadBalancerSourceRanges: ["192.0.2.0/24"] })], [REMOTE]);
  assertEquals([planned.rules.chains, planned.rules.elements.length], [[], 1]);
});

Deno.test("a source range that is no CIDR is refused", NONE, () => {
  const port = testServicePort({ ...EXTERNAL, loadBalancerSourceRanges: ["x"] });
  assertThrows(() => plan([port], []), RangeError, 'must be a CIDR: got "x"');
});
