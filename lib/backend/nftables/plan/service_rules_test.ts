/** What each kind of Service wants, told in short forms; whole texts are in tests/golden. */
import { assertEquals } from "@std/assert";
import { testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import {
  chain,
  elements,
  EXTERNAL,
  lists,
  LOCAL,
  NOT_READY,
  OTHER,
  plan,
  REMOTE,
  sharedElements,
} from "../../../../tests/support/nftables_service_rules.ts";

const NONE = { permissions: "none" } as const;

Deno.test("a plain Service is elements only", NONE, () => {
  const planned = plan([testServicePort()], [LOCAL, REMOTE]);
  assertEquals(elements(planned), ["service-ips 10.96.0.10 . tcp . 80 : goto tcp-2"]);
  assertEquals(planned.rules.elements.map(({ comment }) => comment), ["shop/web"]);
  assertEquals(lists(planned), ["endpoints-tcp 10.96.0.10 . 80 : 10.244.0.11 . 8080, 10.244.1.12 . 8080"]);
  assertEquals(sharedElements(planned), [
    "cluster-ips 10.96.0.10",
    "hairpin-connections 10.244.0.11 . 10.244.0.11 . tcp . 8080",
  ]);
  assertEquals([planned.rules.chains, planned.rules.affinitySets], [[], []]);
  assertEquals([...planned.shared.byName.values()], [{
    name: "tcp-2",
    rules: ["dnat ip to ip daddr . tcp dport . numgen random mod 2 map @endpoints-tcp"],
  }]);
});

Deno.test("protocols have maps and chains of their own", NONE, () => {
  const planned = plan([
    testServicePort({ key: "a/TCP" }),
    testServicePort({ key: "a/UDP", protocol: "UDP" }),
    testServicePort({ key: "a/SCTP", protocol: "SCTP" }),
  ], [REMOTE]);
  assertEquals(elements(planned), [
    "service-ips 10.96.0.10 . tcp . 80 : goto tcp-1",
    "service-ips 10.96.0.10 . udp . 80 : goto udp-1",
    "service-ips 10.96.0.10 . sctp . 80 : goto sctp-1",
  ]);
  assertEquals(lists(planned), [
    "endpoints-tcp 10.96.0.10 . 80 : 10.244.1.12 . 8080",
    "endpoints-udp 10.96.0.10 . 80 : 10.244.1.12 . 8080",
    "endpoints-sctp 10.96.0.10 . 80 : 10.244.1.12 . 8080",
  ]);
  assertEquals(chain(planned, "sctp-1"), [
    "dnat ip to ip daddr . sctp dport . numgen random mod 1 map @endpoints-sctp",
  ]);
});

Deno.test("external traffic under policy Cluster is masqueraded", NONE, () => {
  const planned = plan([testServicePort(EXTERNAL)], [REMOTE]);
  assertEquals(elements(planned), [
    "service-ips 10.96.0.10 . tcp . 80 : goto tcp-1",
    "service-ips 198.51.100.7 . tcp . 80 : goto masq-tcp-1",
    "service-ips 203.0.113.40 . tcp . 80 : goto masq-tcp-1",
    "service-nodeports tcp . 30080 : goto nodeport-masq-tcp-1",
  ]);
  assertEquals(lists(planned), [
    "endpoints-tcp 10.96.0.10 . 80 : 10.244.1.12 . 8080",
    "endpoints-tcp 198.51.100.7 . 80 : 10.244.1.12 . 8080",
    "endpoints-tcp 203.0.113.40 . 80 : 10.244.1.12 . 8080",
    "nodeport-endpoints-tcp 30080 : 10.244.1.12 . 8080",
  ]);
  assertEquals(chain(planned, "masq-tcp-1"), [
    'meta mark set meta mark | 0x00004000 comment "masquerade"',
    "goto tcp-1",
  ]);
  assertEquals(chain(planned, "nodeport-masq-tcp-1")?.at(-1), "goto nodeport-tcp-1");
  assertEquals(chain(planned, "nodeport-tcp-1"), [
    "dnat ip to tcp dport . numgen random mod 1 map @nodeport-endpoints-tcp",
  ]);
});

Deno.test(
  "external traffic under policy Local: own endpoints for the world, any for pods and the node",
  NONE,
  () => {
    const planned = plan([testServicePort({ ...EXTERNAL, externalPolicyLocal: true })], [
      LOCAL,
      REMOTE,
      OTHER,
    ]);
    assertEquals(elements(planned), [
      "service-ips 10.96.0.10 . tcp . 80 : goto tcp-3",
      "service-ips 198.51.100.7 . tcp . 80 : goto external-tcp-3-1",
      "service-ips 203.0.113.40 . tcp . 80 : goto external-tcp-3-1",
      "service-nodeports tcp . 30080 : goto nodeport-external-tcp-3-1",
    ]);
    assertEquals(lists(planned).filter((line) => line.startsWith("local-")), [
      "local-endpoints-tcp 198.51.100.7 . 80 : 10.244.0.11 . 8080",
      "local-endpoints-tcp 203.0.113.40 . 80 : 10.244.0.11 . 8080",
      "local-nodeport-endpoints-tcp 30080 : 10.244.0.11 . 8080",
    ]);
    assertEquals(lists(planned).length, 7);
    assertEquals(chain(planned, "external-tcp-3-1"), [
      'ip saddr 10.244.0.0/16 goto tcp-3 comment "short-circuit pod traffic"',
      'fib saddr type local meta mark set meta mark | 0x00004000 comment "masquerade local traffic"',
      'fib saddr type local goto tcp-3 comment "short-circuit local traffic"',
      "goto local-tcp-1",
    ]);
    assertEquals(chain(planned, "nodeport-external-tcp-3-1")?.at(-1), "goto nodeport-local-tcp-1");
    assertEquals(chain(planned, "nodeport-local-tcp-1"), [
      "dnat ip to tcp dport . numgen random mod 1 map @local-nodeport-endpoints-tcp",
    ]);
  },
);

Deno.test("without a detector pods are not distinguished from the world", NONE, () => {
  const port = testServicePort({ ...EXTERNAL, externalPolicyLocal: true });
  const planned = plan([port], [LOCAL, REMOTE], { detector: { kind: "none" } });
  assertEquals(chain(planned, "external-tcp-2-1")?.length, 3);
  assertEquals(chain(planned, "external-tcp-2-1")?.[0]?.startsWith("fib saddr type local meta mark"), true);
});

Deno.test("policy Local without own endpoints drops what comes from the world", NONE, () => {
  const planned = plan([testServicePort({ ...EXTERNAL, externalPolicyLocal: true })], [REMOTE]);
  assertEquals(elements(planned), [
    "service-ips 10.96.0.10 . tcp . 80 : goto tcp-1",
    "no-endpoint-services 198.51.100.7 . tcp . 80 : drop",
    "service-ips 198.51.100.7 . tcp . 80 : goto external-tcp-1-0",
    "no-endpoint-services 203.0.113.40 . tcp . 80 : drop",
    "service-ips 203.0.113.40 . tcp . 80 : goto external-tcp-1-0",
    "no-endpoint-nodeports tcp . 30080 : drop",
    "service-nodeports tcp . 30080 : goto nodeport-external-tcp-1-0",
  ]);
  assertEquals(
    chain(planned, "external-tcp-1-0")?.at(-1)?.startsWith("fib saddr type local goto tcp-1"),
    true,
  );
  assertEquals(lists(planned).filter((line) => line.startsWith("local-")), []);
});

Deno.test("internal policy Local: own endpoints, or nothing", NONE, () => {
  const port = testServicePort({ internalPolicyLocal: true });
  const served = plan([port], [LOCAL, REMOTE]);
  assertEquals(elements(served), ["service-ips 10.96.0.10 . tcp . 80 : goto local-tcp-1"]);
  assertEquals(lists(served), ["local-endpoints-tcp 10.96.0.10 . 80 : 10.244.0.11 . 8080"]);
  assertEquals(chain(served, "local-tcp-1"), [
    "dnat ip to ip daddr . tcp dport . numgen random mod 1 map @local-endpoints-tcp",
  ]);
  assertEquals(elements(plan([port], [REMOTE])), ["no-endpoint-services 10.96.0.10 . tcp . 80 : drop"]);
  // The external side does not care.
  assertEquals(elements(plan([testServicePort({ internalPolicyLocal: true, nodePort: 30080 })], [REMOTE])), [
    "no-endpoint-services 10.96.0.10 . tcp . 80 : drop",
    "service-nodeports tcp . 30080 : goto nodeport-masq-tcp-1",
  ]);
});

Deno.test("without any endpoint everything is refused", NONE, () => {
  for (const endpoints of [[], [NOT_READY]]) {
    const planned = plan([testServicePort(EXTERNAL)], endpoints);
    assertEquals(elements(planned), [
      "no-endpoint-services 10.96.0.10 . tcp . 80 : goto reject-chain",
      "no-endpoint-services 198.51.100.7 . tcp . 80 : goto reject-chain",
      "no-endpoint-services 203.0.113.40 . tcp . 80 : goto reject-chain",
      "no-endpoint-nodeports tcp . 30080 : goto reject-chain",
    ]);
    assertEquals(lists(planned), []);
    assertEquals(sharedElements(planned), ["cluster-ips 10.96.0.10"]);
    assertEquals([...planned.shared.byName.keys()], []);
  }
});

Deno.test("IPv6", NONE, () => {
  const endpoint = testEndpoint("fd00:10:244::91", { key: "[fd00:10:244::91]:8080", isLocal: true });
  const port = { clusterIP: "fd00:10:96::9", nodePort: 30080 };
  const planned = plan([testServicePort(port)], [endpoint], {}, "IPv6");
  assertEquals(lists(planned), [
    "endpoints-tcp fd00:10:96::9 . 80 : fd00:10:244::91 . 8080",
    "nodeport-endpoints-tcp 30080 : fd00:10:244::91 . 8080",
  ]);
  assertEquals(chain(planned, "tcp-1"), [
    "dnat ip6 to ip6 daddr . tcp dport . numgen random mod 1 map @endpoints-tcp",
  ]);
  assertEquals(chain(planned, "nodeport-tcp-1"), [
    "dnat ip6 to tcp dport . numgen random mod 1 map @nodeport-endpoints-tcp",
  ]);
  const sticky = plan([testServicePort({ ...port, stickyMaxAgeSeconds: 5 })], [endpoint], {}, "IPv6");
  assertEquals(sticky.rules.chains[0]?.rules, [
    `update @${sticky.rules.affinitySets[0]?.name} { ip6 saddr }`,
    "meta l4proto tcp dnat to [fd00:10:244::91]:8080",
  ]);
});

Deno.test("an address that is external IP and load-balancer IP at once is one destination", NONE, () => {
  const port = testServicePort({
    externalIPs: ["203.0.113.9", "203.0.113.9"],
    loadBalancerVIPs: ["203.0.113.9"],
    loadBalancerSourceRanges: ["198.18.0.0/15"],
  });
  const planned = plan([port], [REMOTE]);
  assertEquals(elements(planned).map((line) => line.split(" ")[0]), [
    "service-ips",
    "firewall-ips",
    "service-ips",
  ]);
  assertEquals(lists(planned).length, 2);
});

Deno.test(
  "of two ports of one Service with the same number, and of its own IPs, the first has it",
  NONE,
  () => {
    const planned = plan([
      testServicePort({
        key: "shop/web:a/TCP",
        text: "shop/web:a",
        externalIPs: ["10.96.0.10"],
        nodePort: 30080,
      }),
      testServicePort({ key: "shop/web:b/TCP", text: "shop/web:b", nodePort: 30080 }),
    ], [REMOTE]);
    assertEquals(elements(planned), [
      "service-ips 10.96.0.10 . tcp . 80 : goto tcp-1",
      "service-nodeports tcp . 30080 : goto nodeport-masq-tcp-1",
    ]);
    assertEquals(planned.rules.elements.map(({ comment }) => comment), ["shop/web:a", "shop/web:a"]);
    assertEquals(planned.rules.lists.length, 1);
  },
);

Deno.test("counters: one for each destination and way, with or without endpoints", NONE, () => {
  for (const endpoints of [[REMOTE], []]) {
    const planned = plan([testServicePort({ nodePort: 30080 })], endpoints, { trafficCounters: true });
    assertEquals(elements(planned).filter((line) => line.includes("traffic")), [
      "service-traffic-in 10.96.0.10 . tcp . 80 : ",
      "service-traffic-out 10.96.0.10 . tcp . 80 : ",
      "nodeport-traffic-in tcp . 30080 : ",
      "nodeport-traffic-out tcp . 30080 : ",
    ]);
  }
  assertEquals(elements(plan([testServicePort()], [REMOTE], { trafficCounters: false })).length, 1);
});

Deno.test("more endpoints than numgen counts are left out", NONE, () => {
  const many = Array.from(
    { length: 65537 },
    (_, index) => testEndpoint(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`),
  );
  const planned = plan([testServicePort()], many);
  assertEquals(planned.rules.lists[0]?.endpoints.length, 65536);
  assertEquals([...planned.shared.byName.keys()], ["tcp-65536"]);
});
