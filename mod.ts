/**
 * The library door of kproxy: from Kubernetes objects to the state of a node, to rules, to the way a packet takes. Nothing
 * behind it touches the machine.
 *
 * ```ts
 * import { ChangeTracker, decodeObject, IptablesSimulator, parseIptablesSave, planIptables, renderPlan } from "@kproxy/kproxy";
 *
 * const { objects } = decodeObject({ kind: "List", apiVersion: "v1", items: [] }, "example", { manifest: true });
 * const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
 * for (const object of objects) {
 *   if (object.kind === "Service") tracker.updateService(undefined, object);
 *   if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
 * }
 * const { state } = tracker.checkout();
 * ```
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
export { ChangeTracker, type ChangeTrackerOptions, type Checkout } from "./lib/model/change_tracker.ts";
export type { UnservedDestination } from "./lib/model/destination_claims.ts";
export type { UnreachableEndpoint, UnreachableEndpointsOptions } from "./lib/model/unreachable_endpoints.ts";
export type { Report } from "./lib/model/service_port.ts";
export { type CategorizedEndpoints, categorizeEndpoints } from "./lib/model/endpoint.ts";
export type { IpvsWishes } from "./lib/model/ipvs_wishes.ts";
export type { TopologyNote } from "./lib/model/topology.ts";
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
export type { Rejection } from "./lib/source/source.ts";

export { planIptables } from "./lib/backend/iptables/plan/plan.ts";
export { renderPlan } from "./lib/backend/iptables/plan/render.ts";
export type {
  BaseRules,
  DispatchRule,
  IptablesOptions,
  IptablesPlan,
  ServiceRules,
} from "./lib/backend/iptables/plan/ruleset.ts";
export type { JumpRule, PerTable, Table } from "./lib/netfilter/iptables_jumps.ts";
export { IptablesSimulator } from "./lib/sim/iptables/simulate.ts";

export { planNftables } from "./lib/backend/nftables/plan/plan.ts";
export { renderPlan as renderNftablesPlan } from "./lib/backend/nftables/diff/render.ts";
export { NftablesSimulator } from "./lib/sim/nftables/simulate.ts";
export type {
  AffinitySet,
  BaseRules as NftablesBaseRules,
  Chain,
  Container,
  Destination,
  Element,
  EndpointList,
  HookedChain,
  NftablesOptions,
  NftablesPlan,
  ServiceRules as NftablesServiceRules,
} from "./lib/backend/nftables/plan/ruleset.ts";

export { planIpvs } from "./lib/backend/ipvs/plan/plan.ts";
export { planTexts as ipvsPlanTexts, renderPlan as renderIpvsPlan } from "./lib/backend/ipvs/diff/render.ts";
export type { PlanTexts as IpvsPlanTexts } from "./lib/backend/ipvs/diff/render.ts";
export type {
  BaseRule as IpvsBaseRule,
  BaseRules as IpvsBaseRules,
  Entry as IpvsEntry,
  IpvsOptions,
  IpvsPlan,
  ServiceClaims,
  WantedServer,
} from "./lib/backend/ipvs/plan/ruleset.ts";
export { type IpvsKernel, IpvsSimulator } from "./lib/sim/ipvs/simulate.ts";

export {
  type NftChain,
  type NftContainer,
  type NftElement,
  type NftRule,
  type NftTable,
  NftTables,
} from "./lib/netfilter/nft_tables.ts";
export type {
  NftElements,
  NftExpression,
  NftKey,
  NftOperand,
  NftStatement,
  NftType,
  NftVerdict,
} from "./lib/netfilter/nft_rule.ts";
export type { NftBase, NftHook, NftSpec } from "./lib/netfilter/parse_nft_spec.ts";
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
export { type AffinityMemory, rememberOutcome, type Surroundings } from "./lib/sim/packet_walk.ts";
export {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
  type SavedTable,
} from "./lib/netfilter/iptables_save.ts";
export type {
  Flow,
  FlowHook,
  FlowOutcome,
  Packet,
  PacketProtocol,
  PacketState,
  RuleHit,
} from "./lib/sim/flow.ts";
export type { Simulator } from "./lib/sim/simulator.ts";
export type { Traffic } from "./lib/model/service_traffic.ts";
export type { Fraction } from "./lib/sim/fraction.ts";
