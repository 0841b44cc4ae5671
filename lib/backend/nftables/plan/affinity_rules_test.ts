/** Rules of Services with session affinity. */
import { assertEquals } from "@std/assert";
import { testServicePort } from "../../../../tests/support/model_objects.ts";
import {
  elements,
  EXTERNAL,
  LOCAL,
  plan,
  REMOTE,
  sharedElements,
} from "../../../../tests/support/nftables_service_rules.ts";

const NONE = { permissions: "none" } as const;

Deno.test("affinity: clients first, then the choice, and each endpoint remembers", NONE, () => {
  const planned = plan([testServicePort({ stickyMaxAgeSeconds: 600 })], [LOCAL, REMOTE]);
  const [first, second, service] = planned.rules.chains;
  const sets = planned.rules.affinitySets;
  assertEquals(planned.rules.chains.length, 3);
  assertEquals(sets.map(({ timeoutSeconds }) => timeoutSeconds), [600, 600]);
  assertEquals(first?.rules, [
    `update @${sets[0]?.name} { ip saddr }`,
    "meta l4proto tcp dnat to 10.244.0.11:8080",
  ]);
  assertEquals(service?.rules, [
    `ip saddr @${sets[0]?.name} goto ${first?.name}`,
    `ip saddr @${sets[1]?.name} goto ${second?.name}`,
    `numgen random mod 2 vmap { 0 : goto ${first?.name}, 1 : goto ${second?.name} }`,
  ]);
  assertEquals(elements(planned), [`service-ips 10.96.0.10 . tcp . 80 : goto ${service?.name}`]);
  assertEquals([planned.rules.lists, [...planned.shared.byName]], [[], []]);
  assertEquals(sharedElements(planned).length, 2);
});

Deno.test("affinity without endpoints needs no chains", NONE, () => {
  const planned = plan([testServicePort({ stickyMaxAgeSeconds: 600 })], []);
  assertEquals([planned.rules.chains, planned.rules.affinitySets], [[], []]);
  assertEquals(elements(planned), ["no-endpoint-services 10.96.0.10 . tcp . 80 : goto reject-chain"]);
});

Deno.test(
  "affinity under policies Local: chains for both lists, one for what comes from outside",
  NONE,
  () => {
    const port = testServicePort({
      ...EXTERNAL,
      stickyMaxAgeSeconds: 10,
      externalPolicyLocal: true,
      internalPolicyLocal: true,
    });
    const planned = plan([port], [LOCAL, REMOTE]);
    const chains = planned.rules.chains.map(({ name, rules }) => ({ kind: name.split("-")[0], name, rules }));
    assertEquals(chains.map(({ kind }) => kind), ["endpoint", "endpoint", "service", "local", "external"]);
    const [, , service, local, external] = chains;
    assertEquals([service?.rules.length, local?.rules.length], [3, 2]);
    assertEquals(external?.rules.map((rule) => rule.replace(/ comment .*/, "")), [
      `ip saddr 10.244.0.0/16 goto ${service?.name}`,
      "fib saddr type local meta mark set meta mark | 0x00004000",
      `fib saddr type local goto ${service?.name}`,
      `goto ${local?.name}`,
    ]);
    assertEquals(elements(planned), [
      `service-ips 10.96.0.10 . tcp . 80 : goto ${local?.name}`,
      `service-ips 198.51.100.7 . tcp . 80 : goto ${external?.name}`,
      `service-ips 203.0.113.40 . tcp . 80 : goto ${external?.name}`,
      `service-nodeports tcp . 30080 : goto ${external?.name}`,
    ]);
  },
);

Deno.test("affinity under policy Cluster from outside", NONE, () => {
  const planned = plan([testServicePort({ nodePort: 30080, stickyMaxAgeSeconds: 10 })], [REMOTE]);
  const [, service, external] = planned.rules.chains;
  assertEquals(external?.rules, [
    'meta mark set meta mark | 0x00004000 comment "masquerade"',
    `goto ${service?.name}`,
  ]);
});

Deno.test("affinity under policy Local without own endpoints", NONE, () => {
  const port = testServicePort({ nodePort: 30080, stickyMaxAgeSeconds: 10, externalPolicyLocal: true });
  const planned = plan([port], [REMOTE]);
  assertEquals(planned.rules.chains.map(({ name }) => name.split("-")[0]), [
    "endpoint",
    "service",
    "external",
  ]);
  assertEquals(planned.rules.chains.at(-1)?.rules.length, 3);
  assertEquals(elements(planned).filter((line) => line.includes("nodeports")), [
    "no-endpoint-nodeports tcp . 30080 : drop",
    `service-nodeports tcp . 30080 : goto ${planned.rules.chains.at(-1)?.name}`,
  ]);
});
