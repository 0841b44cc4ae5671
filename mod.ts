/**
 * The library door of kproxy: the objects it reads, the state it keeps, and the decisions it makes about addresses, without
 * touching the machine.
 *
 * ```ts
 * import { cidrContains, parseCidr, parseIp } from "@kproxy/kproxy";
 *
 * const pods = parseCidr("10.0.0.0/8");
 * const pod = parseIp("10.1.2.3");
 * const isLocal = pods !== null && pod !== null && cidrContains(pods, pod);
 * ```
 *
 * @module
 */
export {
  type Cidr,
  cidrContains,
  type Ip,
  isLoopback,
  joinHostPort,
  parseCidr,
  parseIp,
} from "./lib/model/ip.ts";
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
export type {
  ApiObject,
  EndpointSlice,
  IpFamily,
  LoadBalancerIngress,
  NamespacedName,
  NodeObject,
  Protocol,
  Service,
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
