/**
 * Tables of kube-proxy's mode nftables, as release 1.36 writes them.
 *
 * @module
 */
import { base32Sha256 } from "../../../lib/netfilter/chain_hash.ts";
import { addressText, inOrder, type LaidOutNode, type LaidOutPort, MARK } from "./laid_out.ts";

/** Base chains: name, type, hook, priority. */
const BASE_CHAINS = [
  ["filter-prerouting-pre-dnat", "filter", "prerouting", -110],
  ["filter-output-pre-dnat", "filter", "output", -110],
  ["filter-input", "filter", "input", 0],
  ["filter-forward", "filter", "forward", 0],
  ["filter-output", "filter", "output", 0],
  ["nat-prerouting", "nat", "prerouting", -100],
  ["nat-output", "nat", "output", -100],
  ["nat-postrouting", "nat", "postrouting", 100],
] as const;

/** Who calls each of the other chains, for which packets. */
const CALLS: readonly (readonly [chain: string, callers: readonly string[], match: string])[] = [
  ["nodeport-endpoints-check", ["filter-input"], "ct state new "],
  ["service-endpoints-check", ["filter-input", "filter-forward", "filter-output"], "ct state new "],
  ["firewall-check", ["filter-prerouting-pre-dnat", "filter-output-pre-dnat"], "ct state new "],
  ["services", ["nat-output", "nat-prerouting"], ""],
  ["masquerading", ["nat-postrouting"], ""],
  ["cluster-ips-check", ["filter-forward", "filter-output"], "ct state new "],
];

/** Maps and sets that a sync compares element by element: name, kind and type of keys. */
const CONTAINERS = [
  ["hairpin-connections", "set", "ADDR . ADDR . inet_proto . inet_service", "service hairpin connections"],
  ["cluster-ips", "set", "ADDR", "Active ClusterIPs"],
  ["nodeport-ips", "set", "ADDR", "IPs that accept NodePort traffic"],
  [
    "no-endpoint-services",
    "map",
    "ADDR . inet_proto . inet_service",
    "vmap to drop or reject packets to services with no endpoints",
  ],
  [
    "no-endpoint-nodeports",
    "map",
    "inet_proto . inet_service",
    "vmap to drop or reject packets to service nodeports with no endpoints",
  ],
  [
    "firewall-ips",
    "map",
    "ADDR . inet_proto . inet_service",
    "destinations that are subject to LoadBalancerSourceRanges",
  ],
  [
    "service-ips",
    "map",
    "ADDR . inet_proto . inet_service",
    "ClusterIP, ExternalIP and LoadBalancer IP traffic",
  ],
  ["service-nodeports", "map", "inet_proto . inet_service", "NodePort traffic"],
] as const;

/** What `nft` calls the family, and its addresses. */
export function nftWords({ family }: Pick<LaidOutNode, "family">): { ip: "ip" | "ip6"; address: string } {
  return family === "IPv4" ? { ip: "ip", address: "ipv4_addr" } : { ip: "ip6", address: "ipv6_addr" };
}

/**
 * The transaction of a full sync for `nft -f -`.
 *
 * @param stale chains of Services that are there and not wanted any more are emptied; chains have a `/` in their name
 */
export function nftablesText(
  node: LaidOutNode,
  ports: readonly LaidOutPort[],
  stale: { readonly chains: readonly string[]; readonly sets: readonly string[] },
  isFirst: boolean,
): string {
  const { ip, address } = nftWords(node);
  const services = ports.map((port) => portCommands(ip, port));
  const chains = services.flatMap(({ chains }) => chains);
  const sets = services.flatMap(({ sets }) => sets.map(({ name }) => name));
  const elements = Map.groupBy(services.flatMap(({ elements }) => elements), ({ to }) => to);
  const gone = stale.chains.filter((chain) => chain.includes("/") && !chains.includes(chain));
  const commands = [
    'add table T { comment "rules for kube-proxy" ; }',
    ...BASE_CHAINS.flatMap(([name]) => isFirst ? [`add chain T ${name}`, `delete chain T ${name}`] : []),
    ...BASE_CHAINS.flatMap(([name, type, hook, priority]) => [
      `add chain T ${name} { type ${type} hook ${hook} priority ${priority} ; }`,
      `flush chain T ${name}`,
    ]),
    ...CALLS.flatMap(([chain, callers, match]) => [
      ...fresh(chain),
      ...callers.map((caller) => `add rule T ${caller} ${match}jump ${chain}`),
    ]),
    'add chain T reject-chain { comment "helper for @no-endpoint-services / @no-endpoint-nodeports" ; }',
    "flush chain T reject-chain",
    ...CONTAINERS.map(([name, kind, keys, comment]) =>
      `add ${kind} T ${name} { type ${keys.replaceAll("ADDR", address)}${
        kind === "map" ? " : verdict" : ""
      } ; comment "${comment}" ; }`
    ),
    ...baseRules(node, ip),
    ...chains.flatMap(fresh),
    ...services.flatMap(({ sets }) =>
      sets.map(({ name, seconds }) =>
        `add set T ${name} { type ${address} ; flags dynamic,timeout ; timeout ${seconds}s ; }`
      )
    ),
    ...services.flatMap(({ rules }) => rules),
    ...gone.map((chain) => `flush chain T ${chain}`),
    // It compares and changes single elements; in one transaction that is the same.
    ...CONTAINERS.flatMap(([name, kind]) => [
      `flush ${kind} T ${name}`,
      ...(name === "nodeport-ips" ? [{ text: node.nodeIp }] : elements.get(name) ?? []).map(({ text }) =>
        `add element T ${name} { ${text} }`
      ),
    ]),
    ...stale.sets.filter((name) => name.startsWith("affinity-") && !sets.includes(name)).map((name) =>
      `delete set T ${name}`
    ),
  ];
  return commands.map((line) => line.replace(" T ", ` ${ip} kube-proxy `)).join("\n") + "\n";
}

function fresh(chain: string): string[] {
  return [`add chain T ${chain}`, `flush chain T ${chain}`];
}

function baseRules({ clusterCidr, serviceCidr }: LaidOutNode, ip: string): string[] {
  return [
    `masquerading mark and ${MARK} != 0 mark set mark xor ${MARK} masquerade fully-random`,
    `masquerading ct status dnat ${ip} saddr . ${ip} daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random`,
    `cluster-ips-check ${ip} daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"`,
    `cluster-ips-check ${ip} daddr { ${serviceCidr} } drop comment "Drop traffic to unallocated ClusterIPs"`,
    "reject-chain reject",
    `service-endpoints-check ${ip} daddr . meta l4proto . th dport vmap @no-endpoint-services`,
    `nodeport-endpoints-check ${ip} daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports`,
    `firewall-check ${ip} daddr . meta l4proto . th dport vmap @firewall-ips`,
    `services ${ip} daddr @cluster-ips ${ip} saddr != ${clusterCidr} mark set mark or ${MARK} comment "masquerade clusterIP traffic from outside cluster"`,
    `services ${ip} daddr . meta l4proto . th dport vmap @service-ips`,
    `services ${ip} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports`,
  ].map((rule) => `add rule T ${rule}`);
}

interface PortCommands {
  readonly chains: readonly string[];
  readonly sets: readonly { readonly name: string; readonly seconds: number }[];
  readonly elements: readonly { readonly to: string; readonly text: string }[];
  readonly rules: readonly string[];
}

function hashed(text: string): string {
  return `${base32Sha256(text, 8)}-${text}`;
}

function portCommands(ip: "ip" | "ip6", port: LaidOutPort): PortCommands {
  const { name, protocol, clusterIp, nodePort, loadBalancer, affinitySeconds } = port;
  const endpoints = inOrder(port.endpoints);
  const [service = "", portName = ""] = name.split(":");
  const id = `${service}/${protocol}/${portName}`;
  const [own, external, firewall] = ["service-", "external-", "firewall-"].map((kind) =>
    kind + hashed(id)
  ) as [
    string,
    string,
    string,
  ];
  const at = (address: string): string => `${address} . ${protocol} . ${port.port}`;
  const elements = [{ to: "cluster-ips", text: clusterIp }];
  if (endpoints.length === 0) {
    const refusal = `comment "${name}" : goto reject-chain`;
    elements.push({ to: "no-endpoint-services", text: `${at(clusterIp)} ${refusal}` });
    if (nodePort !== undefined) {
      elements.push({ to: "no-endpoint-nodeports", text: `${protocol} . ${nodePort} ${refusal}` });
    }
    return { chains: [], sets: [], elements, rules: [] };
  }
  elements.push(
    ...endpoints.map((endpoint) => ({
      to: "hairpin-connections",
      text: `${endpoint.ip} . ${endpoint.ip} . ${protocol} . ${endpoint.port}`,
    })),
    { to: "service-ips", text: `${at(clusterIp)} : goto ${own}` },
  );
  const chains = [own];
  const rules: string[] = [];
  if (nodePort !== undefined || loadBalancer !== undefined) {
    chains.push(external);
    rules.push(`${external} mark set mark or ${MARK} comment "masquerade"`, `${external} goto ${own}`);
  }
  if (nodePort !== undefined) {
    elements.push({ to: "service-nodeports", text: `${protocol} . ${nodePort} : goto ${external}` });
  }
  if (loadBalancer !== undefined) {
    chains.push(firewall);
    elements.push({ to: "service-ips", text: `${at(loadBalancer.ip)} : goto ${external}` });
    elements.push({ to: "firewall-ips", text: `${at(loadBalancer.ip)} : goto ${firewall}` });
    rules.push(`${firewall} ${ip} saddr != { ${loadBalancer.sourceRanges.join(" , ")} } drop`);
  }
  const chosen = affinitySeconds === undefined
    ? { chains: [], sets: [], rules: [chooseAddress(ip, own, protocol, endpoints)] }
    : chooseChain(ip, own, { id, protocol, endpoints, seconds: affinitySeconds });
  return {
    chains: [...chosen.chains, ...chains],
    sets: chosen.sets,
    elements,
    rules: [...rules, ...chosen.rules].map((rule) => `add rule T ${rule}`),
  };
}

type Endpoints = LaidOutPort["endpoints"];

function chooseAddress(ip: string, own: string, protocol: string, endpoints: Endpoints): string {
  const slots = endpoints.map((one, i) => `${i} : ${one.ip} . ${one.port}`).join(" , ");
  return `${own} meta l4proto ${protocol} dnat ${ip} addr . port to numgen random mod ${endpoints.length} map { ${slots} }`;
}

function chooseChain(
  ip: string,
  own: string,
  { id, protocol, endpoints, seconds }: {
    readonly id: string;
    readonly protocol: string;
    readonly endpoints: Endpoints;
    readonly seconds: number;
  },
) {
  const all = endpoints.map((endpoint) => {
    const name = hashed(`${id}__${endpoint.ip.replaceAll(":", ".")}/${endpoint.port}`);
    return { chain: `endpoint-${name}`, set: `affinity-${name}`, to: addressText(endpoint) };
  });
  const slots = all.map(({ chain }, i) => `${i} : goto ${chain}`).join(" , ");
  return {
    chains: all.map(({ chain }) => chain),
    sets: all.map(({ set }) => ({ name: set, seconds })),
    rules: [
      ...all.map(({ chain, set }) => `${own} ${ip} saddr @${set} goto ${chain}`),
      `${own} numgen random mod ${all.length} vmap { ${slots} }`,
      ...all.flatMap(({ chain, set, to }) => [
        `${chain} update @${set} { ${ip} saddr }`,
        `${chain} meta l4proto ${protocol} dnat to ${to}`,
      ]),
    ],
  };
}
