/**
 * Compares rules by simulated packets: one per destination of a Service, from a pod, from the node and from the world,
 * is walked through rules of another layout, and through other programs' rules that see it first.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import { baseOf } from "../../netfilter/nft_ruleset.ts";
import type { Flow, FlowOutcome, Packet, RuleHit } from "../../sim/flow.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { proxyOfTable } from "../live/live.ts";
import { podAddress } from "../desired/desired.ts";
import { addressesOf } from "../service/service_match.ts";
import { differenceOf, isOwnHit, placeOf } from "../trace/compare.ts";
import { ownAddressOf, packetProtocol, packetText, WORLD } from "../trace/packet.ts";
import type { Comparison, Difference, DifferenceList } from "./check.ts";

/** Sources of the simulated packets, and the node's addresses. */
export interface PacketSources {
  readonly sources: readonly (readonly [source: string, inInterface: string])[];
  readonly nodeAddresses: readonly string[];
  /** The node's reachable address; null: none of this family is known. */
  readonly nodeAddress: string | null;
}

export function packetSources(
  family: IpFamily,
  { config, nodeAddresses, podInterface }: {
    readonly config: KubeProxyConfiguration;
    readonly nodeAddresses: readonly string[];
    readonly podInterface: string;
  },
): PacketSources {
  const nodeAddress = ownAddressOf(family, nodeAddresses);
  const pod = podAddress(config, family, 5);
  return {
    sources: [
      ...(pod === null ? [] : [[pod, podInterface] as const]),
      [WORLD[family], podInterface === "eth0" ? "eth1" : "eth0"],
      ...(nodeAddress === null ? [] : [[nodeAddress, ""] as const]),
    ],
    nodeAddresses,
    nodeAddress,
  };
}

function packetsTo(port: ServicePort, { sources, nodeAddress }: PacketSources): readonly Packet[] {
  const destinations = addressesOf(port).map((ip) => [ip, port.port] as const);
  if (port.nodePort !== 0 && nodeAddress !== null) destinations.push([nodeAddress, port.nodePort]);
  const rest = { protocol: packetProtocol(port.protocol), state: "NEW", mark: 0 } as const;
  return destinations.flatMap(([destination, to]) =>
    sources.map(([source, inInterface]) => ({ source, inInterface, destination, port: to, ...rest }))
  );
}

/** Yields, for a port, the packets that live rules treat differently from the desired rules. */
export function differencesByPackets(
  desired: RulesetSnapshot,
  { family, live, sources }: Pick<Comparison, "family" | "live" | "sources">,
): (port: ServicePort) => readonly Difference[] {
  const [wanted, found] = [new RulesetSimulator(desired), new RulesetSimulator(live)];
  const hostState = { nodeAddresses: sources.nodeAddresses, affinity: new Map(), nowSeconds: 0 };
  return (port) =>
    packetsTo(port, sources).flatMap((packet): Difference[] => {
      const flows = [wanted.send(packet, hostState), found.send(packet, hostState)] as const;
      const difference = differenceOf(...flows, family);
      if (difference === null) return [];
      const step = difference.liveStep ?? difference.desiredStep;
      const where = step === null ? "" : `; they part at ${placeOf(step)}`;
      return [{
        kind: "behaviour",
        place: `packet ${packetText(packet)}`,
        cause: `it does not fare as it should${where}`,
        wanted: [difference.desired],
        found: [difference.live],
      }];
    });
}

/** Reports to `list`, for each Service, the rule of another program that catches its packets before ours. */
export function compareFront(
  live: RulesetSnapshot,
  state: ProxyState,
  sources: PacketSources,
  list: DifferenceList,
): void {
  const front = frontOf(live);
  if (front === null) return;
  const simulator = new RulesetSimulator(front);
  const hostState = { nodeAddresses: sources.nodeAddresses, affinity: new Map(), nowSeconds: 0 };
  for (const [service, ports] of state.services) {
    const reported = new Set<string>();
    for (const packet of ports.flatMap((port) => packetsTo(port, sources))) {
      const caught = catching(simulator.send(packet, hostState));
      if (caught === null || reported.has(placeOf(caught.hit))) continue;
      reported.add(placeOf(caught.hit));
      list.add(service, {
        kind: "foreign",
        place: placeOf({ ...caught.hit, rule: "" }).replace(/: $/, ""),
        cause: `a rule of others ${caught.what} ${packetText(packet)} before ours see it`,
        wanted: [],
        found: [caught.hit.rule],
      });
    }
  }
}

/** Priority of DNAT; base chains with a lower one run before it. */
const DNAT_PRIORITY = -100;
const FRONT_HOOKS: ReadonlySet<string> = new Set(["prerouting", "output"]);
const FRONT_CHAINS: ReadonlySet<string> = new Set(["PREROUTING", "OUTPUT"]);
const FRONT_TABLES: ReadonlySet<string> = new Set(["raw", "mangle", "nat"]);

/** Rules that run before ours: in front of our jumps, or in base chains called earlier; null: none. */
function frontOf(live: RulesetSnapshot): RulesetSnapshot | null {
  let isAny = false;
  const iptables = live.iptables.map(({ variant, tables }) => ({
    variant,
    tables: new Map([...tables].map(([table, chains]) =>
      [
        table,
        new Map([...chains].flatMap(([name, chain]) => {
          // Policies are no rules in front; other hooks run after our rules.
          if (chain.policy === "-") return [[name, chain] as const];
          if (!FRONT_CHAINS.has(name) || !FRONT_TABLES.has(table)) return [];
          const own = chain.rules.findIndex((rule) => /-j KUBE-/.test(rule));
          const rules = own < 0 ? chain.rules : chain.rules.slice(0, own);
          isAny ||= rules.length > 0;
          return [[name, { policy: chain.policy, rules }] as const];
        })),
      ] as const
    )),
  }));
  const nftables = live.nftables.filter(({ name }) => proxyOfTable(name) === null).map((table) => {
    const { name, comment, ownerProblem, containers, handles } = table;
    const chains = new Map(
      [...table.chains].filter(([, { hook }]) => {
        const base = baseOf(hook);
        return hook === undefined ||
          base !== null && FRONT_HOOKS.has(base.hook) && base.priority <= DNAT_PRIORITY;
      }),
    );
    return { name, comment, ownerProblem, containers, handles, chains };
  });
  isAny ||= nftables.some(({ chains }) => chains.values().some(({ hook }) => hook !== undefined));
  return isAny ? { family: live.family, iptables, nftables, sets: live.sets, ipvs: null } : null;
}

/** The rule of another program that drops, rejects or redirects the packet, or accepts it in table nat. */
function catching({ outcomes }: Flow): { readonly hit: RuleHit; readonly what: string } | null {
  for (const outcome of outcomes) {
    const hit = outcome.hits.findLast((one) => !isOwnHit(one));
    const what = hit === undefined ? null : deed(outcome, hit);
    if (hit !== undefined && what !== null) return { hit, what };
  }
  return null;
}

function deed({ verdict, translatedTo }: FlowOutcome, { table, rule }: RuleHit): string | null {
  if (verdict === "drop") return "drops";
  if (verdict === "reject") return "refuses";
  if (translatedTo !== "") return "redirects";
  return table === "nat" && /-j ACCEPT\b/.test(rule) ? "lets pass untranslated" : null;
}
