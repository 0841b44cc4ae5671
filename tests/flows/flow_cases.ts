/**
 * The one table of flow cases, for every backend.
 *
 * @module
 */
import { AFFINITY_CASES } from "./cases/affinity.ts";
import { CLUSTER_IP_CASES } from "./cases/cluster_ip.ts";
import { CONTESTED_CASES } from "./cases/contested.ts";
import { ENDPOINT_CASES } from "./cases/endpoints.ts";
import { EXTERNAL_IP_CASES } from "./cases/external_ip.ts";
import { EXTERNAL_IP_POLICY_CASES } from "./cases/external_ip_policy.ts";
import { LOAD_BALANCER_CASES } from "./cases/load_balancer.ts";
import { NODE_CASES } from "./cases/node.ts";
import { NODE_PORT_CASES } from "./cases/node_port.ts";
import { SERVICE_CASES } from "./cases/services.ts";
import type { FlowCase } from "./flow_case.ts";

/**
 * What is decided before a mode comes into it: which endpoints serve, and which Service has an address. The simulators run these in
 * each mode, real packets in mode nftables alone, and in others where packets fare otherwise there.
 */
export const MODEL_CASES: readonly FlowCase[] = [...ENDPOINT_CASES, ...CONTESTED_CASES];

export const FLOW_CASES: readonly FlowCase[] = [
  ...CLUSTER_IP_CASES,
  ...NODE_PORT_CASES,
  ...EXTERNAL_IP_CASES,
  ...LOAD_BALANCER_CASES,
  ...EXTERNAL_IP_POLICY_CASES,
  ...AFFINITY_CASES,
  ...SERVICE_CASES,
  ...NODE_CASES,
  ...MODEL_CASES,
];
