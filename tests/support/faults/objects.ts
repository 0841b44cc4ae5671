/**
 * Faults of objects and flags: the rules are what they ask for, and `trace` says of each endpoint, or of the Service, why it is not
 * what somebody wants.
 *
 * @module
 */
import { NODE_OBJECT } from "../node_lab.ts";
import { BOTH, type PlantedFault } from "./fault.ts";
import {
  BALANCED,
  balancedService,
  type FaultLab,
  POD,
  SOUND,
  WEB_ENDPOINTS,
  webService,
  WORLD,
} from "./fault_lab.ts";

const restore = (lab: FaultLab): Promise<void> => lab.restore();
const FROM_POD = ["trace", "10.244.0.5@cni0", "shop/web"] as const;
const TO_NODE_PORT = ["trace", "198.51.100.9@eth0", "192.0.2.10:30080"] as const;

/** Endpoints with such facts, the rest as it is. */
function endpoints(...all: readonly string[]): Pick<PlantedFault, "plant" | "fix" | "modes"> {
  return { modes: BOTH, plant: (lab) => lab.serve({ endpoints: all }), fix: restore };
}

const NOT_LOCAL = ["10.244.1.13@node-b"];

export const OBJECT_FAULTS: readonly PlantedFault[] = [
  {
    name: "no endpoint is ready",
    ...endpoints(...WEB_ENDPOINTS.map((one) => `${one} unready`)),
    ask: FROM_POD,
    says:
      /\n {2}10\.244\.0\.11:8080 +this node +left out +not ready\n {2}10\.244\.0\.12:8080 +this node +left out +not ready\n/,
    code: 0,
    packet: POD,
  },
  {
    name: "a Service has no endpoints",
    modes: BOTH,
    plant: async (lab) => {
      await lab.serve({ endpoints: NOT_LOCAL });
      await lab.manifests.replace("web.json", [webService()]);
      await lab.repair();
    },
    fix: restore,
    ask: FROM_POD,
    says: /Note: Service shop\/web:http has no endpoints/,
    code: 0,
    packet: POD,
  },
  {
    name: "an endpoint is terminating, and others are ready",
    ...endpoints("10.244.0.11@node-a draining", "10.244.0.12@node-a"),
    ask: FROM_POD,
    says: /\n {2}10\.244\.0\.11:8080 +this node +left out +terminating, and others are ready\n/,
    code: 0,
    packet: POD,
  },
  {
    name: "all endpoints have ended",
    ...endpoints(...WEB_ENDPOINTS.map((one) => `${one} gone`)),
    ask: FROM_POD,
    says: /\n {2}10\.244\.0\.11:8080 +this node +left out +terminating and not serving any more\n/,
    code: 0,
    packet: POD,
  },
  {
    name: "a hint is for another zone",
    ...endpoints("10.244.0.11@node-a zones=z2", "10.244.0.12@node-a zones=z1"),
    ask: FROM_POD,
    says: /\n {2}10\.244\.0\.11:8080 +this node +left out +hint: it is for zone z2, this is z1\n/,
    code: 0,
    packet: POD,
  },
  {
    name: "a hint is for another node",
    ...endpoints("10.244.0.11@node-a nodes=node-a", "10.244.0.12@node-a nodes=node-b"),
    ask: FROM_POD,
    says: /\n {2}10\.244\.0\.12:8080 +this node +left out +hint: it is for node node-b, this is node-a\n/,
    code: 0,
    packet: POD,
  },
  {
    name: "external policy Local, and no endpoint is on the node",
    modes: BOTH,
    plant: (lab) => lab.serve({ web: webService({ externalTrafficPolicy: "Local" }), endpoints: NOT_LOCAL }),
    fix: restore,
    ask: TO_NODE_PORT,
    says:
      /by its node port, policy Local\n {2}10\.244\.1\.13:8080 +other node +left out +policy Local: it is not on this node\n/,
    code: 0,
    packet: WORLD,
  },
  {
    name: "internal policy Local, and no endpoint is on the node",
    modes: BOTH,
    plant: (lab) => lab.serve({ web: webService({ internalTrafficPolicy: "Local" }), endpoints: NOT_LOCAL }),
    fix: restore,
    ask: FROM_POD,
    says:
      /by its cluster IP, policy Local\n {2}10\.244\.1\.13:8080 +other node +left out +policy Local: it is not on this node\n/,
    code: 0,
    packet: POD,
  },
  {
    name: "a client is in none of the source ranges",
    modes: BOTH,
    plant: (lab) => lab.serve({ balanced: balancedService({ loadBalancerSourceRanges: ["192.0.2.0/24"] }) }),
    fix: restore,
    ask: ["trace", "198.51.100.9@eth0", "203.0.113.20:80"],
    says: /Note: Source 198\.51\.100\.9 is in none of the source ranges of shop\/api: 192\.0\.2\.0\/24/,
    code: 0,
    packet: BALANCED,
  },
  {
    name: "clients stay with one endpoint",
    modes: BOTH,
    plant: (lab) => lab.serve({ web: webService({ sessionAffinity: "ClientIP" }) }),
    fix: restore,
    ask: FROM_POD,
    says: /^Service shop\/web:http \(TCP 80\), by its cluster IP, policy Cluster, clients stay for 10800 s$/m,
    code: 0,
  },
  {
    name: "node ports are open on addresses that the node has not",
    modes: BOTH,
    plant: (lab) => lab.serve({ flags: ["--nodeport-addresses=10.11.0.0/16"] }),
    fix: restore,
    ask: TO_NODE_PORT,
    flags: ["--nodeport-addresses=10.11.0.0/16"],
    says:
      /Note: Node port 30080 of shop\/web:http is not open on 192\.0\.2\.10: nodePortAddresses \(--nodeport-addresses\)/,
    code: 0,
    packet: WORLD,
  },
  {
    name: "a node port is asked for at an address of no node",
    modes: BOTH,
    plant: () => Promise.resolve(),
    fix: () => Promise.resolve(),
    ask: ["trace", "198.51.100.9@eth0", "203.0.113.50:30080"],
    says:
      /Note: 203\.0\.113\.50 is no address of this node, on whose own addresses node port 30080 of shop\/web:http is/,
    code: 0,
  },
  {
    name: "a port that the Service has not",
    modes: BOTH,
    plant: () => Promise.resolve(),
    fix: () => Promise.resolve(),
    ask: ["trace", "10.244.0.5@cni0", "10.96.0.1:81"],
    says: /Note: 10\.96\.0\.1 is an address of Service shop\/web, whose ports are 80\/TCP/,
    code: 0,
  },
  {
    name: "another Service has the address",
    modes: BOTH,
    plant: (lab) => lab.serve({ web: webService({ externalIPs: ["203.0.113.20"] }) }),
    fix: restore,
    ask: ["trace", "198.51.100.9@eth0", "203.0.113.20:80"],
    says: /Note: Service shop\/web asks for external IP 203\.0\.113\.20 .*and does not get it: .*shop\/api/,
    code: 0,
    packet: BALANCED,
    really: SOUND[BALANCED] ?? "",
  },
  {
    name: "the name of the node is wrong",
    modes: BOTH,
    plant: async (lab) => {
      // As a proxy of that name writes them, which check would not for an unknown Node.
      await lab.serve({
        node: { ...NODE_OBJECT, metadata: { name: "worker-9" } },
        web: webService({ externalTrafficPolicy: "Local" }),
        flags: ["--hostname-override=worker-9"],
      });
      await lab.manifests.replace("node.json", [NODE_OBJECT]);
    },
    fix: restore,
    ask: TO_NODE_PORT,
    flags: ["--hostname-override=worker-9"],
    says:
      /Wrong: There is no Node worker-9, .*; Node node-a has an address of this machine: --hostname-override=node-a/,
    packet: WORLD,
  },
  {
    name: "a manifest is broken",
    modes: BOTH,
    plant: (lab) => lab.manifests.replaceText("web.json", '{"kind": "List", "items": [\n'),
    fix: restore,
    ask: ["check"],
    says: /^Error: \S+web\.json.*: /m,
    packet: POD,
    really: SOUND[POD] ?? "",
  },
];
