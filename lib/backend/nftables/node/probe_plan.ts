/**
 * A plan that uses everything the planner may ever write, for a dry run at the start.
 *
 * @module
 */
import { NO_IPVS_ANNOTATIONS } from "../../../model/ipvs_annotations.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Endpoint, ProxyState, ServicePort } from "../../../model/state.ts";
import { PROBE_TABLE } from "../plan/features.ts";
import { planNftables } from "../plan/plan.ts";
import type { NftablesOptions } from "../plan/ruleset.ts";
import { renderPlan, tableOf } from "../store/full_sync.ts";

/** Of documentation networks: nothing is really reached by them, and a dry run writes nothing anyway. */
const ADDRESSES: Readonly<
  Record<IpFamily, readonly [vip: string, local: string, remote: string, cidr: string]>
> = {
  IPv4: ["192.0.2.1", "192.0.2.11", "192.0.2.12", "192.0.2.0/28"],
  IPv6: ["2001:db8::1", "2001:db8::11", "2001:db8::12", "2001:db8::/120"],
};

/** The text of a table with one Service of every kind, for `nft --check`. */
export function probeText(options: NftablesOptions): string {
  const plan = planNftables(probeState(options.family), "all", options);
  return renderPlan(plan, tableOf(options.family, PROBE_TABLE));
}

function probeState(family: IpFamily): ProxyState {
  const [vip, local, remote, cidr] = ADDRESSES[family];
  const endpoint = (ip: string, isLocal: boolean): Endpoint => ({
    key: `${ip}:80`,
    ip,
    port: 80,
    isLocal,
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: [],
    nodeHints: [],
  });
  const endpoints = [endpoint(local, true), endpoint(remote, false)];
  const names = ["plain", "local", "sticky", "empty"] as const;
  const port = (name: typeof names[number], index: number): ServicePort => ({
    key: `probe/${name}/TCP`,
    namespacedName: `probe/${name}`,
    text: `probe/${name}`,
    portName: "",
    protocol: "TCP",
    createdAtSeconds: null,
    clusterIP: vip,
    port: index + 1,
    nodePort: 30000 + index,
    externalIPs: [],
    loadBalancerVIPs: [remote],
    loadBalancerSourceRanges: name === "local" ? [cidr] : [],
    stickyMaxAgeSeconds: name === "sticky" ? 60 : 0,
    externalPolicyLocal: name === "local",
    internalPolicyLocal: name === "local",
    healthCheckNodePort: 0,
    ipvs: NO_IPVS_ANNOTATIONS,
  });
  const ports = names.map(port);
  return {
    family,
    node: { name: "probe", zone: "" },
    services: new Map(ports.map((port) => [port.namespacedName, [port]])),
    endpoints: new Map(
      ports.map((port) => [
        port.namespacedName,
        new Map(port.namespacedName === "probe/empty" ? [] : [[port.key, endpoints]]),
      ]),
    ),
    endpointCount: 6,
    tooLarge: new Map(),
  };
}
