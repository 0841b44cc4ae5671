/**
 * Base rules: objects of the table that do not depend on Services.
 *
 * @module
 */
import { isLoopback, parseIp } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { formatMark } from "../../planning.ts";
import type { Chain, Container, Element } from "../../../netfilter/nft_objects.ts";
import {
  CHAINS,
  endpointMapName,
  FAMILY_WORDS,
  LAYOUT_SET,
  MAX_ENDPOINTS,
  PROTOCOL_WORDS,
  SETS,
  TABLE_COMMENT,
} from "./chains.ts";
import type { BaseRules, NftablesOptions } from "./ruleset.ts";
import { type RuleWords, ruleWords } from "./service_rules.ts";

/** Looks a destination up by address, protocol and port. */
const SERVICE_KEY = "meta l4proto . th dport vmap";

function planContainers(
  { family, objectComments, trafficCounters = false }: NftablesOptions,
): readonly Container[] {
  const { addressType } = FAMILY_WORDS[family];
  const service = `type ${addressType} . inet_proto . inet_service : verdict ;`;
  const nodePort = "type inet_proto . inet_service : verdict ;";
  const container: MakeContainer = (kind, name, spec, comment) => ({
    name,
    kind,
    spec,
    comment: objectComments ? comment : "",
  });
  const containers = [
    container("set", LAYOUT_SET, `type ${addressType} ;`, "always empty: its name tells the layout"),
    container("set", SETS.clusterIps, `type ${addressType} ;`, "cluster IPs, with or without endpoints"),
    container("set", SETS.nodePortIps, `type ${addressType} ;`, "addresses that serve node ports"),
    container(
      "set",
      SETS.hairpins,
      `type ${addressType} . ${addressType} . inet_proto . inet_service ;`,
      "pods that reach themselves",
    ),
    container("map", SETS.noEndpointServices, service, "what becomes of packets that have nowhere to go"),
    container("map", SETS.noEndpointNodePorts, nodePort, "the same, to node ports"),
    container("map", SETS.firewallIps, service, "destinations for some sources only"),
    container("map", SETS.serviceIps, service, "cluster, external and load-balancer IPs"),
    container("map", SETS.serviceNodePorts, nodePort, "node ports"),
  ];
  if (trafficCounters) {
    const countedService = `type ${addressType} . inet_proto . inet_service ; counter ;`;
    const countedNodePort = "type inet_proto . inet_service ; counter ;";
    containers.push(
      container("set", SETS.serviceTrafficIn, countedService, "packets to endpoints"),
      container("set", SETS.serviceTrafficOut, countedService, "packets from endpoints"),
      container("set", SETS.nodePortTrafficIn, countedNodePort, "packets to endpoints"),
      container("set", SETS.nodePortTrafficOut, countedNodePort, "packets from endpoints"),
    );
  }
  return [...containers, ...endpointMaps(family, container)];
}

type MakeContainer = (kind: Container["kind"], name: string, spec: string, comment: string) => Container;

/** Endpoints by destination and slot: of all nodes and of this one. */
function endpointMaps(family: IpFamily, container: MakeContainer): readonly Container[] {
  const { ip } = FAMILY_WORDS[family];
  const maps: Container[] = [];
  // One map for each protocol: with `th dport` nft 1.0.6 cannot use the map from a later transaction.
  for (const protocol of Object.values(PROTOCOL_WORDS)) {
    const slot = `numgen random mod ${MAX_ENDPOINTS} : ${ip} daddr . ${protocol} dport ;`;
    for (const local of [false, true]) {
      const whose = local ? "endpoints of this node" : "endpoints";
      maps.push(
        container(
          "map",
          endpointMapName({ protocol, nodePort: false, local }),
          `typeof ${ip} daddr . ${protocol} dport . ${slot}`,
          `${whose}: address . port . slot`,
        ),
        container(
          "map",
          endpointMapName({ protocol, nodePort: true, local }),
          `typeof ${protocol} dport . ${slot}`,
          `${whose}: node port . slot`,
        ),
      );
    }
  }
  return maps;
}

/** Matches addresses that serve node ports. Never loopback: without `route_localnet` such packets get no answer. */
function nodePortMatch({ family, nodePortAddresses }: NftablesOptions): string {
  const { ip, loopback } = FAMILY_WORDS[family];
  return nodePortAddresses.matchAll
    ? `fib daddr type local ${ip} daddr != ${loopback}`
    : `${ip} daddr @${SETS.nodePortIps}`;
}

function planChains(options: NftablesOptions): readonly Chain[] {
  const words = ruleWords(options);
  const { ip } = words;
  const mark = formatMark(options.masqueradeMark);
  const toService = `${ip} daddr . ${SERVICE_KEY}`;
  const toNodePort = `${nodePortMatch(options)} ${SERVICE_KEY}`;
  const clusterIps = `${ip} daddr @${SETS.clusterIps}`;

  const services: string[] = [];
  if (options.masqueradeAll) {
    services.push(`${clusterIps} ${words.setMark} comment "masquerade all clusterIP traffic"`);
  } else if (words.notLocal !== null) {
    services.push(
      `${clusterIps} ${words.notLocal} ${words.setMark}` +
        ` comment "masquerade clusterIP traffic from outside cluster"`,
    );
  }
  services.push(`${toService} @${SETS.serviceIps}`, `${toNodePort} @${SETS.serviceNodePorts}`);

  return [
    { name: CHAINS.reject, rules: ["reject"] },
    { name: CHAINS.firewallCheck, rules: [`${toService} @${SETS.firewallIps}`] },
    { name: CHAINS.serviceEndpointsCheck, rules: [`${toService} @${SETS.noEndpointServices}`] },
    { name: CHAINS.nodePortEndpointsCheck, rules: [`${toNodePort} @${SETS.noEndpointNodePorts}`] },
    {
      name: CHAINS.clusterIpsCheck,
      rules: [
        `${clusterIps} reject comment "Reject traffic to invalid ports of ClusterIPs"`,
        // A rule for each: nft would join neighbouring networks of one set, and then the text compares as another.
        ...options.serviceCidrs.map((cidr) =>
          `${ip} daddr ${cidr} drop comment "Drop traffic to unallocated ClusterIPs"`
        ),
      ],
    },
    { name: CHAINS.services, rules: services },
    {
      name: CHAINS.masquerading,
      rules: [
        // Clears the mark, so that a packet which enters the stack again is not masqueraded twice.
        `meta mark & ${mark} != 0x00000000 meta mark set meta mark ^ ${mark} masquerade fully-random`,
        `ct status dnat ${ip} saddr . ${ip} daddr . meta l4proto . th dport @${SETS.hairpins}` +
        " masquerade fully-random",
      ],
    },
    ...(options.trafficCounters === true ? [{ name: CHAINS.traffic, rules: trafficRules(words) }] : []),
  ];
}

/**
 * Counts by the destination that the client wrote, which connection tracking remembers. The protocol stands before the
 * look-up because nft must know what `proto-dst` is.
 */
function trafficRules({ ip }: RuleWords): string[] {
  const ways = [
    ["original", SETS.serviceTrafficIn, SETS.nodePortTrafficIn],
    ["reply", SETS.serviceTrafficOut, SETS.nodePortTrafficOut],
  ] as const;
  return Object.values(PROTOCOL_WORDS).flatMap((protocol) =>
    ways.flatMap(([direction, services, nodePorts]) => {
      const start = `meta l4proto ${protocol} ct direction ${direction}`;
      const port = "meta l4proto . ct original proto-dst";
      return [
        `${start} ct original ${ip} daddr . ${port} @${services} return`,
        `${start} ${port} @${nodePorts} return`,
      ];
    })
  );
}

/** Rules of base chains that count packets of flows: once each, so that what the node sends to itself counts once. */
const TRAFFIC_HOOKS: ReadonlyMap<string, string> = new Map([
  ["filter-input", `iifname != "lo" ct status dnat jump ${CHAINS.traffic}`],
  ["filter-forward", `ct status dnat jump ${CHAINS.traffic}`],
  ["filter-output", `ct status dnat jump ${CHAINS.traffic}`],
]);

function planBaseChains({ trafficCounters = false }: NftablesOptions): readonly Chain[] {
  if (!trafficCounters) return BASE_CHAINS;
  return BASE_CHAINS.map((chain) => {
    const rule = TRAFFIC_HOOKS.get(chain.name);
    return rule === undefined ? chain : { ...chain, rules: [...chain.rules, rule] };
  });
}

/**
 * Before the translation the firewall sees load-balancer IPs; after it only packets that no Service took still have
 * the address of one, and reject is allowed there on every kernel.
 */
const BASE_CHAINS: readonly Chain[] = [
  baseChain("filter-prerouting-pre-dnat", "type filter hook prerouting priority dstnat - 10", [
    CHAINS.firewallCheck,
  ]),
  baseChain("filter-output-pre-dnat", "type filter hook output priority -110", [CHAINS.firewallCheck]),
  baseChain("filter-input", "type filter hook input priority filter", [
    CHAINS.nodePortEndpointsCheck,
    CHAINS.serviceEndpointsCheck,
  ]),
  baseChain("filter-forward", "type filter hook forward priority filter", [
    CHAINS.serviceEndpointsCheck,
    CHAINS.clusterIpsCheck,
  ]),
  baseChain("filter-output", "type filter hook output priority filter", [
    CHAINS.serviceEndpointsCheck,
    CHAINS.clusterIpsCheck,
  ]),
  baseChain("nat-prerouting", "type nat hook prerouting priority dstnat", [CHAINS.services]),
  baseChain("nat-output", "type nat hook output priority -100", [CHAINS.services]),
  baseChain("nat-postrouting", "type nat hook postrouting priority srcnat", [CHAINS.masquerading]),
];

/** Chains of type nat see the first packet of a connection only; the others need a match for it. */
function baseChain(name: string, hook: string, targets: readonly string[]): Chain {
  const match = hook.startsWith("type nat") ? "" : "ct state new ";
  return {
    name,
    hook: `${hook}; policy accept;`,
    rules: targets.map((target) => `${match}jump ${target}`),
  };
}

function planElements({ family, nodePortAddresses, nodePortIps }: NftablesOptions): readonly Element[] {
  if (nodePortAddresses.matchAll) return [];
  return nodePortIps.flatMap((text) => {
    const ip = parseIp(text);
    if (ip === null || ip.family !== family) {
      throw new RangeError(`Node-port address must be an ${family} address: got "${text}"`);
    }
    return isLoopback(ip) ? [] : [{ container: SETS.nodePortIps, key: ip.text, value: "" }];
  });
}

/**
 * Plans all objects of one family that do not come from a Service.
 *
 * @throws {RangeError} if an option does not fit its family
 */
export function planBaseRules(options: NftablesOptions): BaseRules {
  return {
    comment: options.objectComments ? TABLE_COMMENT : "",
    containers: planContainers(options),
    chains: [...planChains(options), ...planBaseChains(options)],
    elements: planElements(options),
  };
}
