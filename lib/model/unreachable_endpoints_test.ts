import { assertEquals } from "@std/assert";
import { ChangeTracker } from "./change_tracker.ts";
import { parseIp, specialUse } from "./ip.ts";
import type { EndpointSlice } from "./objects.ts";
import { NODE_A, testService, testSlice, testSliceEndpoint } from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

const USES: readonly [address: string, use: string | null][] = [
  ["10.244.0.1", null],
  ["169.254.20.10", "a link-local address"],
  ["240.0.0.1", null],
  ["223.255.255.255", null],
  ["192.0.2.255", null],
  ["224.0.0.1", "a multicast address"],
  ["239.1.1.1", "a multicast address"],
  ["255.255.255.255", "the broadcast address"],
  ["0.0.0.0", "the unspecified address"],
  ["127.0.0.1", "a loopback address"],
  ["127.1.2.3", "a loopback address"],
  ["fd00::1", null],
  ["fe80::1", "a link-local address"],
  ["ff05::1", "a multicast address"],
  ["::", "the unspecified address"],
  ["::1", "a loopback address"],
];
for (const [address, use] of USES) {
  Deno.test(`who answers at ${address}`, pure, () => assertEquals(specialUse(parseIp(address)!), use));
}

/** A tracker of Services `web` (ClusterIP), and its reports. */
function scene() {
  const told: string[] = [];
  const tracker = new ChangeTracker({
    family: "IPv4",
    node: NODE_A,
    onUnreachable: ({ service, endpoint, reason }) => told.push(`${service}: ${endpoint}: ${reason}`),
    onUnreachableGone: ({ service, endpoint }) => told.push(`${service}: ${endpoint} is gone`),
    onUnreachableCount: (count) => told.push(`${count}`),
    maxReported: 2,
  });
  const web = testService();
  return {
    tracker,
    serve: () => tracker.updateService(undefined, web),
    drop: () => tracker.updateService(web, undefined),
    slice: (name: string, ips: readonly string[]): EndpointSlice => {
      const slice = testSlice({ name, endpoints: ips.map((ip) => testSliceEndpoint(ip)) });
      tracker.updateEndpointSlice(slice, ips.length === 0);
      return slice;
    },
    /** Checks out, and yields the reports. */
    told: (): string[] => {
      tracker.checkout();
      return told.splice(0);
    },
  };
}

const FOUND = "shop/web: 239.1.1.1 of EndpointSlice shop/web-1: it is a multicast address";
const GONE = "shop/web: 239.1.1.1 of EndpointSlice shop/web-1 is gone";

Deno.test(
  "one that cannot answer is reported once, and when it is gone, and the others alone get traffic",
  pure,
  () => {
    const { tracker, serve, slice, told } = scene();
    serve();
    slice("web-1", ["10.244.0.1", "239.1.1.1"]);
    assertEquals(told(), [FOUND, "1"]);
    const [endpoints] = tracker.checkout().state.endpoints.get("shop/web")!.values();
    assertEquals(endpoints?.map(({ ip }) => ip), ["10.244.0.1"]);
    slice("web-1", ["10.244.0.2", "239.1.1.1"]);
    slice("web-2", ["10.244.0.3"]);
    assertEquals(told(), []);
    slice("web-2", ["127.0.0.1"]);
    assertEquals(told(), ["shop/web: 127.0.0.1 of EndpointSlice shop/web-2: it is a loopback address", "2"]);
    slice("web-1", ["10.244.0.2"]);
    assertEquals(told(), [GONE, "1"]);
    slice("web-2", []);
    assertEquals(told(), ["shop/web: 127.0.0.1 of EndpointSlice shop/web-2 is gone", "0"]);
  },
);

Deno.test("only endpoints of Services that are served are reported, whichever comes first", pure, () => {
  const { serve, drop, slice, told } = scene();
  slice("web-1", ["239.1.1.1"]);
  assertEquals(told(), []);
  serve();
  assertEquals(told(), [FOUND, "1"]);
  drop();
  assertEquals(told(), [GONE, "0"]);
  serve();
  slice("web-1", []);
  assertEquals(told(), []);
});

Deno.test("many at once are reported in few words, and all count", pure, () => {
  const { serve, slice, told } = scene();
  serve();
  slice("web-1", Array.from({ length: 100 }, (_, i) => `239.1.1.${i}`));
  const lines = told();
  assertEquals(lines.slice(2), [
    "shop/web: 98 more endpoints: for the same kinds of reasons",
    "100",
  ]);
  slice("web-1", []);
  assertEquals(told().slice(2), ["shop/web: 98 more endpoints is gone", "0"]);
});

Deno.test("as many as are named at most are all named, without a count of others", pure, () => {
  const { serve, slice, told } = scene();
  serve();
  slice("web-1", ["239.1.1.1", "239.1.1.2"]);
  assertEquals(told(), [FOUND, FOUND.replace("239.1.1.1", "239.1.1.2"), "2"]);
  slice("web-1", []);
  assertEquals(told(), [GONE, GONE.replace("239.1.1.1", "239.1.1.2"), "0"]);
});
