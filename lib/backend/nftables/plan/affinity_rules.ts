/**
 * The chains of a ServicePort with ClientIP affinity: a set of clients and a chain for each
 * endpoint, looked at before the choice.
 *
 * @module
 */
import type { CategorizedEndpoints } from "../../../model/endpoint.ts";
import { joinHostPort } from "../../../model/ip.ts";
import type { Endpoint, ServicePort } from "../../../model/state.ts";
import { type EndpointNames, endpointNames, PROTOCOL_WORDS, type ServiceChains } from "./chains.ts";
import type { Chain, Container } from "../../../netfilter/nft_objects.ts";
import { clusterPolicyRules, localPolicyRules, type RuleWords } from "./shared_chains.ts";

/** What one ServicePort adds to the chains and sets of its Service. */
export interface AffinityRules {
  /** Each goes only to earlier ones. */
  readonly chains: readonly Chain[];
  readonly sets: readonly Container[];
}

/**
 * @param external true if anything but the cluster IP leads to the port
 */
export function planAffinity(
  servicePort: ServicePort,
  endpoints: CategorizedEndpoints,
  names: ServiceChains,
  external: boolean,
  words: RuleWords,
): AffinityRules {
  const { ip, addressType } = words;
  const chains: Chain[] = [];
  const sets: Container[] = [];
  const namesOf = new Map<string, EndpointNames>();
  for (const endpoint of endpoints.allReachable) {
    const own = endpointNames(servicePort, endpoint);
    namesOf.set(endpoint.key, own);
    sets.push({
      name: own.affinitySet,
      kind: "set",
      spec: `type ${addressType} ; flags dynamic,timeout ;`,
      timeoutSeconds: servicePort.stickyMaxAgeSeconds,
      comment: "",
    });
    chains.push({
      name: own.chain,
      rules: [
        `update @${own.affinitySet} { ${ip} saddr }`,
        `meta l4proto ${PROTOCOL_WORDS[servicePort.protocol]} dnat to ` +
        joinHostPort(endpoint.ip, endpoint.port),
      ],
    });
  }
  const choice = (list: readonly Endpoint[]): string[] => {
    const own = list.map(({ key }) => namesOf.get(key)!);
    const verdicts = own.map(({ chain }, index) => `${index} : goto ${chain}`).join(", ");
    return [
      ...own.map(({ affinitySet, chain }) => `${ip} saddr @${affinitySet} goto ${chain}`),
      `numgen random mod ${own.length} vmap { ${verdicts} }`,
    ];
  };
  const { cluster, local } = endpoints;
  if (cluster.length > 0) chains.push({ name: names.cluster, rules: choice(cluster) });
  if (local.length > 0) chains.push({ name: names.local, rules: choice(local) });
  if (external) {
    chains.push({
      name: names.external,
      rules: servicePort.externalPolicyLocal
        ? localPolicyRules(words, names.cluster, local.length > 0 ? names.local : null)
        : clusterPolicyRules(words, names.cluster),
    });
  }
  return { chains, sets };
}
