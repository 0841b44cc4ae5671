import { assertEquals, assertStringIncludes } from "@std/assert";
import type { ObjectJson } from "../lib/source/decode/api_json.ts";
import {
  ChangeTracker,
  decodeObject,
  ipvsPlanTexts,
  IpvsSimulator,
  matchingNodeIps,
  NftablesSimulator,
  NftTables,
  nodePortAddresses,
  type Packet,
  parseIptablesSave,
  parseIpvsTable,
  parseSets,
  planIptables,
  planIpvs,
  planNftables,
  renderIpvsPlan,
  renderNftablesPlan,
  renderPlan,
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
const SURROUNDINGS = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };

Deno.test(
  "the library's door suffices to go from objects to rules and the ways of packets, without any permission",
  {
    permissions: "none",
  },
  () => {
    const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
    for (const raw of [SERVICE, SLICE]) {
      const { objects, rejections } = decodeObject(raw, "test", { manifest: true });
      assertEquals(rejections, []);
      for (const object of objects) {
        if (object.kind === "Service") tracker.updateService(undefined, object);
        if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
      }
    }
    const addresses = nodePortAddresses("IPv4", null);
    const { state } = tracker.checkout();
    const nftables = planNftables(state, "all", {
      family: "IPv4",
      masqueradeMark: 0x4000,
      masqueradeAll: false,
      detector: { kind: "none" },
      nodePortAddresses: addresses,
      nodePortIps: [],
      nodeIp: "192.0.2.10",
      serviceCidrs: [],
      objectComments: true,
    });
    assertStringIncludes(renderNftablesPlan(nftables), "{ 10.96.10.1 . 80 . 0 : 10.244.0.11 . 8080 }\n");
    const tables = new NftTables();
    tables.run(renderNftablesPlan(nftables));
    assertEquals(
      new NftablesSimulator(tables.tables).send(PACKET, SURROUNDINGS).outcomes.map(({ translatedTo }) =>
        translatedTo
      ),
      ["10.244.0.11:8080"],
    );
    const ipvs = planIpvs(state, "all", {
      family: "IPv4",
      masqueradeMark: 0x4000,
      masqueradeAll: false,
      detector: { kind: "none" },
      randomFully: true,
      nodeIp: "192.0.2.10",
      nodePortIps: [],
      hostIps: ["192.0.2.10"],
      scheduler: "rr",
      schedulers: [],
      excludeCIDRs: [],
    });
    assertStringIncludes(renderIpvsPlan(ipvs), "-a -t 10.96.10.1:80 -r 10.244.0.11:8080 -m -w 1\n");
    const texts = ipvsPlanTexts(ipvs);
    const simulator = new IpvsSimulator({
      tables: parseIptablesSave(texts.iptables),
      sets: parseSets(texts.ipset),
      ipvs: parseIpvsTable(texts.ipvsadm),
      bound: ["10.96.10.1"],
    });
    assertEquals(
      simulator.send(PACKET, SURROUNDINGS).outcomes.map(({ translatedTo }) => translatedTo),
      ["10.244.0.11:8080"],
    );
    const plan = planIptables(state, "all", {
      family: "IPv4",
      masqueradeMark: 0x4000,
      masqueradeAll: false,
      detector: { kind: "cidr", cidr: "10.244.0.0/16" },
      localhostNodePorts: true,
      nodePortAddresses: addresses,
      nodePortIps: matchingNodeIps(addresses, ["192.0.2.10"]),
      nodeIp: "192.0.2.10",
      randomFully: true,
      dropInvalid: true,
    });
    assertStringIncludes(renderPlan(plan), "-j DNAT --to-destination 10.244.0.11:8080\n");
  },
);
