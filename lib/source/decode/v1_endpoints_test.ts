import { assertEquals } from "@std/assert";
import type { EndpointSlice } from "../../model/objects.ts";
import { decodeEndpoints } from "./v1_endpoints.ts";

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
