/**
 * The library's door suffices to go from objects to rules and the ways of packets, without any permission.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { ObjectJson } from "../lib/source/decode/api_json.ts";
import {
  ChangeTracker,
  decodeObject,
  emptySnapshot,
  ipvsPlanTexts,
  matchingNodeIps,
  nodePortAddresses,
  type Packet,
  parseIptablesSave,
  parseIpvsTable,
  parseNftScript,
  parseSets,
  planIptables,
  planIpvs,
  planNftables,
  type ProxyState,
  renderIpvsPlan,
  renderNftablesPlan,
  renderPlan,
  RulesetSimulator,
} from "../mod.ts";

const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace: "shop", name: "web" },
  spec: { clusterIP: "10.96.10.1", ports: [{ name: "http", port: 80 }] },
} satisfies ObjectJson<"Service">;
const SLICE = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
  addressType: "IPv4",
  ports: [{ name: "http", port: 8080 }],
  endpoints: [{ addresses: ["10.244.0.11"] }],
} satisfies ObjectJson<"EndpointSlice">;

/** A pod of another node asks the Service. */
const PACKET: Packet = {
  source: "10.244.1.5",
  destination: "10.96.10.1",
  port: 80,
  protocol: "tcp",
  state: "NEW",
  inInterface: "eth0",
  mark: 0,
};
const HOST_STATE = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };

/** What every mode's planner is told. */
const PLANNED = {
  family: "IPv4",
  masqueradeMark: 0x4000,
  masqueradeAll: false,
  nodeIp: "192.0.2.10",
} as const;
const ADDRESSES = nodePortAddresses("IPv4", null);
const NO_RIGHTS = { permissions: "none" } as const;

/** The state that the two objects make. */
function decodedState(): ProxyState {
  const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
  for (const raw of [SERVICE, SLICE]) {
    const { objects, rejections } = decodeObject(raw, "test", { manifest: true });
    assertEquals(rejections, []);
    for (const object of objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
  }
  return tracker.checkout().state;
}

Deno.test("from objects to rules of mode nftables and the ways of packets", NO_RIGHTS, () => {
  const plan = planNftables(decodedState(), "all", {
    ...PLANNED,
    detector: { kind: "none" },
    nodePortAddresses: ADDRESSES,
    nodePortIps: [],
    serviceCidrs: [],
    objectComments: true,
  });
  assertStringIncludes(renderNftablesPlan(plan), "{ 10.96.10.1 . 80 . 0 : 10.244.0.11 . 8080 }\n");
  const { tables } = parseNftScript(renderNftablesPlan(plan));
  const { outcomes } = new RulesetSimulator({ ...emptySnapshot("IPv4"), nftables: tables }).send(
    PACKET,
    HOST_STATE,
  );
  assertEquals(outcomes.map(({ translatedTo }) => translatedTo), ["10.244.0.11:8080"]);
});

Deno.test("from objects to virtual servers of mode ipvs and the ways of packets", NO_RIGHTS, () => {
  const plan = planIpvs(decodedState(), "all", {
    ...PLANNED,
    detector: { kind: "none" },
    nodePortIps: [],
    hostIps: ["192.0.2.10"],
    scheduler: "rr",
    schedulers: [],
    excludeCIDRs: [],
  });
  assertStringIncludes(renderIpvsPlan(plan), "-a -t 10.96.10.1:80 -r 10.244.0.11:8080 -m -w 1\n");
  const texts = ipvsPlanTexts(plan);
  const simulator = new RulesetSimulator({
    ...emptySnapshot("IPv4"),
    iptables: [{ variant: "", tables: parseIptablesSave(texts.iptables) }],
    sets: parseSets(texts.ipset),
    ipvs: { servers: parseIpvsTable(texts.ipvsadm), bound: ["10.96.10.1"] },
  });
  const { outcomes } = simulator.send(PACKET, HOST_STATE);
  assertEquals(outcomes.map(({ translatedTo }) => translatedTo), ["10.244.0.11:8080"]);
});

Deno.test("from objects to rules of mode iptables", NO_RIGHTS, () => {
  const plan = planIptables(decodedState(), "all", {
    ...PLANNED,
    detector: { kind: "cidr", cidr: "10.244.0.0/16" },
    localhostNodePorts: true,
    nodePortAddresses: ADDRESSES,
    nodePortIps: matchingNodeIps(ADDRESSES, ["192.0.2.10"]),
    dropInvalid: true,
    nfacct: false,
  });
  assertStringIncludes(renderPlan(plan), "-j DNAT --to-destination 10.244.0.11:8080\n");
});
