import { assertEquals, assertThrows } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import { exampleNftablesOptions } from "../../../../tests/support/golden_nftables.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { planNftables } from "./plan.ts";

const NONE = { permissions: "none" } as const;
const OPTIONS = exampleNftablesOptions("IPv4");

Deno.test("at a start the API server comes first, then DNS, then the others by name", NONE, () => {
  const service = (namespace: string, name: string, port: number) =>
    testService({ namespace, name, clusterIP: `10.96.0.${name.length}`, ports: [testPort({ port })] });
  const state = exampleState("IPv4", [
    service("zoo", "zebra", 80),
    service("kube-system", "kube-dns", 53),
    service("default", "kubernetes", 443),
    service("apps", "bind", 53),
    service("apps", "ant", 80),
  ]);
  assertEquals([...planNftables(state, "all", OPTIONS).services.keys()], [
    "default/kubernetes",
    "apps/bind",
    "kube-system/kube-dns",
    "apps/ant",
    "zoo/zebra",
  ]);
});

Deno.test("only what changed is planned, by name; what is gone is gone", NONE, () => {
  const state = exampleState("IPv4", [
    testService({ name: "a", clusterIP: "10.96.0.1" }),
    testService({ name: "b", clusterIP: "10.96.0.2" }),
    testService({ name: "c", clusterIP: "10.96.0.3" }),
    testSlice({ name: "a-1", serviceName: "a", endpoints: [testSliceEndpoint("10.244.1.1")] }),
  ]);
  const changed = new Set(["shop/x", "shop/b", "shop/a"]);
  const plan = planNftables(state, changed, OPTIONS);
  assertEquals(plan.all, false);
  assertEquals([...plan.services].map(([name, rules]) => [name, rules === null]), [
    ["shop/a", false],
    ["shop/b", false],
    ["shop/x", true],
  ]);
  assertEquals([...plan.sharedChains.keys()], ["tcp-1"]);
});

Deno.test("state and options must be of one family", NONE, () => {
  assertThrows(
    () => planNftables(exampleState("IPv6", []), "all", OPTIONS),
    RangeError,
    "got IPv6 and IPv4",
  );
});

Deno.test("destinations are counted if that is wanted", NONE, () => {
  const state = exampleState("IPv4", [testService({ name: "a" })]);
  for (const changes of [{}, { trafficCounters: false }, { trafficCounters: true }]) {
    const plan = planNftables(state, "all", { ...OPTIONS, ...changes });
    const counted = plan.services.get("shop/a")?.elements.filter(({ container }) =>
      container.includes("traffic")
    );
    assertEquals(counted?.length, changes.trafficCounters === true ? 2 : 0);
    assertEquals(plan.base.containers.length, changes.trafficCounters === true ? 25 : 21);
  }
});
