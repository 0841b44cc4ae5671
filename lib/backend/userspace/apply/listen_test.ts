import { assertEquals, assertThrows } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { listenIp, parseListenRange, planListening } from "./listener.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

Deno.test("a network gives each Service an address of its own, by the last bits of its cluster IP", {
  permissions: PURE,
}, () => {
  const cases: [range: string, clusterIP: string, ip: string][] = [
    ["127.0.0.1", "10.96.0.10", "127.0.0.1"],
    ["127.0.0.0/8", "10.96.0.10", "127.96.0.10"],
    ["127.32.0.0/12", "10.111.3.4", "127.47.3.4"],
    ["127.7.0.0/16", "10.96.0.10", "127.7.0.10"],
    ["0.0.0.0/0", "10.96.0.10", "10.96.0.10"],
    ["::1", "fd00:10:96::a", "::1"],
    ["fd7f::/16", "fd00:10:96::a", "fd7f:10:96::a"],
    ["fd7f:1::/108", "fd00:10:96::12:a", "fd7f:1::2:a"],
  ];
  for (const [range, clusterIP, ip] of cases) {
    assertEquals(listenIp(parseListenRange(range)!, clusterIP), ip, `${clusterIP} in ${range}`);
  }
  assertThrows(() => listenIp(parseListenRange("::1")!, "10.96.0.10"), RangeError);
  assertEquals(parseListenRange("localhost"), null);
});

Deno.test(
  "a Service is opened with all endpoints that serve, whatever its policies, and without what cannot be forwarded",
  { permissions: PURE },
  () => {
    const state = exampleState("IPv4", [
      testService({
        internalTrafficPolicy: "Local",
        ports: [testPort({ name: "a" }), testPort({ name: "b", port: 132, protocol: "SCTP" })],
      }),
      testSlice({
        ports: [{ name: "a", port: 8080, protocol: "TCP" }],
        endpoints: [
          testSliceEndpoint("10.244.1.2", { nodeName: "node-a" }),
          testSliceEndpoint("10.244.2.2", { nodeName: "node-b" }),
          testSliceEndpoint("10.244.2.3", { ready: false }),
        ],
      }),
    ]);
    const plan = planListening(state, "all", parseListenRange("127.0.0.0/8")!);
    const { portals, unserved } = plan.get("shop/web")!;
    assertEquals(
      portals.map(({ text, ip, port, endpoints }) => [text, ip, port, endpoints.map(({ ip }) => ip)]),
      [["shop/web:a", "127.96.0.10", 80, ["10.244.1.2", "10.244.2.2"]]],
    );
    assertEquals(unserved, ["shop/web:b: mode userspace cannot forward SCTP"]);
    assertEquals([...planListening(state, new Set(["shop/gone"]), parseListenRange("127.0.0.1")!)], [[
      "shop/gone",
      null,
    ]]);
  },
);
