/** What a plan says beside its claims, and names that later versions must find again. */
import { assertEquals } from "@std/assert";
import { exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import { testService } from "../../../../tests/support/model_objects.ts";
import { probeSetName } from "./sets.ts";

const pure = { permissions: "none" } as const;

Deno.test("a Service that gets everything is not among the problems", pure, () => {
  const { services, problems } = exampleIpvsPlan("IPv4", [testService({ name: "web" })]);
  assertEquals([services.size, problems.size], [1, 0]);
});

Deno.test("sets of a probe have names that a later kproxy finds and removes", pure, () => {
  assertEquals(
    [probeSetName("hash:ip,port", "IPv4"), probeSetName("hash:ip,port", "IPv6")],
    ["KPROXY-PROBE-4-1", "KPROXY-PROBE-6-1"],
  );
});
