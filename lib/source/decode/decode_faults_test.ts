import { assert, assertEquals, assertThrows } from "@std/assert";
import {
  decodeEndpoints,
  decodeEndpointSlice,
  DecodeError,
  decodeNode,
  decodeObject,
  type DecodeOptions,
  decodeService,
} from "./decode.ts";
import { pure, rawService, rawSlice } from "../../../tests/support/decode_objects.ts";

type FaultCase = [decode: (raw: unknown, options?: DecodeOptions) => unknown, raw: unknown, message: string];

const FAULTS: FaultCase[] = [
  [decodeService, null, "must be an object, found nothing"],
  [decodeService, [], "must be an object, found []"],
  [decodeService, {}, "metadata.name: is required"],
  [decodeService, { metadata: { name: "web" } }, "metadata.namespace: is required"],
  [
    decodeService,
    rawService({ ports: [{ port: 80 }, { port: 70000 }] }),
    "spec.ports[1].port: must be 1..65535, found 70000",
  ],
  [decodeService, rawService({ ports: [null] }), "spec.ports[0]: must be an object, found nothing"],
  [
    decodeService,
    rawService({ externalIPs: ["10.0.0.1", 5] }),
    "spec.externalIPs[1]: must be a string, found 5",
  ],
  [decodeService, rawService({ type: "Nodeport" }), "(did you mean NodePort?)"],
  [
    decodeService,
    rawService({}, { loadBalancer: { ingress: [{ ip: 1 }] } }),
    "status.loadBalancer.ingress[0].ip: must be a string",
  ],
  [
    decodeEndpointSlice,
    rawSlice({ endpoints: [{ addresses: ["10.0.0.1"] }, { addresses: ["fd00::1"] }] }),
    'endpoints[1].addresses[0]: must be an IPv4 address, found "fd00::1"',
  ],
  [
    decodeEndpointSlice,
    rawSlice({ endpoints: [{ addresses: ["10.0.0.1", "10.0.0.2", "fd00::1"] }] }),
    'endpoints[0].addresses[2]: must be an IPv4 address, found "fd00::1"',
  ],
  [
    decodeEndpointSlice,
    rawSlice({ addressType: "FQDN", endpoints: [{ addresses: ["web.example", 5] }] }),
    "endpoints[0].addresses[1]: must be a string, found 5",
  ],
  [
    decodeEndpointSlice,
    rawSlice({ endpoints: [{ addresses: [] }] }),
    "endpoints[0].addresses: must list at least one address",
  ],
  [
    decodeEndpointSlice,
    rawSlice({ endpoints: [{ addresses: ["10.0.0.1"], conditions: { serving: 1 } }] }),
    "endpoints[0].conditions.serving: must be true or false, found 1",
  ],
  [
    decodeEndpointSlice,
    rawSlice({ endpoints: [{ addresses: ["10.0.0.1\n-A INPUT"] }] }),
    "endpoints[0].addresses[0]: must be an IPv4",
  ],
  [
    decodeEndpointSlice,
    rawSlice({ ports: [{ name: "a b", port: 1 }] }),
    "ports[0].name: must be a DNS label",
  ],
  [decodeEndpointSlice, rawSlice({ ports: [{ port: -1 }] }), "ports[0].port: must be 0..65535, found -1"],
  [decodeEndpointSlice, rawSlice({ addressType: "" }), "addressType: is required"],
  [
    decodeEndpoints,
    { metadata: { namespace: "a", name: "b" }, subsets: [{ addresses: [{ ip: "x" }] }] },
    'subsets[0].addresses[0].ip: must be an IP address, found "x"',
  ],
  [decodeNode, { metadata: { name: "node a" } }, "metadata.name: must be a DNS subdomain"],
];

for (const [decode, raw, message] of FAULTS) {
  pure(`${decode.name} refuses: ${message}`, () => {
    assertThrows(() => decode(raw), DecodeError, message);
  });
}

Deno.test("a value of 200 MB is quoted like any other that is too long", { permissions: "none" }, () => {
  // Each of these is six characters in JSON: together more than a text can have.
  const huge = "\0".repeat(200_000_000);
  for (const kind of [huge, [huge], { [huge]: 1 }]) {
    const { objects, rejections } = decodeObject({ kind, metadata: { name: "a" } }, "here");
    assertEquals([objects, rejections.length], [[], 1]);
    assert((rejections[0]?.message.length ?? 0) < 200);
  }
});
