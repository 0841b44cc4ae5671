import { assertEquals } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import type { EndpointSlice } from "../../model/objects.ts";
import { testSlice, testSliceEndpoint } from "../../../tests/support/model_objects.ts";
import { decodeEndpoints, EndpointsMerger } from "./v1_endpoints.ts";
import type { SourceEvent } from "../source.ts";

function rawEndpoints(subsets: unknown): unknown {
  return { apiVersion: "v1", kind: "Endpoints", metadata: { namespace: "shop", name: "web" }, subsets };
}

function pure(name: string, fn: () => void): void {
  Deno.test(name, { permissions: "none" }, fn);
}

/** `name family port,port ip+ ip-`: + is ready, - is not. */
function summary(slices: readonly EndpointSlice[]): string[] {
  return slices.map(({ name, addressType, ports, endpoints }) =>
    [
      name,
      addressType,
      ports.map(({ name, port, protocol }) => `${name}:${port}/${protocol}`).join(),
      ...endpoints.map(({ address, ready, serving, terminating }) =>
        `${address}${ready ? "+" : "-"}${serving ? "s" : ""}${terminating ? "t" : ""}`
      ),
    ].join(" ")
  );
}

pure("Endpoints split into families; addresses are ready and serving, notReadyAddresses neither", () => {
  const slices = decodeEndpoints(rawEndpoints([{
    addresses: [{ ip: "10.0.0.1", nodeName: "node-a" }, { ip: "fd00::1" }],
    notReadyAddresses: [{ ip: "10.0.0.2" }],
    ports: [{ name: "http", port: 8080 }, { name: "dns", port: 53, protocol: "UDP" }],
  }]));
  assertEquals(summary(slices), [
    "endpoints/web/IPv4 IPv4 http:8080/TCP,dns:53/UDP 10.0.0.1+s 10.0.0.2-",
    "endpoints/web/IPv6 IPv6 http:8080/TCP,dns:53/UDP fd00::1+s",
  ]);
  assertEquals(slices.map(({ namespace, serviceName }) => `${namespace}/${serviceName}`), [
    "shop/web",
    "shop/web",
  ]);
  assertEquals(slices[0]?.endpoints.map(({ nodeName }) => nodeName), ["node-a", ""]);
});

pure("subsets with different ports become slices of their own, each named once", () => {
  const slices = decodeEndpoints(rawEndpoints([
    { addresses: [{ ip: "fd00::1" }], ports: [{ port: 80 }] },
    { addresses: [{ ip: "10.0.0.1" }], ports: [{ port: 81 }] },
    { addresses: [{ ip: "10.0.0.2" }, { ip: "fd00::2" }], ports: [{ port: 82 }] },
    { addresses: [], ports: [{ port: 83 }] },
  ]));
  assertEquals(summary(slices), [
    "endpoints/web/IPv4 IPv4 :81/TCP 10.0.0.1+s",
    "endpoints/web/IPv4/2 IPv4 :82/TCP 10.0.0.2+s",
    "endpoints/web/IPv6 IPv6 :80/TCP fd00::1+s",
    "endpoints/web/IPv6/2 IPv6 :82/TCP fd00::2+s",
  ]);
});

pure("Endpoints without subsets are no slices", () => {
  for (const subsets of [undefined, null, []]) assertEquals(decodeEndpoints(rawEndpoints(subsets)), []);
});

function slice(name: string, serviceName = "web", addressType = "IPv4", ip = "10.0.0.1"): EndpointSlice {
  return testSlice({ name, addressType, serviceName, ports: [], endpoints: [testSliceEndpoint(ip)] });
}

function said(events: readonly SourceEvent[]): string[] {
  return events.map((event) => {
    if (event.type === "synced") return "synced";
    const object = event.type === "delete" ? event.old : event.object;
    return `${event.type} ${object.name}`;
  });
}

const OLDER = [slice("endpoints/web/IPv4"), slice("endpoints/web/IPv6", "web", "IPv6")];

pure("the first slice hides the Endpoints and the last one uncovers them, additions first", () => {
  const merger = new EndpointsMerger();
  assertEquals(said(merger.endpoints("shop/web", OLDER)), [
    "add endpoints/web/IPv4",
    "add endpoints/web/IPv6",
  ]);
  const first = slice("web-1");
  assertEquals(said(merger.slice(undefined, first)), [
    "add web-1",
    "delete endpoints/web/IPv4",
    "delete endpoints/web/IPv6",
  ]);
  const second = slice("web-2");
  assertEquals(said(merger.slice(undefined, second)), ["add web-2"]);
  const changed = slice("web-1", "web", "IPv4", "10.0.0.2");
  assertEquals(said(merger.slice(first, changed)), ["update web-1"]);
  assertEquals(said(merger.endpoints("shop/web", OLDER.slice(0, 1))), []);
  assertEquals(said(merger.slice(changed, undefined)), ["delete web-1"]);
  assertEquals(said(merger.slice(second, undefined)), ["add endpoints/web/IPv4", "delete web-2"]);
  assertEquals(said(merger.endpoints("shop/web", [])), ["delete endpoints/web/IPv4"]);
});

pure("what cannot carry traffic hides nothing", () => {
  const merger = new EndpointsMerger();
  merger.endpoints("shop/web", OLDER);
  assertEquals(said(merger.slice(undefined, slice("names", "web", "FQDN"))), ["add names"]);
  assertEquals(said(merger.slice(undefined, slice("other", "shop"))), ["add other"]);
  assertEquals(said(merger.slice(undefined, slice("nobody", ""))), ["add nobody"]);
});

pure("a slice that goes over to another Service is updated, and uncovers the Endpoints it hid", () => {
  const merger = new EndpointsMerger();
  const before = slice("web-1");
  merger.slice(undefined, before);
  merger.endpoints("shop/web", OLDER.slice(0, 1));
  merger.endpoints("shop/api", [slice("endpoints/api/IPv4", "api")]);
  assertEquals(said(merger.slice(before, slice("web-1", "api"))), [
    "update web-1",
    "delete endpoints/api/IPv4",
    "add endpoints/web/IPv4",
  ]);
});

pure("whatever happens, replaying the events gives the rule's outcome", () => {
  const step = fc.oneof(
    fc.record({ name: fc.constantFrom("s1", "s2"), service: fc.constantFrom("web", "api", undefined) }),
    fc.record({ endpoints: fc.constantFrom("web", "api"), count: fc.nat(2) }),
  );
  fc.assert(fc.property(fc.array(step), (steps) => {
    const merger = new EndpointsMerger();
    const slices = new Map<string, EndpointSlice>();
    const older = new Map<string, EndpointSlice[]>();
    const seen = new Map<string, EndpointSlice>();
    for (const step of steps) {
      let events: SourceEvent[];
      if ("name" in step) {
        const old = slices.get(step.name);
        const current = step.service === undefined ? undefined : slice(step.name, step.service);
        events = merger.slice(old, current);
        if (current === undefined) slices.delete(step.name);
        else slices.set(step.name, current);
      } else {
        const current = ["IPv4", "IPv6"].slice(0, step.count).map((family) =>
          slice(`endpoints/${step.endpoints}/${family}`, step.endpoints, family)
        );
        events = merger.endpoints(`shop/${step.endpoints}`, current);
        older.set(step.endpoints, current);
      }
      for (const event of events) replay(seen, event);
      const wanted = [
        ...slices.values(),
        ...[...older].flatMap(([service, list]) => {
          const covered = [...slices.values()].some(({ serviceName }) => serviceName === service);
          return covered ? [] : list;
        }),
      ];
      const byName = (one: EndpointSlice, other: EndpointSlice): number => one.name < other.name ? -1 : 1;
      assertEquals([...seen.values()].sort(byName), wanted.sort(byName));
    }
  }));
});

function replay(seen: Map<string, EndpointSlice>, event: SourceEvent): void {
  if (event.type === "synced") return;
  const object = (event.type === "delete" ? event.old : event.object) as EndpointSlice;
  assertEquals(seen.has(object.name), event.type !== "add", `${event.type} ${object.name}`);
  if (event.type === "update") assertEquals<unknown>(seen.get(object.name), event.old);
  if (event.type === "delete") seen.delete(object.name);
  else seen.set(object.name, object);
}
