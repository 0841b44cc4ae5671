/**
 * Features that the rules need of nft and the kernel, each with the commands that need it and nothing else: a
 * dry run of all of them shows whether the mode can be run on a node, and if not what the node lacks.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import { FAMILY_WORDS } from "./chains.ts";

/** Name of a table that only dry runs see. */
const PROBE_TABLE = "kproxy-probe";

/** One feature that nft and the kernel must support. */
export interface Feature {
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
