/**
 * Changes if the node ran another mode: each mode's behaviour where modes differ, compared for every Service.
 * `docs/modes.md` describes the same, and the flow cases test it.
 *
 * @module
 */
import { formatDuration } from "../../config/value_texts.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { compareBytes } from "../../model/names.ts";
import { nodePortAddresses } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { RenderedMode } from "../desired/desired.ts";

export interface Difference {
  readonly topic: string;
  readonly from: string;
  readonly to: string;
}

export interface ChangedService {
  readonly namespace: string;
  readonly name: string;
  /** Differences, at least one; each topic once. */
  readonly differences: readonly Difference[];
}

export interface Migration {
  readonly from: RenderedMode;
  readonly to: RenderedMode;
  /** Source of the Services, e.g. the address of the API server. */
  readonly objectsFrom: string;
  readonly serviceCount: number;
  /** Differences for every Service, and for the node. */
  readonly everyService: readonly Difference[];
  /** Services with differences of their own, by namespace and name. */
  readonly services: readonly ChangedService[];
}

export interface MigrationInput extends Pick<Migration, "from" | "to" | "objectsFrom"> {
  readonly config: KubeProxyConfiguration;
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
}

export function compareModes({ from, to, config, states, objectsFrom }: MigrationInput): Migration {
  /** Service → topic → difference. */
  const changed = new Map<string, Map<string, Difference>>();
  const names = new Set<string>();
  for (const [family, { services }] of states) {
    for (const [name, ports] of services) {
      names.add(name);
      for (const port of ports) {
        for (const difference of compare(SERVICE_TRAITS, { port, family, config }, { from, to })) {
          const known = changed.get(name) ?? new Map<string, Difference>();
          if (!known.has(difference.topic)) known.set(difference.topic, difference);
          changed.set(name, known);
        }
      }
    }
  }
  return {
    from,
    to,
    objectsFrom,
    serviceCount: names.size,
    everyService: compare(COMMON_TRAITS, config, { from, to }),
    services: [...changed].sort(([one], [other]) => compareBytes(one, other)).map(([key, differences]) => {
      const [namespace = "", name = ""] = key.split("/", 2);
      return { namespace, name, differences: [...differences.values()] };
    }),
  };
}

function compare<T>(
  traits: readonly Trait<T>[],
  subject: T,
  { from, to }: Pick<Migration, "from" | "to">,
): readonly Difference[] {
  return traits.flatMap(({ topic, isAbout = () => true, ...behaviour }) => {
    if (!isAbout(subject)) return [];
    const [before, after] = [from, to].map((mode) => {
      const said = behaviour[mode];
      return typeof said === "string" ? said : said(subject);
    });
    if (before === undefined || after === undefined || before === after) return [];
    return [{ topic: typeof topic === "string" ? topic : topic(subject), from: before, to: after }];
  });
}

/** A topic in which modes differ, and each mode's behaviour, in words. */
interface Trait<T> extends Readonly<Record<RenderedMode, string | ((subject: T) => string)>> {
  readonly topic: string | ((subject: T) => string);
  /** False for subjects without the topic. @default {always} */
  readonly isAbout?: (subject: T) => boolean;
}

/** A Service's port, with the facts that its behaviour depends on. */
interface Subject {
  readonly port: ServicePort;
  readonly family: IpFamily;
  readonly config: KubeProxyConfiguration;
}

/** nodePortAddresses in a mode, from a configuration that was completed for any mode. */
function addressesIn(
  { mode: configuredMode, nodePortAddresses: found }: KubeProxyConfiguration,
  mode: RenderedMode,
): readonly string[] | null {
  // The default that nftables mode sets looks as if it were configured.
  const isDefault = found === null || found.length === 0 ||
    (configuredMode === "nftables" && found.join() === "primary");
  if (!isDefault) return found;
  return mode === "nftables" ? ["primary"] : null;
}

function nodePortAnswers(mode: RenderedMode): (subject: Subject) => string {
  return ({ config }) => {
    const addresses = addressesIn(config, mode);
    if (addresses === null) return "answers on every address of the node";
    return addresses.join() === "primary"
      ? "answers on the node's primary address only (see nodePortAddresses)"
      : `answers on ${addresses.join(", ")}`;
  };
}

function isReachableFromOutside({ port: { nodePort, loadBalancerVIPs, externalIPs } }: Subject): boolean {
  return nodePort > 0 || loadBalancerVIPs.length > 0 || externalIPs.length > 0;
}

function outerAddresses({ port: { loadBalancerVIPs, externalIPs } }: Subject): readonly string[] {
  return [...loadBalancerVIPs, ...externalIPs];
}

function inBoth(words: string): { readonly iptables: string; readonly nftables: string } {
  return { iptables: words, nftables: words };
}

const SERVICE_TRAITS: readonly Trait<Subject>[] = [
  {
    topic: ({ port, family }) => `node port ${port.nodePort} (${family})`,
    isAbout: ({ port }) => port.nodePort > 0,
    iptables: nodePortAnswers("iptables"),
    ipvs: nodePortAnswers("ipvs"),
    nftables: nodePortAnswers("nftables"),
  },
  {
    topic: ({ port }) => `node port ${port.nodePort} on 127.0.0.1`,
    isAbout: ({ port, family }) => port.nodePort > 0 && family === "IPv4",
    iptables: ({ config }) =>
      config.iptables.localhostNodePorts &&
        nodePortAddresses("IPv4", addressesIn(config, "iptables")).containsIPv4Loopback
        ? "answers"
        : "does not answer",
    ipvs: "does not answer",
    nftables: "does not answer",
  },
  {
    topic: "externalTrafficPolicy Local",
    isAbout: (subject) => subject.port.externalPolicyLocal && isReachableFromOutside(subject),
    ipvs:
      "without an endpoint on the node those of other nodes answer, and pods of the node get only its own",
    ...inBoth(
      "without an endpoint on the node clients from outside are dropped, and pods of the node get every endpoint",
    ),
  },
  {
    topic: "internalTrafficPolicy Local",
    isAbout: ({ port }) => port.internalPolicyLocal,
    ipvs: (subject) =>
      isReachableFromOutside(subject)
        ? "without an endpoint on the node those of other nodes answer"
        : "without an endpoint on the node pods are refused",
    ...inBoth("without an endpoint on the node pods are dropped"),
  },
  {
    topic: ({ port }) => `affinity of clients for ${port.stickyMaxAgeSeconds} s`,
    isAbout: ({ port }) => port.stickyMaxAgeSeconds > 0,
    ipvs:
      "counts for each address and port by itself, begins anew with each connection, and lasts until the kernel has " +
      "forgotten the last of them (two minutes after TCP closed)",
    ...inBoth(
      "counts for the port of the Service, whichever address is used, from the last new connection on",
    ),
  },
  {
    topic: "loadBalancerSourceRanges",
    isAbout: ({ port }) => port.loadBalancerSourceRanges.length > 0 && port.loadBalancerVIPs.length > 0,
    iptables: "clients outside are dropped; without endpoints all clients are refused",
    ipvs: "clients outside are dropped, with endpoints or without; the node itself always gets in",
    nftables: "clients outside are dropped, with endpoints or without",
  },
  {
    topic: (subject) => `addresses ${outerAddresses(subject).join(", ")}`,
    isAbout: (subject) => outerAddresses(subject).length > 0,
    ipvs: ({ config }) => {
      const arp = config.ipvs.strictARP
        ? ""
        : "; it answers ARP for them unless ipvs.strictARP is on, which MetalLB and kube-vip need";
      return `are on the node itself (kube-ipvs0): other ports of them are refused${arp}`;
    },
    ...inBoth("other ports travel on to wherever the address is"),
  },
  {
    topic: "annotation kproxy.io/ipvs-scheduler",
    isAbout: ({ port }) => port.ipvs.scheduler !== "",
    ipvs: ({ port }) => `endpoints are chosen by ${port.ipvs.scheduler}`,
    ...inBoth("has no effect: endpoints are chosen at random"),
  },
  {
    topic: "annotation kproxy.io/ipvs-graceful-termination: false",
    isAbout: ({ port }) => !port.ipvs.graceful && port.protocol === "TCP",
    ipvs: "connections to an endpoint that leaves are cut at once",
    ...inBoth("has no effect: connections to an endpoint that leaves go on"),
  },
  {
    topic: "SCTP",
    isAbout: ({ port }) => port.protocol === "SCTP",
    ipvs: "associations with an endpoint that leaves are cut at once",
    ...inBoth("associations with an endpoint that leaves go on"),
  },
];

/** Topics that concern every Service, or the node. */
const COMMON_TRAITS: readonly Trait<KubeProxyConfiguration>[] = [
  {
    topic: "choice of endpoint",
    ipvs: ({ ipvs: { scheduler } }) => `by the scheduler ${scheduler || "rr"}`,
    ...inBoth("at random"),
  },
  {
    topic: "other ports of a cluster IP, and ping",
    iptables: "travel on untranslated",
    ipvs: "are refused",
    nftables: "are refused",
  },
  {
    topic: "addresses of ServiceCIDRs that no Service has",
    iptables: "travel on",
    ipvs: "travel on",
    nftables: "are dropped",
  },
  {
    topic: "TCP connections to an endpoint that leaves",
    ipvs: ({ kproxy: { ipvsTerminationDeadline: ms } }) =>
      ms === 0 ? "go on until they end" : `go on for ${formatDuration(ms)} at most`,
    ...inBoth("go on until they end"),
  },
  {
    topic: "packets that connection tracking calls invalid",
    iptables: ({ conntrack }) => conntrack.tcpBeLiberal ? "do as the kernel does" : "are dropped",
    ipvs: "do as the kernel does",
    nftables: "do as the kernel does",
  },
  {
    topic: "a chain FORWARD of the node that drops",
    iptables: "is opened for Services",
    ipvs: "is not passed by packets of Services",
    nftables: "must be opened for Services by hand",
  },
  {
    topic: "programs of the node that listen on every address",
    ipvs: "are not reached through addresses of Services",
    ...inBoth("do not matter to Services"),
  },
  {
    topic: "traffic counters of Services (kproxy.trafficCounters)",
    isAbout: ({ kproxy }) => kproxy.trafficCounters,
    iptables: "are not there",
    ipvs: "are not there",
    nftables: "count",
  },
];
