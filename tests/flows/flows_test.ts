import { assert, assertEquals } from "@std/assert";
import { FLOW_CASES } from "./flow_cases.ts";
import { IPTABLES_RULES, TEST_VECTORS } from "./guards.ts";
import { differences, type FlowBackend, optionsOf } from "./flow_case.ts";
import { IPTABLES_BACKEND } from "./iptables_backend.ts";
import { IPVS_BACKEND } from "./ipvs_backend.ts";
import { NFTABLES_BACKEND } from "./nftables_backend.ts";
import { USERSPACE_BACKEND } from "./userspace_backend.ts";

const BACKENDS: readonly FlowBackend[] = [
  IPTABLES_BACKEND,
  NFTABLES_BACKEND,
  IPVS_BACKEND,
  USERSPACE_BACKEND,
];

for (const backend of BACKENDS) {
  for (const flowCase of FLOW_CASES) {
    const gap = backend.gaps[flowCase.name];
    Deno.test({
      name: `${backend.name}: ${flowCase.name}${gap === undefined ? "" : ` (cannot: ${gap})`}`,
      permissions: "none",
      ignore: gap !== undefined,
      fn() {
        const table = backend.load(flowCase.objects, optionsOf(flowCase));
        const found = differences(table, flowCase.flows, backend.name);
        assertEquals(found.length, 0, found.join("\n"));
      },
    });
  }
}

Deno.test(
  "flow cases have names of their own, guard something and send packets",
  { permissions: "none" },
  () => {
    assertEquals(new Set(FLOW_CASES.map((one) => one.name)).size, FLOW_CASES.length);
    for (const flowCase of FLOW_CASES) {
      assert(
        flowCase.guards.length > 0 && flowCase.flows.length > 0,
        flowCase.name,
      );
    }
  },
);

Deno.test("every declared gap names a flow case", { permissions: "none" }, () => {
  const names = new Set(FLOW_CASES.map((one) => one.name));
  for (const backend of BACKENDS) {
    for (const name of Object.keys(backend.gaps)) assert(names.has(name), `${backend.name}: ${name}`);
  }
});

Deno.test("every numbered rule of iptables mode is guarded by a flow case", { permissions: "none" }, () => {
  const guarded = new Set(FLOW_CASES.flatMap((one) => one.guards));
  assertEquals(Object.keys(IPTABLES_RULES).filter((rule) => !guarded.has(`iptables ${rule}`)), []);
});

Deno.test("every test vector of the model is guarded by a flow case", { permissions: "none" }, () => {
  const guarded = new Set(FLOW_CASES.flatMap((one) => one.guards));
  const vectors = TEST_VECTORS.map((words) => `vector ${words.split(":")[0]}`);
  assertEquals(vectors.filter((vector) => !guarded.has(vector)), []);
});
