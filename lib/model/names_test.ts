import { assertEquals, assertNotEquals } from "@std/assert";
import {
  compareBytes,
  namespacedName,
  servicePortKey,
  servicePortText,
  splitNamespacedName,
} from "./names.ts";

const pure = { permissions: "none" } as const;

Deno.test(
  "a Service port is written with its name unless it has none, and never with its protocol",
  pure,
  () => {
    const service = namespacedName("shop", "web");
    assertEquals(service, "shop/web");
    assertEquals(servicePortText(service, "http"), "shop/web:http");
    assertEquals(servicePortText(service, ""), "shop/web");
  },
);

Deno.test("ports of one name and different protocols have different keys", pure, () => {
  assertEquals(servicePortKey("kube-system/dns", "dns", "UDP"), "kube-system/dns:dns/UDP");
  assertEquals(servicePortKey("kube-system/dns", "", "SCTP"), "kube-system/dns/SCTP");
  assertNotEquals(servicePortKey("a/b", "p", "TCP"), servicePortKey("a/b", "p", "UDP"));
});

Deno.test("a namespaced name splits at its first slash", pure, () => {
  assertEquals(splitNamespacedName("shop/web"), { namespace: "shop", name: "web" });
  assertEquals(splitNamespacedName("shop/endpoints/web/IPv4"), {
    namespace: "shop",
    name: "endpoints/web/IPv4",
  });
  assertEquals(splitNamespacedName("web"), { namespace: "", name: "web" });
});

Deno.test("texts are ordered by bytes, not as a person would", pure, () => {
  const keys = ["10.0.0.9:80", "[fd00:1:1::1]:80", "10.0.0.10:80", "[fd00:1:1::2]:80", "a", "B"];
  assertEquals(keys.sort(compareBytes), [
    "10.0.0.10:80",
    "10.0.0.9:80",
    "B",
    "[fd00:1:1::1]:80",
    "[fd00:1:1::2]:80",
    "a",
  ]);
  assertEquals(
    ["[fd00:1:1::1]:80", "[fd00:1:1::2]:80", "[fd00:1::1]:80"].sort(compareBytes).at(-1),
    "[fd00:1::1]:80",
  );
  assertEquals(compareBytes("x", "x"), 0);
});
