/**
 * Library entry point of kproxy: from Kubernetes objects to a node's state, to its rules, and to packets' paths.
 *
 * {@linkcode previewNode} plans a node for given objects in one call; it decodes nothing and reads nothing from the machine.
 *
 * ```ts
 * import { decodeObject, previewNode } from "@kproxy/kproxy";
 *
 * const manifests = [
 *   {
 *     apiVersion: "v1",
 *     kind: "Service",
 *     metadata: { namespace: "shop", name: "web" },
 *     spec: { clusterIP: "10.96.10.1", ports: [{ port: 80, targetPort: 8080 }] },
 *   },
 *   {
 *     apiVersion: "discovery.k8s.io/v1",
 *     kind: "EndpointSlice",
 *     metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
 *     addressType: "IPv4",
 *     ports: [{ port: 8080 }],
 *     endpoints: [{ addresses: ["10.244.0.11"] }],
 *   },
 * ];
 * const objects = manifests.flatMap((manifest) => decodeObject(manifest, "example", { manifest: true }).objects);
 * const node = previewNode(objects, { nodeName: "node-a", mode: "nftables" });
 *
 * if (!node.render("IPv4").includes("10.244.0.11 . 8080")) throw new Error("The endpoint is in no rule");
 * const { outcome } = node.trace("10.244.1.5", "shop/web");
 * if (!outcome.startsWith("10.244.0.11:8080")) throw new Error(`The packet ends: ${outcome}`);
 * ```
 *
 * Each step is also available by itself: {@linkcode decodeObject} (JSON to objects), {@linkcode ChangeTracker} (objects to the state
 * of a node), {@linkcode planIptables}, {@linkcode planNftables}, {@linkcode planIpvs} (state to rules), {@linkcode renderPlan},
 * {@linkcode renderNftablesPlan}, {@linkcode renderIpvsPlan} (rules to text), {@linkcode RulesetSimulator} (rules of any mode and
 * a packet to its outcome).
 *
 * The informer calls handlers for objects and for each of their changes:
 *
 * ```ts
 * import { inform, openManifests } from "@kproxy/kproxy";
 *
 * const folder = await Deno.makeTempDir();
 * await Deno.writeTextFile(`${folder}/web.yaml`, `
 * apiVersion: v1
 * kind: Service
 * metadata: { namespace: shop, name: web }
 * spec: { clusterIP: 10.96.10.1, ports: [{ port: 80 }] }
 * `);
 *
 * const seen: string[] = [];
 * const ending = new AbortController();
 * await inform(await openManifests([folder]), {
 *   services: {
 *     add: ({ namespace, name }) => void seen.push(`${namespace}/${name}`),
 *     synced: () => ending.abort(),
 *   },
 *   rejected: ({ where, message }) => {
 *     throw new Error(`${where}: ${message}`);
 *   },
 * }, ending.signal);
 * await Deno.remove(folder, { recursive: true });
 * if (seen.join() !== "shop/web") throw new Error(`Saw ${seen.join()}`);
 * ```
 *
 * {@linkcode openCluster} instead of {@linkcode openManifests} takes the objects from an API server. These two and
 * {@linkcode readManifests} read files or the network; everything else needs no permission.
 *
 * @module
 */
export {
  ConfigError,
  ExecError,
  formatProblem,
  type Problem,
  SyncError,
  type SyncPhase,
  UnsupportedError,
  UsageError,
} from "./lib/errors.ts";

export {
  type Cidr,
  cidrContains,
  type Ip,
  isLoopback,
  joinHostPort,
  parseCidr,
  parseIp,
} from "./lib/model/ip.ts";
export type {
  ApiObject,
  EndpointSlice,
  IpFamily,
  LoadBalancerIngress,
  NamespacedName,
  NodeObject,
  Protocol,
  Service,
  ServiceCidr,
  ServicePortSpec,
  SliceEndpoint,
  SlicePort,
  TrafficPolicy,
} from "./lib/model/objects.ts";
export type {
  Changed,
  Endpoint,
  NodeFacts,
  ProxyState,
  ServicePort,
  ServicePortKey,
} from "./lib/model/state.ts";
export {
  ChangeTracker,
  type ChangeTrackerOptions,
  type Checkout,
  type UnreachableEndpoint,
} from "./lib/model/change_tracker.ts";
export type { ExternalIpPolicy } from "./lib/model/address_policy.ts";
export type { UnservedDestination, UnservedOfService } from "./lib/model/destination_claims.ts";
export type { Report } from "./lib/model/service_port.ts";
export { type CategorizedEndpoints, categorizeEndpoints } from "./lib/model/endpoint.ts";
export type { IpvsAnnotations } from "./lib/model/ipvs_annotations.ts";
export type { TopologyNote } from "./lib/model/endpoint.ts";
export {
  type LocalDetector,
  matchingNodeIps,
  type NodeIps,
  nodeIps,
  type NodePortAddresses,
  nodePortAddresses,
} from "./lib/model/node.ts";

export { decodeObject } from "./lib/source/decode/decode.ts";
export type { DecodeOptions } from "./lib/source/decode/decode_values.ts";

export type { FamilySettings } from "./lib/backend/planning.ts";

export { planIptables, renderPlan } from "./lib/backend/iptables/plan/plan.ts";
export type {
  BaseRules,
  DispatchRule,
  IptablesOptions,
  IptablesPlan,
  ServiceRules,
} from "./lib/backend/iptables/plan/ruleset.ts";
export type { JumpRule, PerTable, Table } from "./lib/netfilter/iptables_jumps.ts";

export { planNftables } from "./lib/backend/nftables/plan/plan.ts";
export { renderPlan as renderNftablesPlan } from "./lib/backend/nftables/store/full_sync.ts";
export type {
  BaseRules as NftablesBaseRules,
  Destination,
  EndpointList,
  NftablesOptions,
  NftablesPlan,
  ServiceRules as NftablesServiceRules,
} from "./lib/backend/nftables/plan/ruleset.ts";
export type { Chain, Container, Element, NftObjects } from "./lib/netfilter/nft_objects.ts";

export { planIpvs } from "./lib/backend/ipvs/plan/plan.ts";
export { planTexts as ipvsPlanTexts, renderPlan as renderIpvsPlan } from "./lib/backend/ipvs/store/store.ts";
export type { PlanTexts as IpvsPlanTexts } from "./lib/backend/ipvs/store/store.ts";
export type {
  BaseRule as IpvsBaseRule,
  BaseRules as IpvsBaseRules,
  Entry as IpvsEntry,
  IpvsOptions,
  IpvsPlan,
  ServiceObjects as IpvsServiceObjects,
  WantedServer,
} from "./lib/backend/ipvs/plan/ruleset.ts";

export {
  type ListedContainer,
  type ListedTable,
  type ListingProblem,
  type NftListing,
  parseNftListing,
} from "./lib/netfilter/nft_listing.ts";
export { parseNftScript } from "./lib/netfilter/nft_script.ts";
export {
  parseSets,
  type SavedSet,
  SET_TYPES,
  type SetDefinition,
  type SetEntry,
  type SetType,
} from "./lib/netfilter/ipset.ts";
export {
  type IpvsTable,
  parseIpvsTable,
  type RealServer,
  type SavedVirtualServer,
  type VirtualServer,
} from "./lib/netfilter/ipvs.ts";
export { type AffinityMemory, type HostState, rememberOutcome } from "./lib/sim/packet_walk.ts";
export {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
  type SavedTable,
} from "./lib/netfilter/iptables_save.ts";
export { formatFlow, parsePacket } from "./lib/sim/flow.ts";
export type {
  Flow,
  FlowHook,
  FlowOutcome,
  Packet,
  PacketProtocol,
  PacketState,
  RuleHit,
} from "./lib/sim/flow.ts";
export {
  emptySnapshot,
  type IptablesSnapshot,
  type IpvsSnapshot,
  type RulesetSnapshot,
} from "./lib/sim/ruleset_snapshot.ts";
export type { HeldPortal, PortalSnapshot } from "./lib/sim/portals.ts";
export { RulesetSimulator, type Simulator } from "./lib/sim/ruleset_simulator.ts";
export type { Traffic } from "./lib/model/service_traffic.ts";
export type { Fraction } from "./lib/sim/flow.ts";

export {
  type NodePreview,
  type PacketTrace,
  previewNode,
  type PreviewOptions,
} from "./lib/inspect/desired/preview.ts";
export type { RenderedMode } from "./lib/inspect/desired/desired.ts";

export { inform, type InformerHandlers, type ObjectHandlers } from "./lib/source/informer.ts";
export { type ManifestsOptions, openManifests } from "./lib/source/files/file_source.ts";
export {
  type ReadManifests,
  readManifests,
  type ReadManifestsOptions,
} from "./lib/source/files/file_source.ts";
export type { ForeignObjects } from "./lib/source/files/manifest_store.ts";
export { type ClusterOptions, openCluster } from "./lib/source/kube/api_access.ts";
export type {
  Rejection,
  ResourceEventHandler,
  ResourceKind,
  RestoredState,
  Source,
  SourceEvent,
} from "./lib/source/source.ts";
export type { Logger, LogValues } from "./lib/observe/log.ts";
