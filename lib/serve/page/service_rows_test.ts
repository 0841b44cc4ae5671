import { assertEquals, assertLess } from "@std/assert";
import { clusterObjects, HOSTILE, shopObjects } from "../../../tests/support/page_objects.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../../tests/support/model_objects.ts";
import { ChangeTracker } from "../../model/change_tracker.ts";
import type { ApiObject, IpFamily } from "../../model/objects.ts";
import type { ProxyState } from "../../model/state.ts";
import { rowPieces, serviceNames, serviceRow } from "./service_rows.ts";

const PURE = { permissions: "none" } as const;

function statesOf(objects: readonly ApiObject[]): readonly ProxyState[] {
  return (["IPv4", "IPv6"] as const).map((family: IpFamily) => {
    const tracker = new ChangeTracker({ family, node: { name: "worker-3", zone: "" } });
    for (const object of objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
    return tracker.checkout().state;
  });
}

Deno.test(
  "a row tells by what a Service is reached, how many endpoints are in use, and what is wrong",
  PURE,
  () => {
    const states = statesOf(shopObjects());
    const quarantined = new Map([["shop/cart", HOSTILE]]);
    const row = (name: string): unknown => serviceRow(name, { states, quarantined });
    assertEquals(row("shop/web"), [
      "shop/web",
      "load balancer",
      ["10.96.14.20", "fd00:96::1420", "203.0.113.40"],
      "http 80/TCP :30080",
      4,
      4,
      "",
    ]);
    assertEquals(row("kube-system/kube-dns"), [
      "kube-system/kube-dns",
      "cluster IP",
      ["10.96.0.10"],
      "dns 53/UDP, dns-tcp 53/TCP, metrics 9153/TCP",
      2,
      2,
      "",
    ]);
    const short = (name: string): unknown[] => (row(name) as unknown[]).slice(4);
    assertEquals(short("shop/checkout"), [2, 4, ""]);
    assertEquals(short("shop/inventory"), [0, 2, "no usable endpoints"]);
    assertEquals(short("shop/recommendations"), [0, 0, "no endpoints"]);
    assertEquals(short("shop/cart"), [24, 24, "refused by the kernel"]);
    // Of the ports and families that differ, those without endpoints are named.
    const web = (families: readonly ("IPv4" | "IPv6")[], ...names: readonly string[]): unknown[] => {
      const objects = [
        testService({
          clusterIP: "10.96.0.9",
          clusterIPs: ["10.96.0.9", "fd00:96::9"],
          ipFamilies: ["IPv4", "IPv6"],
          ports: [testPort({ name: "http" }), testPort({ name: "metrics", port: 9090 })],
        }),
        ...families.map((addressType) =>
          testSlice({
            name: addressType,
            addressType,
            ports: names.map((name) => testSlicePort({ name })),
            endpoints: [testSliceEndpoint(addressType === "IPv4" ? "10.244.0.1" : "fd00:244::1")],
          })
        ),
      ];
      return (serviceRow("shop/web", { states: statesOf(objects), quarantined: new Map() }) ?? []).slice(4);
    };
    assertEquals(web(["IPv4", "IPv6"], "http", "metrics"), [1, 1, ""]);
    assertEquals(web(["IPv4"], "http", "metrics"), [1, 1, "IPv6: no endpoints"]);
    assertEquals(web(["IPv4", "IPv6"], "http"), [1, 1, "metrics 9090/TCP: no endpoints"]);
    assertEquals(web([], "http"), [0, 0, "no endpoints"]);
    assertEquals(row("shop/none"), null);
    assertEquals(serviceNames(states).length, 10);
  },
);

Deno.test("thousands of rows are one document, made in small pieces", PURE, () => {
  const states = statesOf(clusterObjects(3_000));
  const facts = { states, quarantined: new Map() };
  const names = [...serviceNames(states), "gone/meanwhile"];
  const pieces = [...rowPieces(names, facts, { kind: "ServiceRows" })];
  for (const piece of pieces) assertLess(piece.length, 17 * 1024);
  const { rows, ...head } = JSON.parse(
    new TextDecoder().decode(new Uint8Array(pieces.flatMap((one) => [...one]))),
  );
  assertEquals([head, rows.length], [{ kind: "ServiceRows" }, 3_000]);
  const [empty] = rowPieces([], { states: [], quarantined: new Map() }, { kind: "ServiceRows" });
  assertEquals(JSON.parse(new TextDecoder().decode(empty)), { kind: "ServiceRows", rows: [] });
});
