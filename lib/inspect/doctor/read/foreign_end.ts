/**
 * Walks a packet from pod to pod through the tables of others, as `kproxy trace` does through all: a rule there may drop what kproxy's own
 * rules have let pass.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { parseCidr } from "../../../model/ip.ts";
import { FAMILIES, type IpFamily } from "../../../model/objects.ts";
import type { BaseChain } from "../../../netfilter/nft_listing.ts";
import type { Packet } from "../../../sim/flow.ts";
import { type HeldRules, nothingHeld } from "../../../sim/held_rules.ts";
import { RulesetSimulator } from "../../../sim/ruleset_simulator.ts";
import { PartialRuleset } from "../../live/partial_ruleset.ts";
import { proxyOfTable } from "../../live/live.ts";
import { podInterface } from "../../node_addresses.ts";
import { foreignEnd } from "../../trace/own_rules.ts";
import { placeOf } from "../../trace/trace.ts";
import { isForeign } from "../judge/hooks.ts";

/** Where no cluster CIDR is known: addresses that nobody has. */
const ANY_POD: Readonly<Record<IpFamily, string>> = { IPv4: "198.18.0.0/15", IPv6: "2001:db8::/32" };

/** The places of the rules that end it, e.g. `table inet fw chain forward rule 1: drop`; none on nodes without such tables. */
export async function readForeignEnds(
  exec: Exec,
  config: KubeProxyConfiguration,
  chains: readonly BaseChain[],
): Promise<readonly string[]> {
  if (!chains.some((chain) => isForeign(chain) && chain.type === "filter")) return [];
  const partial = new PartialRuleset(exec);
  const ends = await Promise.all(FAMILIES.map((family) => {
    const packet = podPacket(family, config);
    const look = ({ nftables }: HeldRules): readonly string[] => {
      const foreign = nftables.filter(({ name }) => proxyOfTable(name) === null);
      const surroundings = { nodeAddresses: [], affinity: new Map(), nowSeconds: 0 };
      const rules = { ...nothingHeld(family), nftables: foreign };
      return new RulesetSimulator(rules).send(packet, surroundings).outcomes.flatMap((outcome) => {
        const end = foreignEnd(outcome);
        // A policy is told of by itself.
        return end === null || end.index === 0 ? [] : [placeOf(end)];
      });
    };
    return partial.look({ family, desired: null, look });
  }));
  return [...new Set(ends.flat())];
}

function podPacket(family: IpFamily, config: KubeProxyConfiguration): Packet {
  const cidrs = config.clusterCIDR.split(",").map((text) => parseCidr(text.trim()));
  const cidr = cidrs.find((one) => one?.family === family)?.text ?? ANY_POD[family];
  const network = cidr.slice(0, cidr.indexOf("/"));
  const pod = (number: number): string =>
    family === "IPv4" ? network.replace(/\d+$/, String(number)) : `${network.replace(/::$/, "")}::${number}`;
  return {
    source: pod(2),
    destination: pod(3),
    protocol: "tcp",
    port: 80,
    inInterface: podInterface(config),
    state: "NEW",
    mark: 0,
  };
}
