import { assert, assertEquals, assertMatch } from "@std/assert";
import { ChangeTracker } from "./change_tracker.ts";
import type { Service } from "./objects.ts";
import { MAX_DESTINATIONS, MAX_ENDPOINTS, MAX_ENTRIES, sizeProblem } from "./service_size.ts";
import {
  NODE_A,
  testPort,
  testService,
  testServicePort,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

function ips(count: number): readonly string[] {
  return Array.from(
    { length: count },
    (_, index) => `20.${index >> 16 & 255}.${index >> 8 & 255}.${index & 255}`,
  );
}

/** Size problem of a Service whose ports have as many endpoints each. */
function problemOf(
  parts: {
    ports?: number;
    externalIPs?: number;
    vips?: number;
    ranges?: number;
    nodePort?: number;
    endpoints?: number;
  },
): string | null {
  const { ports = 1, externalIPs = 0, vips = 0, ranges = 0, nodePort = 0, endpoints = 0 } = parts;
  const shared = {
    externalIPs: ips(externalIPs),
    loadBalancerVIPs: ips(vips),
    loadBalancerSourceRanges: ips(ranges),
  };
  const declared = Array.from(
    { length: ports },
    (_, index) => testServicePort({ ...shared, nodePort, key: `shop/web:p${index}/TCP` }),
  );
  return sizeProblem(declared, new Map(declared.map(({ key }) => [key, endpoints])));
}

Deno.test("a Service is served up to each of the limits, and with one more it is not", pure, () => {
  assertEquals(problemOf({ ports: MAX_DESTINATIONS }), null);
  assertMatch(
    problemOf({ ports: MAX_DESTINATIONS + 1 })!,
    /10000 or more \(ports × addresses\), where 10000 are/,
  );
  assertEquals(problemOf({ ports: 100, externalIPs: 97, vips: 1, nodePort: 30000 }), null);
  assertMatch(problemOf({ ports: 100, externalIPs: 98, vips: 1, nodePort: 30000 })!, /ports × addresses/);
  assertEquals(problemOf({ endpoints: MAX_ENDPOINTS }), null);
  assertMatch(
    problemOf({ endpoints: MAX_ENDPOINTS + 1 })!,
    /20000 or more \(ports × endpoints\), where 25000 are/,
  );
  assertEquals(problemOf({ ports: 10, externalIPs: 9, endpoints: MAX_ENTRIES / 100 - 1 }), null);
  assertMatch(
    problemOf({ ports: 10, externalIPs: 9, endpoints: MAX_ENTRIES / 100 })!,
    /addresses × endpoints/,
  );
  assertEquals(problemOf({ ports: 10, vips: 10, ranges: MAX_ENTRIES / 100 - 2 }), null);
  assertMatch(problemOf({ ports: 10, vips: 10, ranges: MAX_ENTRIES / 100 })!, /source ranges/);
});

Deno.test("what large clusters have is served", pure, () => {
  assertEquals(problemOf({ ports: 1000, vips: 1, nodePort: 30000, endpoints: 10 }), null);
  assertEquals(problemOf({ ports: 3, vips: 1, nodePort: 30000, endpoints: 5000 }), null);
  assertEquals(problemOf({ ports: 10, vips: 2, ranges: 500, nodePort: 30000, endpoints: 100 }), null);
  assertEquals(problemOf({ ports: 2, externalIPs: 1000, endpoints: 10 }), null);
});

function slice(ports: number, endpoints: number) {
  return testSlice({
    ports: Array.from({ length: ports }, (_, index) => testSlicePort({ name: `p${index}` })),
    endpoints: ips(endpoints).map((ip) => testSliceEndpoint(ip)),
  });
}

function declaring(ports: number, changes: Partial<Service> = {}): Service {
  const list = Array.from({ length: ports }, (_, index) => testPort({ name: `p${index}`, port: index + 1 }));
  return testService({ ports: list, ...changes });
}

Deno.test("endpoints of ports that no Service declares are not made, those of the others once", pure, () => {
  const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  const fromMs = performance.now();
  tracker.updateEndpointSlice(slice(20_000, 1000), false);
  assertEquals(tracker.checkout().state.endpoints.size, 0);
  tracker.updateService(undefined, declaring(2));
  const { state } = tracker.checkout();
  assertEquals([...state.endpoints.get("shop/web")!.values()].map((list) => list.length), [1000, 1000]);
  assertEquals(state.endpointCount, 2000);
  // 20,000,000 objects take minutes.
  assert(performance.now() - fromMs < 10_000, "that took too long");
});

Deno.test(
  "a Service that becomes too large is not served until it is smaller, whatever came first",
  pure,
  () => {
    for (const isSliceFirst of [true, false]) {
      const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
      const served = (): readonly [number, boolean, readonly string[]] => {
        const { state, updatedServices } = tracker.checkout();
        return [state.endpointCount, state.tooLarge.has("shop/web"), [...updatedServices]];
      };
      const small = declaring(30);
      const takeSlice = () => tracker.updateEndpointSlice(slice(30, 100), false);
      const takeService = () => tracker.updateService(undefined, small);
      for (const take of isSliceFirst ? [takeSlice, takeService] : [takeService, takeSlice]) take();
      assertEquals(served(), [3000, false, ["shop/web"]]);
      // By endpoints, and back.
      tracker.updateEndpointSlice(slice(30, 1000), false);
      assertEquals(served(), [0, true, ["shop/web"]]);
      tracker.updateEndpointSlice(slice(30, 999), false);
      assertEquals(served(), [0, true, []]);
      tracker.updateEndpointSlice(slice(30, 100), false);
      assertEquals(served(), [3000, false, ["shop/web"]]);
      // By addresses, and back.
      const large = declaring(30, { externalIPs: ips(1000) });
      assert(tracker.updateService(small, large));
      assertEquals(served(), [0, true, ["shop/web"]]);
      assertEquals(tracker.updateService(large, large), false);
      assert(tracker.updateService(large, small));
      assertEquals(served(), [3000, false, ["shop/web"]]);
      // Deleted while too large.
      tracker.updateService(small, large);
      served();
      tracker.updateService(large, undefined);
      assertEquals(served(), [0, false, []]);
    }
  },
);

Deno.test(
  "what is too large claims nothing: the next Service by age has its addresses meanwhile",
  pure,
  () => {
    const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
    const older = { createdAtSeconds: 1, externalIPs: ["192.0.2.1"] };
    const young = testService({
      name: "young",
      clusterIPs: ["10.96.0.77"],
      createdAtSeconds: 2,
      externalIPs: ["192.0.2.1"],
      ports: [testPort({ name: "p0", port: 1 })],
    });
    const youngIps = () => tracker.checkout().state.services.get("shop/young")?.[0]?.externalIPs;
    tracker.updateService(undefined, declaring(1, older));
    tracker.updateService(undefined, young);
    assertEquals(youngIps(), []);
    tracker.updateService(declaring(1, older), declaring(20_000, older));
    assertEquals(youngIps(), ["192.0.2.1"]);
    tracker.updateService(declaring(20_000, older), declaring(1, older));
    assertEquals(youngIps(), []);
  },
);
