/**
 * Gets a node ready for nftables mode: whether nft and the kernel take our rules, for which families; and makes the proxiers.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { interfaceIps } from "../../../kernel/machine.ts";
import { NEEDS_RIGHTS, servedFamilies } from "../../../kernel/ip_families.ts";
import { isAtLeast } from "../../../kernel/iptables.ts";
import { describeNftFailure, Nft, nftErrors, nftFailureKind, saysWhy } from "../../../kernel/nft.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import { cidrContains, type Ip } from "../../../model/ip.ts";
import { nodeIps } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { logFamilies, loggedSettings, reconfigureProxiers } from "../../node/node_settings.ts";
import { NftablesProxier, type NftablesSettings } from "../apply/proxier.ts";
import { TrafficReader } from "../apply/traffic.ts";
import { FAMILY_WORDS, TABLE_NAME } from "../plan/chains.ts";
import { type ConfiguredNftables, configuredNftables, networksOfFamily } from "../plan/plan.ts";

/** Loopback of IPv6; that of IPv4 is in the settings. */
const IPV6_LOOPBACK: Ip = { family: "IPv6", text: "::1", bytes: [...Array(15).fill(0), 1] };
/** Oldest version of nft: earlier ones take the same rules, but do not list them so that they can be read back. */
export const MIN_NFT_VERSION = "1.0.1";

/**
 * Probes the node and prepares it.
 *
 * @throws {UnsupportedError} naming what is missing, if nftables does not work for the primary family
 * @throws {ExecError} if what works cannot be found out
 */
export async function prepareNftables(
  { exec, config, log, sysctls }: ModeContext,
): Promise<PreparedMode> {
  const nft = new Nft(exec);
  const version = await requireNft(nft);
  log.info("Using nftables", { version });
  const { families, refused } = await servedFamilies({
    primaryFamily: nodeIps(null, config.bindAddress).primaryFamily,
    sysctls,
    log,
    probe: (family) => probeFamily(nft, configuredNftables(config, family, null).options, version),
    hasRules: (family) => holdsRules(nft, family),
  });
  for (const [family, { trafficCounters }] of families) {
    if (!config.kproxy.trafficCounters || trafficCounters) continue;
    log.warn("Traffic is not counted: nft or the kernel refuses counters of set elements", { family });
  }
  logFamilies(families.keys(), log);
  const settingsOf = loggedSettings<NftablesSettings>({ config, log }, (family, node) => {
    const { options, problem } = configuredNftables(config, family, node);
    return { options: { ...options, ...families.get(family)! }, problem };
  });
  for (const family of families.keys()) warnOfLocalhostNodePorts(settingsOf(family, null), family, log);
  const nowMs = (): number => performance.now();
  const proxiers = [...families.keys()].map((family) =>
    new NftablesProxier({ family, nft, settings: settingsOf(family, null), interfaceIps, logger: log, nowMs })
  );
  const readers = proxiers.filter(({ family }) => families.get(family)!.trafficCounters).map((proxier) =>
    new TrafficReader({ nft, family: proxier.family, state: () => proxier.state, logger: log, nowMs })
  );
  return {
    proxiers,
    refused,
    ...readers.length === 0
      ? {}
      : { serviceTraffic: async () => (await Promise.all(readers.map((reader) => reader.read()))).flat() },
    reconfigure: (node) => reconfigureProxiers(proxiers, settingsOf, node),
    setServiceCidrs: (networks) => {
      log.info("ServiceCIDRs", { networks });
      return proxiers.filter((proxier) => proxier.setServiceCidrs(networksOfFamily(networks, proxier.family)))
        .map(({ family }) => family);
    },
  };
}

/** True if our table exists; false, too, where that is unknown. */
async function holdsRules(nft: Nft, family: IpFamily): Promise<boolean> {
  try {
    return await nft.hasTable(nftFamily(family), TABLE_NAME);
  } catch (error) {
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** Optional features of nft and the kernel for one family. */
interface NodeNft {
  readonly objectComments: boolean;
  /** False if counters are not wanted, or refused. */
  readonly trafficCounters: boolean;
}

/** Warns where a loopback network is named for node ports. "Every address", the default of other modes, means less. */
function warnOfLocalhostNodePorts(
  { nodePortAddresses: { matchAll, cidrs, containsIPv4Loopback } }: NftablesSettings,
  family: IpFamily,
  log: Logger,
): void {
  const isNamed = containsIPv4Loopback || cidrs.some((cidr) => cidrContains(cidr, IPV6_LOOPBACK));
  if (matchAll || !isNamed) return;
  const address = family === "IPv4" ? "127.0.0.1" : IPV6_LOOPBACK.text;
  log.warn(`Node ports will not answer on ${address}: mode nftables does not serve them there`, {
    advice: "use another address of the node, or mode iptables",
  });
}

async function requireNft(nft: Nft): Promise<string | null> {
  let version: string | null;
  try {
    version = await nft.version();
  } catch (error) {
    if (!(error instanceof ExecError) || error.isInconclusive()) throw error;
    const message = error.isMissing()
      ? "install nftables (not on PATH: nft)"
      : `nft does not work here: ${error.message}`;
    throw new UnsupportedError("nftables", "the program nft", error.message, { cause: error, message });
  }
  // An nft without a version number may still be new enough: then the dry run decides.
  if (version !== null && !isAtLeast(version, MIN_NFT_VERSION)) {
    throw new UnsupportedError("nftables", `nft ${MIN_NFT_VERSION} or newer`, `nft ${version}`);
  }
  return version;
}

/** Dry run of all features that our rules use; leaves out optional ones that are refused. */
async function probeFamily(
  nft: Nft,
  { family, trafficCounters }: ConfiguredNftables,
  version: string | null,
): Promise<NodeNft> {
  let features = neededFeatures(family).filter(({ option }) =>
    option !== "trafficCounters" || trafficCounters === true
  );
  for (;;) {
    const failure = await checkFailure(nft, features);
    if (failure === null) break;
    if (nftFailureKind(failure) !== "rejected") throw withoutRights(family, failure, version);
    const refused = refusedFeatures(failure, features);
    const [lacking] = refused.filter(({ option }) => option === undefined);
    if (lacking !== undefined) throw missingFeature(family, lacking, failure, version);
    features = features.filter((feature) => !refused.includes(feature));
  }
  const has = (wanted: Feature["option"]): boolean => features.some(({ option }) => option === wanted);
  return { objectComments: has("objectComments"), trafficCounters: has("trafficCounters") };
}

/**
 * Dry run of features; null if nft takes them.
 *
 * @throws {ExecError} if that is unknown: nft was killed, hung, or fails without saying why
 */
async function checkFailure(nft: Nft, features: readonly Feature[]): Promise<ExecError | null> {
  try {
    await nft.check(features.flatMap(({ commands }) => commands).map((line) => `${line}\n`).join(""));
    return null;
  } catch (error) {
    if (error instanceof ExecError && saysWhy(error)) return error;
    throw error;
  }
}

/** Features whose lines nft names; the first if it names none, because then nothing works. */
function refusedFeatures({ stderr }: ExecError, features: readonly Feature[]): readonly Feature[] {
  const owners = features.flatMap((feature) => feature.commands.map(() => feature));
  const named = new Set(nftErrors(stderr).map(({ line }) => owners[line - 1]));
  const refused = features.filter((feature) => named.has(feature));
  return refused.length === 0 ? features.slice(0, 1) : refused;
}

function missingFeature(
  family: IpFamily,
  { name, kernel }: Feature,
  failure: ExecError,
  version: string | null,
): UnsupportedError {
  // Lines that nft itself does not understand never get to the kernel.
  const isKernel = failure.stderr.includes("Could not process rule") ||
    nftErrors(failure.stderr).length === 0;
  const needs = isKernel ? `in the kernel: ${kernel}` : "a newer nft";
  return new UnsupportedError(`${family} through nftables: ${name}`, needs, foundText(failure, version), {
    cause: failure,
  });
}

function foundText(failure: ExecError, version: string | null): string {
  return `${describeNftFailure(failure)} (nft ${version ?? "of unknown version"})`;
}

/** Error of a process that may not use nftables. */
function withoutRights(family: IpFamily, failure: ExecError, version: string | null): UnsupportedError {
  return new UnsupportedError(
    `${family} through nftables`,
    "root or CAP_NET_ADMIN",
    foundText(failure, version),
    { message: NEEDS_RIGHTS, cause: failure },
  );
}

/** Name of a table that only dry runs see. */
const PROBE_TABLE = "kproxy-probe";

/** One feature that nft and the kernel must support. */
interface Feature {
  readonly name: string;
  /** Kernel module and option. */
  readonly kernel: string;
  /** Commands that need it, in an existing table. */
  readonly commands: readonly string[];
  /** The option of the rules that needs it; absent: all rules do. */
  readonly option?: "objectComments" | "trafficCounters";
}

/** A feature with the rules that need it, in a chain of their own, and the sets, maps and chains that these use, as nft writes them. */
type Row = readonly [
  name: string,
  kernel: string,
  rules: readonly string[],
  objects?: readonly string[],
  option?: Feature["option"],
];

const NF_TABLES = "nf_tables (CONFIG_NF_TABLES)";

/** All features that the rules of one family use, the most basic first. */
export function neededFeatures(family: IpFamily): readonly Feature[] {
  const { ip, addressType } = FAMILY_WORDS[family];
  const v = family === "IPv4" ? 4 : 6;
  const table = `${ip} ${PROBE_TABLE}`;
  return [
    {
      name: `tables of family ${ip}`,
      kernel: `nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV${v})`,
      commands: [`add table ${table}`],
    },
    ...rows(ip, addressType, v).map(([name, kernel, rules, objects = [], option], at): Feature => ({
      name,
      kernel,
      commands: [
        ...objects.map((text) => `add ${text.replace(" ", ` ${table} `)}`),
        ...rules.length === 0 ? [] : [`add chain ${table} rules-${at}`],
        ...rules.map((rule) => `add rule ${table} rules-${at} ${rule}`),
      ],
      ...option === undefined ? {} : { option },
    })),
    {
      name: "comments of tables, sets and maps",
      kernel: NF_TABLES,
      commands: [
        `add table ${table} { comment "probe" ; }`,
        `add set ${table} commented { type ${addressType} ; comment "probe" ; }`,
      ],
      option: "objectComments",
    },
  ];
}

function rows(ip: string, addressType: string, v: 4 | 6): readonly Row[] {
  const conntrack = `ct status dnat ${ip} saddr . ${ip} daddr . meta l4proto . th dport @pairs accept`;
  const counted =
    `ct status dnat meta l4proto tcp ct direction original ct original ${ip} daddr . meta l4proto . ct original proto-dst @counted return`;
  return [
    ["chains that filter", NF_TABLES, [], [
      "chain filter { type filter hook prerouting priority dstnat - 10; policy accept; }",
    ]],
    ["chains that translate addresses", "nft_chain_nat (CONFIG_NFT_NAT)", [], [
      "chain nat { type nat hook prerouting priority dstnat; policy accept; }",
    ]],
    [
      "maps from destination to verdict",
      NF_TABLES,
      [`${ip} daddr . meta l4proto . th dport vmap @verdicts`],
      [
        `map verdicts { type ${addressType} . inet_proto . inet_service : verdict ; }`,
      ],
    ],
    ["random numbers", "nft_numgen (CONFIG_NFT_NUMGEN)", [
      "numgen random mod 3 vmap { 0 : accept, 1 : drop }",
    ]],
    [
      "address translation by a map with random numbers in its keys",
      "nft_nat (CONFIG_NFT_NAT)",
      [`dnat ${ip} to ${ip} daddr . tcp dport . numgen random mod 3 map @endpoints`],
      [`map endpoints { typeof ${ip} daddr . tcp dport . numgen random mod 65536 : ${ip} daddr . tcp dport ; }`],
    ],
    ["masquerading with random ports", "nft_masq (CONFIG_NFT_MASQ)", [
      "meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
    ]],
    ["connection tracking in rules", "nft_ct (CONFIG_NFT_CT)", [
      'ct state new accept comment "probe"',
      conntrack,
    ], [`set pairs { type ${addressType} . ${addressType} . inet_proto . inet_service ; }`]],
    ["lookup of local addresses", `nft_fib_ipv${v} (CONFIG_NFT_FIB_IPV${v})`, [
      "fib saddr type local accept",
      "fib daddr type local accept",
    ]],
    ["rejection", `nft_reject_ipv${v} (CONFIG_NFT_REJECT_IPV${v})`, ["reject"]],
    ["sets that rules fill", NF_TABLES, [`update @clients { ${ip} saddr }`, `${ip} saddr @clients accept`], [
      `set clients { type ${addressType} ; flags dynamic,timeout ; timeout 60s ; }`,
    ]],
    ["counters of set elements", NF_TABLES, [counted], [
      `set counted { type ${addressType} . inet_proto . inet_service ; counter ; }`,
    ], "trafficCounters"],
  ];
}
