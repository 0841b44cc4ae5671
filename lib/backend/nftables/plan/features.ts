/**
 * What the rules need of nft and the kernel, one by one, each with the smallest text that needs it: so that a node which
 * refuses our rules can be told what it lacks.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";

/** Name of a table that only dry runs see. */
export const PROBE_TABLE = "kproxy-probe";

/** One thing that nft and the kernel must know. */
export interface Feature {
  readonly name: string;
  /** Of the kernel: module and option. */
  readonly kernel: string;
  /** A text for a dry run, whole but for the table itself. */
  readonly text: string;
}

/** How texts for dry runs are written. */
interface ProbeWords {
  /** @param kernel module and option */
  feature(name: string, kernel: string, ...commands: readonly string[]): Feature;
  /** Adds something to the table. */
  add(what: string, rest: string): string;
  /** A rule, in a chain of its own. */
  rule(text: string): readonly string[];
}

function probeWords(ip: string): ProbeWords {
  const add = (what: string, rest: string): string => `add ${what} ${ip} ${PROBE_TABLE} ${rest}`;
  return {
    feature: (name, kernel, ...commands) => ({
      name,
      kernel,
      text: [`add table ${ip} ${PROBE_TABLE}`, ...commands].join("\n") + "\n",
    }),
    add,
    rule: (text) => [add("chain", "c"), add("rule", `c ${text}`)],
  };
}

/** Tables and the chains that packets come to. */
function chainFeatures(ip: string, v: 4 | 6, { feature, add }: ProbeWords): readonly Feature[] {
  return [
    feature(`tables of family ${ip}`, "nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV" + v + ")"),
    feature(
      "chains that filter",
      "nf_tables (CONFIG_NF_TABLES)",
      add("chain", "c { type filter hook input priority filter ; }"),
    ),
    feature(
      "chains that translate addresses",
      "nft_chain_nat (CONFIG_NFT_NAT)",
      add("chain", "c { type nat hook prerouting priority dstnat ; }"),
    ),
  ];
}

/** All features that the rules of one family use, the most basic first. */
export function neededFeatures(family: IpFamily): readonly Feature[] {
  const ip = nftFamily(family);
  const v = family === "IPv4" ? 4 : 6;
  const address = `ipv${v}_addr`;
  const words = probeWords(ip);
  const { feature, add, rule } = words;
  return [
    ...chainFeatures(ip, v, words),
    feature(
      "maps from destination to verdict",
      "nf_tables (CONFIG_NF_TABLES)",
      add("map", `m { type ${address} . inet_proto . inet_service : verdict ; }`),
      ...rule(`${ip} daddr . meta l4proto . th dport vmap @m`),
    ),
    feature(
      "random numbers",
      "nft_numgen (CONFIG_NFT_NUMGEN)",
      ...rule("numgen random mod 3 vmap { 0 : accept }"),
    ),
    feature(
      "address translation by a map with random numbers in its keys",
      "nft_nat (CONFIG_NFT_NAT)",
      add(
        "map",
        `m { typeof ${ip} daddr . tcp dport . numgen random mod 65536 : ${ip} daddr . tcp dport ; }`,
      ),
      ...rule(`dnat ${ip} to ${ip} daddr . tcp dport . numgen random mod 3 map @m`),
    ),
    feature(
      "masquerading with random ports",
      "nft_masq (CONFIG_NFT_MASQ)",
      ...rule("masquerade fully-random"),
    ),
    feature(
      "connection tracking in rules",
      "nft_ct (CONFIG_NFT_CT)",
      ...rule("ct state new ct status dnat accept"),
    ),
    feature(
      "lookup of local addresses",
      `nft_fib_ipv${v} (CONFIG_NFT_FIB_IPV${v})`,
      ...rule("fib saddr type local accept"),
    ),
    feature("rejection", `nft_reject_ipv${v} (CONFIG_NFT_REJECT_IPV${v})`, ...rule("reject")),
    feature(
      "sets that rules fill",
      "nf_tables (CONFIG_NF_TABLES)",
      add("set", `s { type ${address} ; flags dynamic,timeout ; timeout 60s ; }`),
      ...rule(`update @s { ${ip} saddr }`),
    ),
  ];
}
