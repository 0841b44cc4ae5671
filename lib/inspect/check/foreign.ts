/**
 * Rules of others that take packets to Services before ours see them: in front of our jumps, or in chains that the kernel calls earlier.
 *
 * @module
 */
import type { ProxyState } from "../../model/state.ts";
import { baseOf } from "../../netfilter/nft_ruleset.ts";
import type { Flow, FlowOutcome, RuleHit } from "../../sim/flow.ts";
import type { HeldRules } from "../../sim/held_rules.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { proxyOfTable } from "../live/live.ts";
import { isOwnHit } from "../trace/own_rules.ts";
import { packetText } from "../trace/packet.ts";
import { placeOf } from "../trace/trace.ts";
import type { DifferenceList } from "./difference.ts";
import { probesOf, type ProbeSources } from "./probes.ts";

/** Where destinations are translated; what the kernel calls before is in front. */
const DNAT_PRIORITY = -100;
const FRONT_HOOKS: ReadonlySet<string> = new Set(["prerouting", "output"]);
const FRONT_CHAINS: ReadonlySet<string> = new Set(["PREROUTING", "OUTPUT"]);

/** Tells `list`, for each Service, of the rule that takes packets to it. */
export function compareFront(
  live: HeldRules,
  state: ProxyState,
  nodeAddresses: readonly string[],
  sources: ProbeSources,
  list: DifferenceList,
): void {
  const front = frontOf(live);
  if (front === null) return;
  const simulator = new RulesetSimulator(front);
  const surroundings = { nodeAddresses, affinity: new Map(), nowSeconds: 0 };
  for (const [service, ports] of state.services) {
    const told = new Set<string>();
    for (const packet of ports.flatMap((port) => probesOf(port, sources))) {
      const caught = catching(simulator.send(packet, surroundings));
      if (caught === null || told.has(placeOf(caught.hit))) continue;
      told.add(placeOf(caught.hit));
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

/** What stands in front of ours; null: nothing. */
function frontOf(live: HeldRules): HeldRules | null {
  let isAny = false;
  const iptables = live.iptables.map(({ variant, tables }) => ({
    variant,
    tables: new Map([...tables].map(([table, chains]) =>
      [
        table,
        new Map([...chains].flatMap(([name, chain]) => {
          // Policies are no rules in front; other hooks come behind ours.
          if (chain.policy === "-") return [[name, chain] as const];
          if (!FRONT_CHAINS.has(name) || (table !== "nat" && table !== "raw" && table !== "mangle")) {
            return [];
          }
          const own = chain.rules.findIndex((rule) => /-j KUBE-/.test(rule));
          const rules = own < 0 ? chain.rules : chain.rules.slice(0, own);
          isAny ||= rules.length > 0;
          return [[name, { policy: chain.policy, packets: 0, bytes: 0, rules }] as const];
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

/** The rule that ends or redirects the packet's way, or lets it leave table nat. */
function catching({ outcomes }: Flow): { readonly hit: RuleHit; readonly what: string } | null {
  for (const outcome of outcomes) {
    const hit = outcome.hits.findLast((one) => !isOwnHit(one));
    if (hit === undefined) continue;
    const what = deed(outcome, hit);
    if (what !== null) return { hit, what };
  }
  return null;
}

function deed({ verdict, translatedTo }: FlowOutcome, { table, rule }: RuleHit): string | null {
  if (verdict === "drop") return "drops";
  if (verdict === "reject") return "refuses";
  if (translatedTo !== "") return "redirects";
  return table === "nat" && /-j ACCEPT\b/.test(rule) ? "lets pass untranslated" : null;
}
