import { assert, assertEquals } from "@std/assert";
import { testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import {
  elementComment,
  endpointMapName,
  endpointNames,
  hashedName,
  isAffinitySet,
  isServiceChain,
  serviceChains,
} from "./chains.ts";

const NONE = { permissions: "none" } as const;

for (
  const [text, name] of [
    ["ns1/svc1/tcp/p80", "ULMVA6XW-ns1/svc1/tcp/p80"],
    ["ns1/svc1/tcp/p80__10.180.0.1/80", "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"],
    ["shop/web/tcp/http", "KHN6ECMT-shop/web/tcp/http"],
    ["shop/cart/tcp/", "IJTWSMUZ-shop/cart/tcp/"],
    ["shop/web6/tcp/http__fd00.10.244..91/8080", "ZRTBVZAC-shop/web6/tcp/http__fd00.10.244..91/8080"],
  ] as const
) {
  Deno.test(`hashed name of ${text}`, NONE, () => assertEquals(hashedName(text), name));
}

Deno.test("chains of a ServicePort, and of an endpoint of it", NONE, () => {
  const web = testServicePort({ namespacedName: "shop/web", text: "shop/web:http", portName: "http" });
  assertEquals(serviceChains(web), {
    cluster: "service-KHN6ECMT-shop/web/tcp/http",
    local: "local-KHN6ECMT-shop/web/tcp/http",
    external: "external-KHN6ECMT-shop/web/tcp/http",
    firewall: "firewall-KHN6ECMT-shop/web/tcp/http",
  });
  const cart = testServicePort({ namespacedName: "shop/cart", portName: "" });
  assertEquals(endpointNames(cart, testEndpoint("10.244.0.21", { port: 6379 })), {
    chain: "endpoint-BNZJJVPA-shop/cart/tcp/__10.244.0.21/6379",
    affinitySet: "affinity-BNZJJVPA-shop/cart/tcp/__10.244.0.21/6379",
  });
  const web6 = testServicePort({ namespacedName: "shop/web6", portName: "http" });
  assertEquals(
    endpointNames(web6, testEndpoint("fd00:10:244::91")).chain,
    "endpoint-ZRTBVZAC-shop/web6/tcp/http__fd00.10.244..91/8080",
  );
});

Deno.test("port number, node port and addresses do not enter the names; the protocol does", NONE, () => {
  const moved = testServicePort({ clusterIP: "10.96.0.99", port: 81, nodePort: 30000 });
  assertEquals(serviceChains(moved), serviceChains(testServicePort()));
  assert(serviceChains(testServicePort({ protocol: "UDP" })).cluster !== serviceChains(moved).cluster);
});

Deno.test("names stay below what nft takes, and apart from each other", NONE, () => {
  assertEquals(hashedName("x".repeat(231)).length, 240);
  assert(!hashedName("x".repeat(231)).endsWith("..."));
  const long = hashedName("x".repeat(232));
  assertEquals([long.length, long.slice(-4)], [240, "x..."]);
  assert(long !== hashedName("x".repeat(233)));
  const odd = testServicePort({ namespacedName: "n".repeat(200), portName: "p".repeat(200) });
  const names = endpointNames(odd, testEndpoint("fd00::1"));
  for (const name of [names.chain, names.affinitySet]) assert(name.length <= 255, name);
});

Deno.test("what nft would not read does not get into names", NONE, () => {
  const name = hashedName('a b{"c\nd;é/x_y.z-1');
  assertEquals(name.slice(9), "a_b__c_d__/x_y.z-1");
  assert(name !== hashedName("a_b__c_d__/x_y.z-1"));
});

Deno.test("maps of endpoints", NONE, () => {
  const names = [false, true].flatMap((local) =>
    [false, true].map((nodePort) => endpointMapName({ protocol: "udp", nodePort, local }))
  );
  assertEquals(names, [
    "endpoints-udp",
    "nodeport-endpoints-udp",
    "local-endpoints-udp",
    "local-nodeport-endpoints-udp",
  ]);
});

Deno.test("chains of Services and sets of clients are known by name", NONE, () => {
  const { cluster } = serviceChains(testServicePort());
  const { affinitySet } = endpointNames(testServicePort(), testEndpoint("10.0.0.1"));
  assert(isServiceChain(cluster) && isAffinitySet(affinitySet));
  for (const name of ["tcp-3", "external-tcp-3-1", "services"]) assert(!isServiceChain(name), name);
  assert(!isAffinitySet("cluster-ips"));
});

for (
  const [what, text, comment] of [
    ["short", "shop/web:http", "shop/web:http"],
    ["of 128 bytes", "x".repeat(128), "x".repeat(128)],
    ["of 129 bytes", "x".repeat(129), "x".repeat(128)],
    ["of 191 bytes", "x".repeat(191), "x".repeat(128)],
    ["cut at a whole character", "x".repeat(126) + "éé", "x".repeat(126) + "é"],
    ["cut before a character", "x".repeat(127) + "éé", "x".repeat(127)],
    ["cut before one of four bytes", "x".repeat(126) + "😀", "x".repeat(126)],
    ["with what would end it", 'a"b\\c\nd', "a?b?c?d"],
  ] as const
) {
  Deno.test(`comment ${what}`, NONE, () => assertEquals(elementComment(text), comment));
}
