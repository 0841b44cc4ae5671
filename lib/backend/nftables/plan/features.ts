/**
 * What the rules need of nft and the kernel, one by one, each with the commands that need it and nothing else: a dry run of all of them shows
 * whether the mode can be run on a node, and if not what the node lacks.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import { FAMILY_WORDS } from "./chains.ts";

/** Name of a table that only dry runs see. */
const PROBE_TABLE = "kproxy-probe";

/** One thing that nft and the kernel must know. */
export interface Feature {
  readonly name: string;
  /** Of the kernel: module and option. */
  readonly kernel: string;
  /** In a table that is there. */
  readonly commands: readonly string[];
  /** The option of the rules that needs it; absent: all rules do. */
  readonly option?: "objectComments" | "trafficCounters";
}

/** Commands that add these to the table: sets, maps and chains as nft writes them, and rules, in a chain of their own. */
type MakeCommands = (rules: readonly string[], ...objects: readonly string[]) => readonly string[];

/** All features that the rules of one family use, the most basic first. */
export function neededFeatures(family: IpFamily): readonly Feature[] {
  const { ip, addressType } = FAMILY_WORDS[family];
  const v = family === "IPv4" ? 4 : 6;
  const table = `${ip} ${PROBE_TABLE}`;
  let chains = 0;
  const commands: MakeCommands = (rules, ...objects) => {
    const chain = `rules-${++chains}`;
    const added = rules.length === 0 ? [] : [`add chain ${table} ${chain}`];
    return [
      ...objects.map((text) => `add ${text.replace(" ", ` ${table} `)}`),
      ...added,
      ...rules.map((rule) => `add rule ${table} ${chain} ${rule}`),
    ];
  };
  return [
    {
      name: `tables of family ${ip}`,
      kernel: `nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV${v})`,
      commands: [`add table ${table}`],
    },
    {
      name: "chains that filter",
      kernel: "nf_tables (CONFIG_NF_TABLES)",
      commands: commands(
        [],
        "chain filter { type filter hook prerouting priority dstnat - 10; policy accept; }",
      ),
    },
    {
      name: "chains that translate addresses",
      kernel: "nft_chain_nat (CONFIG_NFT_NAT)",
      commands: commands([], "chain nat { type nat hook prerouting priority dstnat; policy accept; }"),
    },
    ...ruleFeatures(ip, addressType, v, commands),
    {
      name: "comments of tables, sets and maps",
      kernel: "nf_tables (CONFIG_NF_TABLES)",
      commands: [
        `add table ${table} { comment "probe" ; }`,
        ...commands([], `set commented { type ${addressType} ; comment "probe" ; }`),
      ],
      option: "objectComments",
    },
    {
      name: "counters of set elements",
      kernel: "nf_tables (CONFIG_NF_TABLES)",
      commands: commands(
        [`ct status dnat meta l4proto tcp ct direction original ct original ${ip} daddr . meta l4proto . ct original proto-dst @counted return`],
        `set counted { type ${addressType} . inet_proto . inet_service ; counter ; }`,
      ),
      option: "trafficCounters",
    },
  ];
}

function ruleFeatures(ip: string, addressType: string, v: 4 | 6, commands: MakeCommands): readonly Feature[] {
  return [
    {
      name: "maps from destination to verdict",
      kernel: "nf_tables (CONFIG_NF_TABLES)",
      commands: commands(
        [`${ip} daddr . meta l4proto . th dport vmap @verdicts`],
        `map verdicts { type ${addressType} . inet_proto . inet_service : verdict ; }`,
      ),
    },
    {
      name: "random numbers",
      kernel: "nft_numgen (CONFIG_NFT_NUMGEN)",
      commands: commands(["numgen random mod 3 vmap { 0 : accept, 1 : drop }"]),
    },
    {
      name: "address translation by a map with random numbers in its keys",
      kernel: "nft_nat (CONFIG_NFT_NAT)",
      commands: commands(
        [`dnat ${ip} to ${ip} daddr . tcp dport . numgen random mod 3 map @endpoints`],
        `map endpoints { typeof ${ip} daddr . tcp dport . numgen random mod 65536 : ${ip} daddr . tcp dport ; }`,
      ),
    },
    {
      name: "masquerading with random ports",
      kernel: "nft_masq (CONFIG_NFT_MASQ)",
      commands: commands([
        "meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
      ]),
    },
    {
      name: "connection tracking in rules",
      kernel: "nft_ct (CONFIG_NFT_CT)",
      commands: commands(
        [
          'ct state new accept comment "probe"',
          `ct status dnat ${ip} saddr . ${ip} daddr . meta l4proto . th dport @pairs accept`,
        ],
        `set pairs { type ${addressType} . ${addressType} . inet_proto . inet_service ; }`,
      ),
    },
    {
      name: "lookup of local addresses",
      kernel: `nft_fib_ipv${v} (CONFIG_NFT_FIB_IPV${v})`,
      commands: commands(["fib saddr type local accept", "fib daddr type local accept"]),
    },
    {
      name: "rejection",
      kernel: `nft_reject_ipv${v} (CONFIG_NFT_REJECT_IPV${v})`,
      commands: commands(["reject"]),
    },
    {
      name: "sets that rules fill",
      kernel: "nf_tables (CONFIG_NF_TABLES)",
      commands: commands(
        [`update @clients { ${ip} saddr }`, `${ip} saddr @clients accept`],
        `set clients { type ${addressType} ; flags dynamic,timeout ; timeout 60s ; }`,
      ),
    },
  ];
}
