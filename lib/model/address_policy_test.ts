import { assert, assertEquals, assertFalse } from "@std/assert";
import { testService } from "../../tests/support/model_objects.ts";
import { AddressPolicy, EVERY_ADDRESS, type ExternalIpPolicy, type PolicyField } from "./address_policy.ts";
import { ChangeTracker, type ChangeTrackerOptions } from "./change_tracker.ts";
import { eachUnserved } from "./destination_claims.ts";
import { parseIp } from "./ip.ts";

const pure = { permissions: "none" } as const;
const NODE = ["192.0.2.10", "fd00:192::10", "node-a.example"];
const OWN = "it is the node's own address, and kproxy.externalIPPolicy.nodeAddresses is not true";

function refusal(policy: Partial<ExternalIpPolicy>, text: string, field: PolicyField): string | null {
  const judge = new AddressPolicy({ ...EVERY_ADDRESS, ...policy });
  judge.setNodeAddresses(NODE);
  const ip = parseIp(text);
  assert(ip !== null);
  return judge.refusal(ip, field);
}

Deno.test("an address is judged by the networks of its field, and by being the node's own", pure, () => {
  const some = ["203.0.113.0/24", "192.0.2.0/24", "2001:db8::/32"];
  const notIn = (field: PolicyField): string => `it is not in kproxy.externalIPPolicy.${field}`;
  const table: readonly [Partial<ExternalIpPolicy>, string, PolicyField, string | null][] = [
    [{}, "8.8.8.8", "externalIPs", null],
    [{}, "192.0.2.10", "loadBalancerIPs", null],
    [{}, "127.0.0.1", "externalIPs", "it is a loopback address"],
    [{ externalIPs: [] }, "8.8.8.8", "externalIPs", notIn("externalIPs")],
    [{ externalIPs: [] }, "8.8.8.8", "loadBalancerIPs", null],
    [{ externalIPs: [] }, "192.0.2.10", "loadBalancerIPs", OWN],
    [{ externalIPs: [], nodeAddresses: true }, "192.0.2.10", "loadBalancerIPs", null],
    [{ externalIPs: [], nodeAddresses: true }, "192.0.2.10", "externalIPs", notIn("externalIPs")],
    [{ externalIPs: some }, "203.0.113.255", "externalIPs", null],
    [{ externalIPs: some }, "203.0.114.0", "externalIPs", notIn("externalIPs")],
    [{ externalIPs: some }, "2001:db8:1::1", "externalIPs", null],
    [{ externalIPs: some }, "2001:db9::1", "externalIPs", notIn("externalIPs")],
    [{ externalIPs: some }, "192.0.2.10", "externalIPs", OWN],
    // One address, however it is written.
    [{ externalIPs: ["::/0"] }, "FD00:192:0::10", "externalIPs", OWN],
    [{ externalIPs: ["0.0.0.0/0"] }, "::ffff:192.0.2.10", "externalIPs", OWN],
    // Not the node's own address, though in its network.
    [{ externalIPs: some }, "192.0.2.11", "externalIPs", null],
    [{ loadBalancerIPs: some }, "198.51.100.1", "loadBalancerIPs", notIn("loadBalancerIPs")],
    [{ loadBalancerIPs: some }, "198.51.100.1", "externalIPs", null],
    [{ nodeAddresses: false }, "8.8.8.8", "externalIPs", null],
    [{ nodeAddresses: false }, "192.0.2.10", "externalIPs", OWN],
    [{ nodeAddresses: false }, "192.0.2.10", "loadBalancerIPs", OWN],
    [{ externalIPs: ["0.0.0.0/0"] }, "224.0.0.1", "externalIPs", "it is a multicast address"],
  ];
  for (const [policy, ip, field, expected] of table) {
    assertEquals(refusal(policy, ip, field), expected, JSON.stringify([policy, ip, field]));
  }
});

/** A tracker, and its reports so far: `-` for a destination not served, `+` for one served again. */
function guarded(
  policy: Partial<ExternalIpPolicy> = { nodeAddresses: false },
  more: Partial<ChangeTrackerOptions> = {},
) {
  const told: string[] = [];
  const tracker = new ChangeTracker({
    family: "IPv4",
    node: { name: "node-a", zone: "" },
    externalIPPolicy: { ...EVERY_ADDRESS, ...policy },
    onUnserved: ({ service, destination }) => told.push(`- ${service} ${destination}`),
    onResolved: ({ service, destination }) => told.push(`+ ${service} ${destination}`),
    ...more,
  });
  const externalIPs = (name = "shop/web"): readonly string[] | undefined =>
    tracker.checkout().state.services.get(name)?.[0]?.externalIPs;
  return { tracker, told, externalIPs };
}

const EVIL = testService({ externalIPs: ["192.0.2.10", "198.51.100.9"] });

Deno.test("Services are judged anew when the node's own addresses become known, or are others", pure, () => {
  const { tracker, told, externalIPs } = guarded();
  tracker.updateService(undefined, EVIL);
  assertEquals(externalIPs(), ["192.0.2.10", "198.51.100.9"]);
  assert(tracker.setNodeAddresses(["192.0.2.10", "fd00::1"]));
  const { updatedServices, state } = tracker.checkout();
  assertEquals([...updatedServices], ["shop/web"]);
  assertEquals(state.services.get("shop/web")?.[0]?.externalIPs, ["198.51.100.9"]);
  assertEquals(told, ["- shop/web external IP 192.0.2.10"]);
  assertFalse(tracker.setNodeAddresses(["fd00::1", "192.0.2.10"]), "the same ones in another order");
  assert(tracker.setNodeAddresses(["198.51.100.9"]));
  assertEquals(externalIPs(), ["192.0.2.10"]);
  assertEquals(told.slice(1), [
    "- shop/web external IP 198.51.100.9",
    "+ shop/web external IP 192.0.2.10",
  ]);
  assertEquals([...eachUnserved(tracker.unserved())].map(({ destination }) => destination), [
    "external IP 198.51.100.9",
  ]);
});

Deno.test(
  "only Services that are there now, as they are now, are judged by the node's new addresses",
  pure,
  () => {
    const { tracker, told } = guarded();
    const gone = testService({ name: "gone", externalIPs: ["192.0.2.10"] });
    const plain = testService({ name: "plain", clusterIP: "10.96.0.12" });
    const cleaned = testService({ name: "cleaned", clusterIP: "10.96.0.13", externalIPs: ["192.0.2.10"] });
    for (const service of [gone, plain, cleaned]) tracker.updateService(undefined, service);
    tracker.updateService(gone, undefined);
    tracker.updateService(cleaned, { ...cleaned, externalIPs: [] });
    tracker.checkout();
    assertFalse(tracker.setNodeAddresses(["192.0.2.10"]));
    assertEquals(told, []);
    assertEquals([...tracker.checkout().updatedServices], []);
  },
);

Deno.test(
  "a Service whose addresses are refused may take them once it is changed, and tells no longer",
  pure,
  () => {
    const { tracker, told, externalIPs } = guarded({ externalIPs: ["203.0.113.0/24"] });
    tracker.updateService(undefined, EVIL);
    assertEquals(externalIPs(), []);
    tracker.updateService(EVIL, testService({ externalIPs: ["203.0.113.7"] }));
    assertEquals(externalIPs(), ["203.0.113.7"]);
    assertEquals(told, [
      "- shop/web external IP 192.0.2.10",
      "- shop/web external IP 198.51.100.9",
      "+ shop/web external IP 192.0.2.10",
      "+ shop/web external IP 198.51.100.9",
    ]);
    assertEquals([...tracker.unserved()], []);
  },
);

Deno.test("an address that the policy refuses is free for a Service that may have it", pure, () => {
  const { tracker } = guarded({ externalIPs: [] });
  const first = testService({ externalIPs: ["203.0.113.7"], createdAtSeconds: 1 });
  const balanced = testService({
    name: "lb",
    clusterIP: "10.96.0.12",
    type: "LoadBalancer",
    createdAtSeconds: 2,
    loadBalancerIngress: [{ ip: "203.0.113.7", ipMode: "VIP" }],
  });
  for (const service of [first, balanced]) tracker.updateService(undefined, service);
  const { services } = tracker.checkout().state;
  assertEquals(services.get("shop/web")?.[0]?.externalIPs, []);
  assertEquals(services.get("shop/lb")?.[0]?.loadBalancerVIPs, ["203.0.113.7"]);
});

Deno.test("a Service with very many addresses is reported in a few lines", pure, () => {
  const { tracker, told } = guarded({ externalIPs: [] });
  const many = Array.from({ length: 2_000 }, (_, index) => `100.64.${index >> 8}.${index & 255}`);
  tracker.updateService(undefined, testService({ externalIPs: many }));
  assertEquals(told.length, 11);
  assertEquals(told.at(-1), "- shop/web 1990 more destinations");
});
