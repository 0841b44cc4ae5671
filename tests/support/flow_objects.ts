/**
 * What a node of the flow cases with real packets has and is told beside the objects of a case.
 *
 * @module
 */
import type { FlowOptions } from "../flows/flow_case.ts";
import { service } from "../flows/objects.ts";
import { NODE_OBJECT } from "./node_lab.ts";

/** The Node in a zone; `""`: in none. */
export function nodeInZone(zone: string): Record<string, unknown> {
  const labels = zone === "" ? {} : { "topology.kubernetes.io/zone": zone };
  return { ...NODE_OBJECT, metadata: { ...NODE_OBJECT.metadata, labels } };
}

/**
 * A Service whose sync shows that everything that was written with it is in force, in both families.
 *
 * @param index 0 to 255
 */
export function marker(index: number): Record<string, unknown> {
  return service(`kp/marker-${index}`, {
    clusterIP: `10.111.0.${index}`,
    clusterIPs: [`10.111.0.${index}`, `fd00:10:111::${index.toString(16)}`],
    ipFamilies: ["IPv4", "IPv6"],
    ports: [":1"],
  });
}

/** A flag of kproxy; none if the value is empty. */
export function flag(name: string, value: string | number | boolean): string[] {
  return value === "" ? [] : [`--${name}=${value}`];
}

/** The flags for the options that are the same in iptables and IPVS mode. */
export function commonFlags(
  options: Pick<
    FlowOptions,
    | "detectLocalMode"
    | "clusterCIDR"
    | "bridgeInterface"
    | "interfaceNamePrefix"
    | "masqueradeAll"
    | "masqueradeBit"
    | "nodePortAddresses"
  >,
): string[] {
  return [
    "--hostname-override=node-a",
    ...flag("detect-local-mode", options.detectLocalMode),
    ...flag("cluster-cidr", options.clusterCIDR),
    ...flag("pod-bridge-interface", options.bridgeInterface),
    ...flag("pod-interface-name-prefix", options.interfaceNamePrefix),
    ...flag("masquerade-all", options.masqueradeAll),
    ...flag("iptables-masquerade-bit", options.masqueradeBit),
    ...flag("nodeport-addresses", (options.nodePortAddresses ?? []).join(",")),
  ];
}

/** What a configuration file says of a case. */
type ConfiguredOptions = Pick<
  FlowOptions,
  | "detectLocalMode"
  | "clusterCIDR"
  | "bridgeInterface"
  | "interfaceNamePrefix"
  | "masqueradeAll"
  | "masqueradeBit"
  | "localhostNodePorts"
  | "nodePortAddresses"
  | "externalIPPolicy"
>;

/** True if no flag says it. */
export function hasPolicy({ externalIPPolicy }: Pick<FlowOptions, "externalIPPolicy">): boolean {
  return Object.values(externalIPPolicy).some((value) => value !== null);
}

/** All of that as a configuration file would hold it, for any mode. */
export function configuration(mode: string, options: ConfiguredOptions): Record<string, unknown> {
  const { masqueradeAll, masqueradeBit, localhostNodePorts } = options;
  // None at all would be read as not said, which is a second.
  const common = { masqueradeAll, masqueradeBit, minSyncPeriod: "1ms" };
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode,
    detectLocalMode: options.detectLocalMode,
    clusterCIDR: options.clusterCIDR,
    detectLocal: {
      bridgeInterface: options.bridgeInterface,
      interfaceNamePrefix: options.interfaceNamePrefix,
    },
    iptables: { ...common, localhostNodePorts },
    nftables: common,
    kproxy: { externalIPPolicy: options.externalIPPolicy },
    ...(options.nodePortAddresses === null ? {} : { nodePortAddresses: options.nodePortAddresses }),
  };
}
