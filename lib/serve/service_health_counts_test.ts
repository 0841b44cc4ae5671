import { assertEquals } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import { healthCheckServices, readyLocalEndpointCounts } from "./service_health.ts";
import type { ProxyState } from "../model/state.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";

function exampleState(): ProxyState {
  const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  const local = { type: "LoadBalancer", externalTrafficPolicy: "Local" } as const;
  const ports = [testPort({ name: "http" }), testPort({ name: "https", port: 443 })];
  tracker.updateService(undefined, testService({ ...local, name: "web", ports, healthCheckNodePort: 31000 }));
  tracker.updateService(undefined, testService({ ...local, name: "idle", healthCheckNodePort: 31001 }));
  tracker.updateService(
    undefined,
    testService({ name: "inner", clusterIPs: ["10.96.0.99"], healthCheckNodePort: 31002 }),
  );
  const here = { nodeName: "node-a" };
  tracker.updateEndpointSlice(
    testSlice({
      ports: [testSlicePort({ name: "http", port: 80 }), testSlicePort({ name: "https", port: 443 })],
      endpoints: [
        testSliceEndpoint("10.0.0.1", here),
        testSliceEndpoint("10.0.0.2", here),
        testSliceEndpoint("10.0.0.3", { ...here, ready: false, terminating: true }),
        testSliceEndpoint("10.0.0.4", { nodeName: "node-b" }),
      ],
    }),
    false,
  );
  tracker.updateEndpointSlice(
    testSlice({ name: "inner-1", serviceName: "inner", endpoints: [testSliceEndpoint("10.0.0.9", here)] }),
    false,
  );
  return tracker.checkout().state;
}

Deno.test("Services with a health check node port are listed once, whatever their number of ports", {
  permissions: "none",
}, () => {
  assertEquals(healthCheckServices(exampleState()), new Map([["shop/web", 31000], ["shop/idle", 31001]]));
});

Deno.test("ready local endpoints are counted by address over all ports", { permissions: "none" }, () => {
  const state = exampleState();
  const counts = readyLocalEndpointCounts(state, state.services.keys());
  assertEquals(counts, new Map([["shop/web", 2], ["shop/inner", 1]]));
});
