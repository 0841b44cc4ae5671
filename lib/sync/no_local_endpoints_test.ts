import { assertEquals } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { Service } from "../model/objects.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";
import { NoLocalEndpointsCount, type NoLocalEndpointsUnit } from "./sync_observer.ts";

const PURE = { permissions: "none" } as const;
const BALANCED: Partial<Service> = {
  type: "LoadBalancer",
  externalTrafficPolicy: "Local",
  ports: [testPort({ nodePort: 30080 })],
};

interface Bench {
  readonly tracker: ChangeTracker;
  readonly count: NoLocalEndpointsCount;
  /** Internal and external ports after a sync of what changed. */
  sync(full?: boolean): [internal: number, external: number];
  endpoints(nodeName: string, more?: { ready?: boolean; terminating?: boolean; serving?: boolean }): void;
}

function bench(service: Partial<Service>, unit: NoLocalEndpointsUnit = "servicePorts"): Bench {
  const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  const count = new NoLocalEndpointsCount(unit);
  tracker.updateService(undefined, testService(service));
  return {
    tracker,
    count,
    endpoints: (nodeName, more = {}) => {
      const endpoints = [testSliceEndpoint("10.0.0.1", { nodeName, ...more })];
      const ports = [testSlicePort(), testSlicePort({ name: "b", port: 81 })];
      tracker.updateEndpointSlice(testSlice({ ports, endpoints }), false);
    },
    sync: (full = false) => {
      const { state, updatedServices } = tracker.checkout();
      count.update(state, full ? "all" : updatedServices);
      return [count.total.internal, count.total.external];
    },
  };
}

/** A Service gets its first endpoint elsewhere, has one here for a while, and counts `elsewhere` whenever it has none here. */
function comesAndGoes(name: string, { sync, endpoints }: Bench, elsewhere: [number, number]): void {
  assertEquals(sync(true), [0, 0], `${name}, without endpoints`);
  endpoints("node-b");
  assertEquals(sync(), elsewhere, `${name}, elsewhere`);
  endpoints("node-a");
  assertEquals(sync(), [0, 0], `${name}, here`);
  endpoints("node-b");
  assertEquals(sync(true), elsewhere, `${name}, elsewhere again`);
}

Deno.test("a local policy counts where endpoints are elsewhere only", PURE, () => {
  const policies: [string, Partial<Service>, [number, number]][] = [
    ["external", BALANCED, [0, 1]],
    ["internal", { internalTrafficPolicy: "Local" }, [1, 0]],
    ["both", { ...BALANCED, internalTrafficPolicy: "Local" }, [1, 1]],
    ["neither", { type: "NodePort" }, [0, 0]],
    ["external, but nothing comes from outside", { externalTrafficPolicy: "Local" }, [0, 0]],
  ];
  for (const [name, service, elsewhere] of policies) {
    comesAndGoes(name, bench(service), elsewhere);
  }
});

Deno.test(
  "a local endpoint that serves on while terminating is one; elsewhere it still counts as having any",
  PURE,
  () => {
    const { sync, endpoints } = bench(BALANCED);
    endpoints("node-b", { ready: false, serving: true, terminating: true });
    assertEquals(sync(true), [0, 1]);
    endpoints("node-a", { ready: false, serving: true, terminating: true });
    assertEquals(sync(), [0, 0]);
  },
);

Deno.test("ports count one by one, and go with their Service", PURE, () => {
  const ports = [testPort({ nodePort: 30080 }), testPort({ name: "b", port: 81, nodePort: 30081 })];
  const { tracker, sync, endpoints } = bench({ ...BALANCED, ports });
  endpoints("node-b");
  assertEquals(sync(), [0, 2]);
  tracker.updateService(testService(), undefined);
  assertEquals(sync(), [0, 0]);
});

// As kube-proxy's `syncEndpoint` of IPVS mode does, which puts the Service's name into a set for each policy.
Deno.test("in IPVS mode Services are counted, however many of their ports it is about", PURE, () => {
  const two = [testPort({ nodePort: 30080 }), testPort({ name: "b", port: 81, nodePort: 30081 })];
  const cases: [string, Partial<Service>, [number, number]][] = [
    ["external, two ports", { ...BALANCED, ports: two }, [0, 1]],
    ["internal, two ports", { internalTrafficPolicy: "Local", ports: two }, [1, 0]],
    ["both, two ports", { ...BALANCED, internalTrafficPolicy: "Local", ports: two }, [1, 1]],
    ["neither", { type: "NodePort", ports: two }, [0, 0]],
  ];
  for (const [name, service, elsewhere] of cases) {
    const rig = bench(service, "services");
    const { tracker, sync } = rig;
    comesAndGoes(name, rig, elsewhere);
    tracker.updateService(testService(), undefined);
    assertEquals(sync(), [0, 0], `${name}, gone`);
  }
});
