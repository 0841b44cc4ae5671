/**
 * Checks of other programs' traces on the node: chains that see packets before, or after, those of kproxy; active service proxies, by
 * their tables, chains, devices and metrics; and leftovers of other modes.
 *
 * @module
 */
import { DEVICE } from "../../backend/ipvs/plan/ruleset.ts";
import { NEXT_TABLE_NAME } from "../../backend/nftables/plan/chains.ts";
import { countLeftovers } from "../../backend/node/cleanup.ts";
import { removeLeftovers } from "../../backend/node/leftovers.ts";
import {
  CLEANUP_MODES,
  type CleanupMode,
  type KubeProxyConfiguration,
  type ProxyMode,
} from "../../config/types.ts";
import { UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Iptables, type IptablesVariant } from "../../kernel/iptables.ts";
import { type IptablesFound, probeIptables } from "../../kernel/iptables_variant.ts";
import { localHost, splitHostPort } from "../../model/ip.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import type { Link } from "../../netfilter/ip_batch.ts";
import { type BaseChain, IPTABLES_TABLES } from "../../netfilter/nft_listing.ts";
import { errorText } from "../../observe/log.ts";
import { beginningOf, httpGet, NoConnectionError, StrangeAnswerError } from "../../serve/http_get.ts";
import type { Flow, Packet } from "../../sim/flow.ts";
import type { HostState } from "../../sim/packet_walk.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { few } from "../../text/words.ts";
import { proxyOfTable } from "../live/live.ts";
import { nftablesOfKernel } from "../live/kernel_rules.ts";
import { readElements } from "../live/unread_elements.ts";
import { podAddress, podInterface } from "../desired/desired.ts";
import { foreignEnd, placeOf } from "../trace/compare.ts";
import { type Doubt, failure, type Finding, ok, unknown, warnings } from "./report.ts";

const CHECK = "rules of others";

/** A built-in chain in one family, as `iptables -S` prints it. */
export interface KernelChain {
  readonly family: IpFamily;
  /** Lines, `-P CHAIN POLICY` first, then one rule each. */
  readonly lines: readonly string[];
}

/** Chain FORWARD of table filter, and PREROUTING of nat, in each family that can be listed. */
export interface KernelChains {
  readonly forward: readonly KernelChain[];
  readonly prerouting: readonly KernelChain[];
}

/** Reads the chains in which the node's own rules, and those of other proxies, come before kproxy's. */
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

/** iptables of a family; null: it has no programs, or no tables, and so no rules. */
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
  // A kernel without IPv6 is reported by the probe of the mode.
  return family === "IPv6" && await iptables.absence() !== null ? null : { family, iptables };
}

/** Priority of DNAT. */
const DSTNAT_PRIORITY = -100;
const HOOKS_OF_SERVICES: readonly string[] = ["prerouting", "forward", "output", "postrouting"];

/** True for a chain that belongs neither to a service proxy nor to iptables. */
function isForeign({ family, table }: BaseChain): boolean {
  // Tables of iptables-nft are checked as iptables rules.
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

/** Effect of a FORWARD chain that drops, by mode. */
const FORWARD_DROPS: Readonly<Partial<Record<ProxyMode, string>>> = {
  iptables: "kproxy lets packets of Services through, and no others between pods",
  ipvs: "packets of Services do not come through it, all others between pods do",
  nftables: "packets of Services are dropped, too, unless a rule of that chain accepts them",
};

/** Checks the FORWARD chain of iptables: its policy, and unconditional drops before kproxy's rules. */
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

/** The first unconditional drop before our own jump; after it, Services have passed. */
function firstDrop(lines: readonly string[]): string | null {
  for (const line of lines.map((text) => text.replace(/ -c \d+ \d+/, ""))) {
    if (/ -j KUBE-FORWARD\b/.test(line)) return null;
    if (/^-A FORWARD (?:-m comment --comment (?:"[^"]*"|\S+) )?-j (DROP|REJECT)\b/.test(line)) return line;
  }
  return null;
}

/** Prefixes of unused addresses, if no cluster CIDR is known. */
const ANY_NETWORK: Readonly<Record<IpFamily, string>> = { IPv4: "198.18.0.", IPv6: "2001:db8::" };

/**
 * Simulates a packet from pod to pod through tables of other programs, as `kproxy trace` does through all: they may drop what kproxy's
 * rules have accepted. Returns the places of rules that end its path, e.g. `table inet fw chain forward rule 1: drop`; none on nodes
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
      // A drop by policy is a finding of its own.
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

/** @param places of other programs' rules that drop what kproxy's rules have accepted */
export function checkForeignEnds(places: readonly string[]): readonly Finding[] {
  return warnings(CHECK, null, [
    places.length > 0 && [
      `a rule of others ends packets between pods, whatever kproxy's own rules say: ${few(places)}`,
      "accept the pod network there; kproxy trace POD-IP SERVICE shows the way of one packet",
    ],
  ]);
}

const OTHER_PROXIES = "other proxies";

/** The program that answers at the metrics address. */
export type MetricsOwner = "kproxy" | "kube-proxy" | "nothing" | "another program";

/** Time until an answer begins, and between its pieces. */
const PIECE_LIMIT_MS = 1_500;
/** Time for all metrics: a large node's take a proxy a second or two. */
const WHOLE_LIMIT_MS = 4_000;
/** Size that is read of an answer, which another program may never end. */
const BEGINNING_BYTES = 64 * 1024;

/** Asks the metrics address. @param address `IP:port` as configured; for an unspecified IP, loopback */
export async function readMetricsOwner(address: string): Promise<MetricsOwner> {
  if (address === "") return "nothing";
  const [bound, port] = splitHostPort(address);
  const limits = { limitMs: PIECE_LIMIT_MS, wholeMs: WHOLE_LIMIT_MS, maxBytes: 2 * BEGINNING_BYTES };
  const question = { host: localHost(bound), port, path: "/metrics", ...limits };
  let text: string;
  try {
    text = await httpGet(question, (reply) => beginningOf(reply, BEGINNING_BYTES));
  } catch (error) {
    if (error instanceof NoConnectionError) return "nothing";
    // A program that accepts the connection owns the port, even if it never answers.
    if (error instanceof StrangeAnswerError) return "another program";
    throw error;
  }
  // Both serve kube-proxy's metrics; only kube-proxy has those of the Go runtime, which come early.
  if (/^(# (HELP|TYPE) )?go_/m.test(text)) return "kube-proxy";
  return /^(# (HELP|TYPE) )?k(ube)?proxy_/m.test(text) ? "kproxy" : "another program";
}

/** Signs of other proxies; those that could not be read are left out. */
export interface ProxySigns {
  readonly owner?: MetricsOwner | undefined;
  readonly metricsAddress: string;
  /** The mode in use, whose rules are no sign of another proxy. */
  readonly mode: ProxyMode;
  readonly baseChains?: readonly BaseChain[] | undefined;
  readonly prerouting?: readonly KernelChain[] | undefined;
  readonly links?: readonly Link[] | undefined;
}

/** Another proxy that serves Services, and its signs. */
interface KnownProxy {
  readonly name: string;
  readonly table?: RegExp;
  /** Targets of its rules in PREROUTING of nat. */
  readonly chain?: RegExp;
  readonly device?: RegExp;
  readonly fix: string;
  /** Mode whose rules look the same for kproxy and kube-proxy. */
  readonly mode?: ProxyMode;
}

const KNOWN: readonly KnownProxy[] = [
  {
    name: "kube-proxy (mode nftables)",
    table: /^kube-proxy$/,
    fix: "end kube-proxy on this node, then: kproxy cleanup --only=nftables --of=kube-proxy",
  },
  {
    name: "a proxy in mode userspace, kube-proxy or a kproxy of another configuration,",
    // Chains that only userspace mode has.
    chain: /^KUBE-PORTALS-/,
    fix: "end it on this node, then: kproxy cleanup --only=userspace",
    mode: "userspace",
  },
  {
    name: "Cilium",
    table: /^cilium/i,
    chain: /^(OLD_)?CILIUM_/,
    device: /^cilium_(host|net)$/,
    fix: "set kubeProxyReplacement=false in Cilium, or do without kproxy here",
  },
  {
    name: "kube-router",
    table: /^kube-router/,
    chain: /^KUBE-ROUTER-/,
    device: /^kube-dummy-if$/,
    fix: "start kube-router with --run-service-proxy=false, and once with --cleanup-config",
  },
  {
    name: "Calico's eBPF data plane",
    device: /^bpf(in|out)\.cali$/,
    fix: "set bpfEnabled=false in Calico's FelixConfiguration, or do without kproxy here",
  },
];

export function checkOtherProxies(signs: ProxySigns): readonly Finding[] {
  const { owner, metricsAddress } = signs;
  const findings = [
    ...owner !== "kube-proxy" ? [] : [failure(
      OTHER_PROXIES,
      `kube-proxy runs on this node: its metrics answer at ${metricsAddress}`,
      "keep it off this node, e.g.: kubectl -n kube-system patch daemonset kube-proxy -p " +
        `'{"spec":{"template":{"spec":{"nodeSelector":{"kproxy.io/replaced":"false"}}}}}'`,
    )],
    ...warnings(OTHER_PROXIES, null, [
      owner === "another program" && [
        `something that is no proxy of Kubernetes answers at ${metricsAddress}, where metrics are to be served`,
        "give kproxy another address: --metrics-bind-address",
      ],
      owner === "nothing" && metricsAddress !== "" && hasRules(signs) && [
        `rules of a service proxy are in force, and none answers at ${metricsAddress}: they stay as they are, whatever changes`,
        "start kproxy, or look why it ended",
      ],
      ...KNOWN.map((proxy): Doubt => {
        const found = signsOf(proxy, signs);
        return found.length > 0 && proxy.mode !== signs.mode &&
          [`${proxy.name} was or is here: ${few(found)}`, proxy.fix];
      }),
    ]),
  ];
  if (findings.length > 0) return findings;
  return [ok(OTHER_PROXIES, owner === "kproxy" ? "none; kproxy runs" : "none shows")];
}

/** True if base chains lead to rules with kproxy's or kube-proxy's names. */
function hasRules({ baseChains = [], prerouting = [] }: ProxySigns): boolean {
  return baseChains.some(({ table }) => table === "kproxy") ||
    prerouting.flatMap(({ lines }) => lines).some((line) =>
      / -j KUBE-(?:SERVICES|PORTALS-CONTAINER)\b/.test(line)
    );
}

function signsOf(
  { table, chain, device }: KnownProxy,
  { baseChains = [], prerouting = [], links = [] }: ProxySigns,
): readonly string[] {
  const tables = baseChains.filter((one) => table?.test(one.table) === true)
    .map((one) => `table ${one.family} ${one.table}`);
  const chains = prerouting.flatMap(({ lines }) => lines).map((line) => / -[jg] (\S+)/.exec(line)?.[1] ?? "")
    .filter((target) => chain?.test(target) === true).map((target) => `chain ${target}`);
  const devices = links.filter((link) => device?.test(link.device) === true)
    .map((link) => `device ${link.device}`);
  return [...new Set([...tables, ...chains, ...devices])];
}

/** Leftovers of other modes in words, e.g. `3 tables of nft`, by a dry run of cleanup. @param runs the mode in use */
export async function readLeftovers(
  exec: Exec,
  { ipvs }: KubeProxyConfiguration,
  runs: ProxyMode,
) {
  // Modes that use iptables themselves would read all their rules to find other modes' chains, which takes seconds on a
  // large node: there only tables of nftables are looked for.
  const isLarge = runs === "iptables" || runs === "ipvs" || runs === "auto";
  const modes: readonly CleanupMode[] = isLarge
    ? ["nftables"]
    : CLEANUP_MODES.filter((mode) => mode !== runs);
  const report = await removeLeftovers(modes, {
    exec,
    families: FAMILIES,
    dryRun: true,
    flushIpvs: false,
    excludeCidrs: ipvs.excludeCIDRs ?? [],
  });
  return {
    found: countLeftovers(report).map(([kind, count]) => `${count} ${kind}`),
    modes,
    failed: report.failed.map(({ place, error }) => `${place}: ${errorText(error)}`),
  };
}

/** @param devices names of all devices; undefined: unknown */
export function checkLeftovers(
  { found, modes, failed }: Awaited<ReturnType<typeof readLeftovers>>,
  runs: ProxyMode,
  devices: readonly string[] | undefined,
): readonly Finding[] {
  const check = "leftovers";
  const isDeviceLeft = devices?.includes(DEVICE) === true && runs !== "ipvs" && !modes.includes("ipvs");
  return [
    ...failed.map((reason) => unknown(check, reason)),
    ...warnings(check, failed.length > 0 ? null : "no other mode left anything that shows", [
      found.length > 0 && [
        `another mode left ${few(found)}; a start of kproxy removes it after its first sync`,
        `start kproxy, or: kproxy cleanup ${modes.map((mode) => `--only=${mode}`).join(" ")}`,
      ],
      isDeviceLeft && [
        `device ${DEVICE} is there, which mode ipvs left: addresses on it are answered by this node`,
        "start kproxy, or: kproxy cleanup --only=ipvs",
      ],
    ]),
  ];
}
