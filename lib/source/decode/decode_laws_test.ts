import { assert, assertEquals } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { decodeEndpointSlice } from "./decode.ts";
import { pure, type Raw, rawSlice } from "../../../tests/support/decode_objects.ts";

const PORT = fc.record({
  name: fc.constantFrom("", "http", "dns"),
  port: fc.integer({ min: 1, max: 65535 }),
  protocol: fc.constantFrom("TCP", "UDP", "SCTP"),
}, { requiredKeys: ["name", "port"] });
const ENDPOINT = fc.record({
  addresses: fc.array(fc.ipV4(), { minLength: 1, maxLength: 2 }),
  nodeName: fc.constantFrom(null, "node-a"),
  conditions: fc.record({
    ready: fc.option(fc.boolean()),
    serving: fc.option(fc.boolean()),
    terminating: fc.option(fc.boolean()),
  }),
  hints: fc.option(fc.record({ forZones: fc.array(fc.record({ name: fc.string() })) })),
}, { requiredKeys: ["addresses"] });

pure("a slice decodes to the same whatever the proxy does not read", () => {
  fc.assert(fc.property(fc.array(PORT), fc.array(ENDPOINT), fc.jsonValue(), (ports, endpoints, noise) => {
    const plain = rawSlice({ ports, endpoints });
    const noisy = structuredClone<unknown>({ ...plain, noise, status: noise }) as Raw & {
      metadata: Raw;
      endpoints: Raw[];
    };
    Object.assign(noisy.metadata, { managedFields: noise, ownerReferences: noise, resourceVersion: "5" });
    for (const endpoint of noisy.endpoints) {
      Object.assign(endpoint, { targetRef: noise, zone: "z", hostname: "h" });
    }
    const decoded = decodeEndpointSlice(plain);
    assertEquals(decodeEndpointSlice(noisy), decoded);
    // A decoded slice is a copy: it shares nothing with the raw object.
    assert(!sharesObjects(decoded, plain));
  }));
});

function sharesObjects(one: unknown, other: unknown): boolean {
  const seen = new Set<unknown>();
  const walk = (value: unknown, visit: (object: object) => boolean): boolean =>
    typeof value === "object" && value !== null &&
    (visit(value) || Object.values(value).some((part) => walk(part, visit)));
  walk(one, (object) => {
    seen.add(object);
    return false;
  });
  return walk(other, (object) => seen.has(object));
}
