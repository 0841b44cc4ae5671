import { assertEquals } from "@std/assert";
import { NODE_A, testEndpoint, testServicePort } from "../../tests/support/model_objects.ts";
import { endpointUses } from "./endpoint_reasons.ts";
import type { Endpoint, ServicePort } from "./state.ts";

const GONE = { ready: false, serving: false, terminating: true } as const;
const DRAINING = { ready: false, serving: true, terminating: true } as const;
const LOCAL = { isLocal: true } as const;

interface Case {
  readonly port?: Partial<ServicePort>;
  readonly endpoints: readonly Partial<Endpoint>[];
  /** Of each endpoint: `+` where it is used, and why. */
  readonly cluster: readonly (string | null)[];
  readonly local?: readonly (string | null)[];
  readonly topology?: string;
  readonly notes?: number;
}

const CASES: Readonly<Record<string, Case>> = {
  "ready ones are used, others are not": {
    endpoints: [{}, { ready: false, serving: false }, GONE, DRAINING],
    cluster: [
      "+ready",
      "not ready",
      "terminating and not serving any more",
      "terminating, and others are ready",
    ],
  },
  "without a ready one, those that still serve are used": {
    endpoints: [GONE, DRAINING],
    cluster: ["terminating and not serving any more", "+terminating, and used because no endpoint is ready"],
  },
  "policy Local alone: those elsewhere are not": {
    port: { internalPolicyLocal: true },
    endpoints: [{}, LOCAL, { ...LOCAL, ready: false, serving: false }],
    cluster: [null, null, null],
    local: ["policy Local: it is not on this node", "+ready", "not ready"],
  },
  "both policies": {
    port: { externalPolicyLocal: true, nodePort: 30080 },
    endpoints: [{}, LOCAL],
    cluster: ["+ready", "+ready"],
    local: ["policy Local: it is not on this node", "+ready"],
  },
  "hints for zones: this one's are used": {
    endpoints: [{ zoneHints: ["z1"] }, { zoneHints: ["z2", "z3"] }, {
      zoneHints: ["z2"],
      ready: false,
      serving: false,
    }],
    cluster: ["+ready", "hint: it is for zone z2, z3, this is z1", "not ready"],
    topology: "PreferSameZone",
  },
  "hints for nodes: this one's are used": {
    endpoints: [{ nodeHints: ["node-a"] }, { nodeHints: ["node-b"] }],
    cluster: ["+ready", "hint: it is for node node-b, this is node-a"],
    topology: "PreferSameNode",
  },
  "hints that not all have do not count, and that is said": {
    endpoints: [{ zoneHints: ["z1"] }, {}],
    cluster: ["+ready", "+ready"],
    notes: 1,
  },
  "nor do hints for nodes": {
    endpoints: [{ nodeHints: ["node-a"] }, {}],
    cluster: ["+ready", "+ready"],
    notes: 1,
  },
  "hints of both kinds that not all have": {
    endpoints: [{ nodeHints: ["node-b"], zoneHints: ["z2"] }, {}],
    cluster: ["+ready", "+ready"],
    notes: 1,
  },
};

for (const [name, { port, endpoints, cluster, local, topology = "", notes = 0 }] of Object.entries(CASES)) {
  Deno.test(`why endpoints are used: ${name}`, { permissions: "none" }, () => {
    const all = endpoints.map((fields, at) => testEndpoint(`10.0.0.${at}`, fields));
    const uses = endpointUses(all, testServicePort(port), NODE_A);
    const said = (verdict: { isUsed: boolean; reason: string } | null): string | null =>
      verdict && `${verdict.isUsed ? "+" : ""}${verdict.reason}`;
    assertEquals(uses.endpoints.map((one) => said(one.cluster)), cluster);
    assertEquals(uses.endpoints.map((one) => said(one.local)), local ?? endpoints.map(() => null));
    assertEquals(uses.topology, topology);
    assertEquals(uses.notes.length > 0, notes > 0, uses.notes.join());
  });
}
