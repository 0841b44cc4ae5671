/**
 * Checks of chains of others that see packets before, or after, those of kproxy: tables of nftables, and the chains of iptables.
 *
 * @module
 */
import { NEXT_TABLE_NAME } from "../../backend/nftables/plan/chains.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Iptables, type IptablesVariant } from "../../kernel/iptables.ts";
import { type IptablesFound, probeIptables } from "../../kernel/iptables_variant.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import { type BaseChain, IPTABLES_TABLES } from "../../netfilter/nft_listing.ts";
import type { Flow, Packet } from "../../sim/flow.ts";
import type { HostState } from "../../sim/packet_walk.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { few } from "../../text/words.ts";
import { proxyOfTable } from "../live/live.ts";
import { nftablesOfKernel } from "../live/kernel_rules.ts";
import { readElements } from "../live/unread_elements.ts";
import { podAddress, podInterface } from "../node_addresses.ts";
import { foreignEnd, placeOf } from "../trace/compare.ts";
import { type Finding, ok, warnings } from "./report.ts";

const CHECK = "rules of others";

/** A chain of the kernel in one family, as `iptables -S` prints it. */
export interface KernelChain {
  readonly family: IpFamily;
  /** One rule a line, `-P CHAIN POLICY` first. */
  readonly lines: readonly string[];
}

/** Chain FORWARD of table filter, and PREROUTING of nat, in each family that can be listed. */
export interface KernelChains {
  readonly forward: readonly KernelChain[];
  readonly prerouting: readonly KernelChain[];
}

/** The chains through which the node's own rules, and those of other proxies, see a packet first. */
export async function readKernelChains(exec: Exec, variant: IptablesVariant): Promise<KernelChains> {
  const tools = (await Promise.all(FAMILIES.map((family) => iptablesOf(exec, family, variant))))
    .filter((tool) => tool !== null);
  const list = (table: "filter" | "nat", chain: string): Promise<readonly KernelChain[]> =>
    Promise.all(tools.map(async ({ family, iptables }) => ({
      family,
      lines: (await iptables.list(table, chain)).split("\n").filter((line) => line !== ""),
    })));
  const [forward, prerouting] = await Promise.all([
    list("filter", "FORWARD"),
    list("nat", "PREROUTING"),
  ]);
  return { forward, prerouting };
}

/** Null: the family has no programs, or no tables, and so no rules that could be in the way. */
async function iptablesOf(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<{ readonly family: IpFamily; readonly iptables: Iptables } | null> {
  let programs: IptablesFound;
  try {
    programs = await probeIptables(exec, family, variant);
  } catch (error) {
    if (error instanceof UnsupportedError) return null;
    throw error;
  }
  const iptables = new Iptables(exec, programs);
  // The mode's own probe reports a kernel without IPv6.
  return family === "IPv6" && await iptables.absence() !== null ? null : { family, iptables };
}

/** Destinations are translated from here on. */
const DSTNAT_PRIORITY = -100;
const HOOKS_OF_SERVICES: readonly string[] = ["prerouting", "forward", "output", "postrouting"];

/** True for a chain of neither a service proxy nor iptables. */
function isForeign({ family, table }: BaseChain): boolean {
  // What is in these is checked as iptables' rules.
  const isIptables = ["ip", "ip6"].includes(family) && IPTABLES_TABLES.has(table);
  // Tables of known service proxies are checked by their names.
  return !isIptables && proxyOfTable(`${family} ${table}`) === null && table !== NEXT_TABLE_NAME;
}

function nameOf({ family, table, name, hook, priority }: BaseChain): string {
  return `${family} ${table} ${name} (${hook}, priority ${priority})`;
}

export function checkBaseChains(chains: readonly BaseChain[]): readonly Finding[] {
  const foreign = chains.filter(isForeign).filter(({ family }) => ["ip", "ip6", "inet"].includes(family));
  const nat = foreign.filter(({ type, hook, priority }) =>
    type === "nat" && (hook === "prerouting" || hook === "output") && priority <= DSTNAT_PRIORITY
  );
  const dropping = foreign.filter(({ hook, policy }) =>
    policy === "drop" && HOOKS_OF_SERVICES.includes(hook)
  );
  const early = foreign.filter((chain) =>
    chain.hook === "prerouting" && chain.priority < DSTNAT_PRIORITY &&
    !nat.includes(chain) && !dropping.includes(chain)
  );
  const [[firstNat], [firstDropping]] = [nat, dropping];
  const findings = warnings(CHECK, null, [
    firstNat && [
      `${few(nat.map(nameOf))} may translate a destination before kproxy does, which then sees no Service`,
      `look at it: nft list table ${firstNat.family} ${firstNat.table}`,
    ],
    firstDropping && [
      `${
        few(dropping.map(nameOf))
      } drops what its own rules do not accept: kproxy's accept does not count there`,
      `accept the pod network and node ports in it, or: ` +
      `nft 'chain ${firstDropping.family} ${firstDropping.table} ${firstDropping.name} { policy accept ; }'`,
    ],
  ]);
  if (early.length > 0) return [...findings, ok(CHECK, `seen before kproxy: ${few(early.map(nameOf))}`)];
  return findings.length > 0 ? findings : [ok(CHECK, "no table of nftables is in front of kproxy's rules")];
}

/** What a chain FORWARD that drops means in each mode. */
const FORWARD_DROPS: Readonly<Partial<Record<ProxyMode, string>>> = {
  iptables: "kproxy lets packets of Services through, and no others between pods",
  ipvs: "packets of Services do not come through it, all others between pods do",
  nftables: "packets of Services are dropped, too, unless a rule of that chain accepts them",
};

/** The chain FORWARD of iptables: its policy, and rules before kproxy's that drop everything. */
export function checkForward(chains: readonly KernelChain[], mode: ProxyMode): readonly Finding[] {
  return chains.flatMap(({ family, lines }) => {
    const tool = family === "IPv4" ? "iptables" : "ip6tables";
    const effect = FORWARD_DROPS[mode] ?? "packets between pods are dropped";
    const dropAll = firstDrop(lines);
    return warnings(CHECK, null, [
      lines.some((line) => /^-P FORWARD (DROP|REJECT)/.test(line)) && [
        `${family} chain FORWARD drops what no rule accepts: ${effect}`,
        `${tool} -P FORWARD ACCEPT, or accept the pod network there`,
      ],
      dropAll !== null && [
        `a rule in ${family} chain FORWARD drops everything that comes to it: ${dropAll}`,
        `${tool} ${dropAll.replace("-A ", "-D ")}`,
      ],
    ]);
  });
}

/** A rule without conditions that ends packets in front of our own jump; behind it, Services have passed. */
function firstDrop(lines: readonly string[]): string | null {
  for (const line of lines.map((text) => text.replace(/ -c \d+ \d+/, ""))) {
    if (/ -j KUBE-FORWARD\b/.test(line)) return null;
    if (/^-A FORWARD (?:-m comment --comment (?:"[^"]*"|\S+) )?-j (DROP|REJECT)\b/.test(line)) return line;
  }
  return null;
}

/** Where no cluster CIDR is known: how addresses begin that no host has. */
const ANY_NETWORK: Readonly<Record<IpFamily, string>> = { IPv4: "198.18.0.", IPv6: "2001:db8::" };

/**
 * Sends a packet from pod to pod through the tables of others, as `kproxy trace` does through all: a rule there may drop what kproxy's
 * own rules have let pass. Returns the places of the rules that end it, e.g. `table inet fw chain forward rule 1: drop`; none on nodes
 * without such tables.
 */
export async function readForeignEnds(
  exec: Exec,
  config: KubeProxyConfiguration,
  chains: readonly BaseChain[],
): Promise<readonly string[]> {
  if (!chains.some((chain) => isForeign(chain) && chain.type === "filter")) return [];
  const ends: string[] = [];
  for (const live of (await nftablesOfKernel(exec)).values()) {
    const foreign = {
      ...live,
      nftables: live.nftables.filter(({ name }) => proxyOfTable(name) === null),
    };
    const packet = podPacket(live.family, config);
    const walk = (rules: RulesetSnapshot): Flow => new RulesetSimulator(rules).send(packet, HOST_STATE);
    for (const outcome of walk(await readElements(exec, foreign, null, walk)).outcomes) {
      const end = foreignEnd(outcome);
      // A chain that drops by its policy is a finding of its own.
      if (end !== null && end.index !== 0) ends.push(placeOf(end));
    }
  }
  return [...new Set(ends)];
}

const HOST_STATE: HostState = { nodeAddresses: [], affinity: new Map(), nowSeconds: 0 };

function podPacket(family: IpFamily, config: KubeProxyConfiguration): Packet {
  const [two = "", three = ""] = [2, 3].map((number) =>
    podAddress(config, family, number) ?? `${ANY_NETWORK[family]}${number}`
  );
  return {
    source: two,
    destination: three,
    protocol: "tcp",
    port: 80,
    inInterface: podInterface(config),
    state: "NEW",
    mark: 0,
  };
}

/** @param places of rules that end what kproxy's own have let pass */
export function checkForeignEnds(places: readonly string[]): readonly Finding[] {
  return warnings(CHECK, null, [
    places.length > 0 && [
      `a rule of others ends packets between pods, whatever kproxy's own rules say: ${few(places)}`,
      "accept the pod network there; kproxy trace POD-IP SERVICE shows the way of one packet",
    ],
  ]);
}
