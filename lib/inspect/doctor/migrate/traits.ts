/**
 * What clients notice of a mode: how each mode behaves where modes differ, of a port of a Service and of all Services.
 * `docs/modes.md` tells the same, and the flow cases of the tests hold it.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { formatDuration } from "../../../config/duration.ts";
import { nodePortAddresses } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ServicePort } from "../../../model/state.ts";

/** The modes that a node can be moved to. */
export const MIGRATION_MODES = ["iptables", "ipvs", "nftables"] as const;

export type MigrationMode = typeof MIGRATION_MODES[number];

/** One port of a Service, and what it is looked at with. */
export interface Subject {
  readonly port: ServicePort;
  readonly family: IpFamily;
  readonly config: KubeProxyConfiguration;
}

/** Something that modes do differently. */
export interface Trait<T> {
  readonly topic: (subject: T) => string;
  /** What the mode does, in words; null where this says nothing about the subject. */
  readonly behaviour: (mode: MigrationMode, subject: T) => string | null;
}

/** Node port addresses as they are in force in a mode, from a configuration that was completed for any mode. */
function addressesIn(
  { mode: configuredMode, nodePortAddresses: found }: KubeProxyConfiguration,
  mode: MigrationMode,
): readonly string[] | null {
  // What nftables mode sets where nothing was configured looks as if it were.
  const isDefault = found === null || found.length === 0 ||
    (configuredMode === "nftables" && found.join() === "primary");
  if (!isDefault) return found;
  return mode === "nftables" ? ["primary"] : null;
}

function isReachableFromOutside({ nodePort, loadBalancerVIPs, externalIPs }: ServicePort): boolean {
  return nodePort > 0 || loadBalancerVIPs.length > 0 || externalIPs.length > 0;
}

/** Addresses beside the cluster IP. */
function outerAddresses({ loadBalancerVIPs, externalIPs }: ServicePort): readonly string[] {
  return [...loadBalancerVIPs, ...externalIPs];
}

const LOCALHOST: Trait<Subject> = {
  topic: ({ port }) => `node port ${port.nodePort} on 127.0.0.1`,
  behaviour: (mode, { port, family, config }) => {
    if (port.nodePort === 0 || family !== "IPv4") return null;
    const isServed = mode === "iptables" && config.iptables.localhostNodePorts &&
      nodePortAddresses("IPv4", addressesIn(config, mode)).containsIPv4Loopback;
    return isServed ? "answers" : "does not answer";
  },
};

const NODE_PORT_ADDRESSES: Trait<Subject> = {
  topic: ({ port, family }) => `node port ${port.nodePort} (${family})`,
  behaviour: (mode, { port, config }) => {
    if (port.nodePort === 0) return null;
    const addresses = addressesIn(config, mode);
    if (addresses === null) return "answers on every address of the node";
    return addresses.join() === "primary"
      ? "answers on the node's primary address only (see nodePortAddresses)"
      : `answers on ${addresses.join(", ")}`;
  },
};

const EXTERNAL_LOCAL: Trait<Subject> = {
  topic: () => "externalTrafficPolicy Local",
  behaviour: (mode, { port }) => {
    if (!port.externalPolicyLocal || !isReachableFromOutside(port)) return null;
    return mode === "ipvs"
      ? "without an endpoint on the node those of other nodes answer, and pods of the node get only its own"
      : "without an endpoint on the node clients from outside are dropped, and pods of the node get every endpoint";
  },
};

const INTERNAL_LOCAL: Trait<Subject> = {
  topic: () => "internalTrafficPolicy Local",
  behaviour: (mode, { port }) => {
    if (!port.internalPolicyLocal) return null;
    if (mode !== "ipvs") return "without an endpoint on the node pods are dropped";
    return isReachableFromOutside(port)
      ? "without an endpoint on the node those of other nodes answer"
      : "without an endpoint on the node pods are refused";
  },
};

const AFFINITY: Trait<Subject> = {
  topic: ({ port }) => `affinity of clients for ${port.stickyMaxAgeSeconds} s`,
  behaviour: (mode, { port }) => {
    if (port.stickyMaxAgeSeconds === 0) return null;
    return mode === "ipvs"
      ? "counts for each address and port by itself, begins anew with each connection, and lasts until the kernel has " +
        "forgotten the last of them (two minutes after TCP closed)"
      : "counts for the port of the Service, whichever address is used, from the last new connection on";
  },
};

const SOURCE_RANGES: Trait<Subject> = {
  topic: () => "loadBalancerSourceRanges",
  behaviour: (mode, { port }) => {
    if (port.loadBalancerSourceRanges.length === 0 || port.loadBalancerVIPs.length === 0) return null;
    if (mode === "iptables") return "clients outside are dropped; without endpoints everybody is refused";
    const first = "clients outside are dropped, with endpoints or without";
    return mode === "ipvs" ? `${first}; the node itself always gets in` : first;
  },
};

const SCHEDULER: Trait<Subject> = {
  topic: () => "annotation kproxy.io/ipvs-scheduler",
  behaviour: (mode, { port: { ipvs: { scheduler } } }) => {
    if (scheduler === "") return null;
    return mode === "ipvs"
      ? `endpoints are chosen by ${scheduler}`
      : "has no effect: endpoints are chosen at random";
  },
};

const GRACEFUL: Trait<Subject> = {
  topic: () => "annotation kproxy.io/ipvs-graceful-termination: false",
  behaviour: (mode, { port: { ipvs: { graceful }, protocol } }) => {
    if (graceful || protocol !== "TCP") return null;
    return mode === "ipvs"
      ? "connections to an endpoint that leaves are cut at once"
      : "has no effect: connections to an endpoint that leaves go on";
  },
};

const SCTP: Trait<Subject> = {
  topic: () => "SCTP",
  behaviour: (mode, { port }) => {
    if (port.protocol !== "SCTP") return null;
    return mode === "ipvs"
      ? "associations with an endpoint that leaves are cut at once"
      : "associations with an endpoint that leaves go on";
  },
};

const OUTER_ADDRESSES: Trait<Subject> = {
  topic: ({ port }) => `addresses ${outerAddresses(port).join(", ")}`,
  behaviour: (mode, { port, config }) => {
    if (outerAddresses(port).length === 0) return null;
    if (mode !== "ipvs") return "other ports travel on to wherever the address is";
    const arp = config.ipvs.strictARP
      ? ""
      : "; it answers ARP for them unless ipvs.strictARP is on, which MetalLB and kube-vip need";
    return `are on the node itself (kube-ipvs0): other ports of them are refused${arp}`;
  },
};

/** In the order of the report. */
export const SERVICE_TRAITS: readonly Trait<Subject>[] = [
  NODE_PORT_ADDRESSES,
  LOCALHOST,
  EXTERNAL_LOCAL,
  INTERNAL_LOCAL,
  AFFINITY,
  SOURCE_RANGES,
  OUTER_ADDRESSES,
  SCHEDULER,
  GRACEFUL,
  SCTP,
];

/** A trait of all Services: by mode, and by the configuration where it decides. */
function everywhere(
  topic: string,
  words: Readonly<Record<MigrationMode, string | ((config: KubeProxyConfiguration) => string | null)>>,
): Trait<KubeProxyConfiguration> {
  return {
    topic: () => topic,
    behaviour: (mode, config) => {
      const said = words[mode];
      return typeof said === "string" ? said : said(config);
    },
  };
}

/** What counts for every Service, or for the node. */
export const COMMON_TRAITS: readonly Trait<KubeProxyConfiguration>[] = [
  everywhere("choice of endpoint", {
    iptables: "at random",
    ipvs: ({ ipvs: { scheduler } }) => `by the scheduler ${scheduler || "rr"}`,
    nftables: "at random",
  }),
  everywhere("other ports of a cluster IP, and ping", {
    iptables: "travel on untranslated",
    ipvs: "are refused",
    nftables: "are refused",
  }),
  everywhere("addresses of ServiceCIDRs that no Service has", {
    iptables: "travel on",
    ipvs: "travel on",
    nftables: "are dropped",
  }),
  everywhere("TCP connections to an endpoint that leaves", {
    iptables: "go on until they end",
    ipvs: ({ kproxy: { ipvsTerminationDeadline: ms } }) =>
      ms === 0 ? "go on until they end" : `go on for ${formatDuration(ms)} at most`,
    nftables: "go on until they end",
  }),
  everywhere("packets that connection tracking calls invalid", {
    iptables: ({ conntrack: { tcpBeLiberal } }) => tcpBeLiberal ? "do as the kernel does" : "are dropped",
    ipvs: "do as the kernel does",
    nftables: "do as the kernel does",
  }),
  everywhere("a chain FORWARD of the node that drops", {
    iptables: "is opened for Services",
    ipvs: "is not passed by packets of Services",
    nftables: "must be opened for Services by hand",
  }),
  everywhere("programs of the node that listen on every address", {
    iptables: "do not matter to Services",
    ipvs: "are not reached through addresses of Services",
    nftables: "do not matter to Services",
  }),
  everywhere("traffic counters of Services (kproxy.trafficCounters)", {
    iptables: ({ kproxy }) => kproxy.trafficCounters ? "are not there" : null,
    ipvs: ({ kproxy }) => kproxy.trafficCounters ? "are not there" : null,
    nftables: ({ kproxy }) => kproxy.trafficCounters ? "count" : null,
  }),
];
