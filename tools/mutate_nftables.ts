/**
 * What the `mutate` task takes out of, or gets wrong in, the planner of nftables mode, and in what remembers and compares.
 *
 * @module
 */
import type { Mutation } from "./mutate.ts";

const FOLDER = "lib/backend/nftables/";

/** A file of the mode, or one in `lib/`. */
type Change = readonly [name: string, file: string, find: string, replace: string];

const RULES: readonly Change[] = [
  // Base rules.
  ["reject chain", "plan/base_rules.ts", 'rules: ["reject"]', 'rules: ["drop"]'],
  ["firewall check", "plan/base_rules.ts", "[`${toService} @${SETS.firewallIps}`]", "[]"],
  [
    "check of services without endpoints",
    "plan/base_rules.ts",
    "[`${toService} @${SETS.noEndpointServices}`]",
    "[]",
  ],
  [
    "check of node ports without endpoints",
    "plan/base_rules.ts",
    "[`${toNodePort} @${SETS.noEndpointNodePorts}`]",
    "[]",
  ],
  [
    "unknown ports of cluster IPs",
    "plan/base_rules.ts",
    "`${clusterIps} reject comment",
    "`${clusterIps} drop comment",
  ],
  ["unallocated cluster IPs", "plan/base_rules.ts", "...options.serviceCidrs.map(", "...[].map("],
  ["dispatch of services", "plan/base_rules.ts", "`${toService} @${SETS.serviceIps}`, ", ""],
  ["dispatch of node ports", "plan/base_rules.ts", ", `${toNodePort} @${SETS.serviceNodePorts}`", ""],
  ["the mark stays on", "plan/base_rules.ts", " meta mark set meta mark ^ ${mark}", ""],
  ["hairpins", "plan/base_rules.ts", "`ct status dnat ${ip} saddr", "`ct status snat ${ip} saddr"],
  ["node ports on loopback", "plan/base_rules.ts", " ${ip} daddr != ${loopback}", ""],
  [
    "firewall of what the node sends",
    "plan/base_rules.ts",
    'baseChain("filter-output-pre-dnat", "type filter hook output priority -110", [CHAINS.firewallCheck]),',
    "",
  ],
  [
    "translation of what the node sends",
    "plan/base_rules.ts",
    '"type nat hook output priority -100", [CHAINS.services]',
    '"type nat hook output priority -100", []',
  ],
  ["filter chains see every packet", "plan/base_rules.ts", '"" : "ct state new "', '"" : ""'],
  // Chains that Services share.
  [
    "choice among one too many",
    "plan/service_rules.ts",
    "numgen random mod ${count}`",
    "numgen random mod ${count + 1}`",
  ],
  [
    "masquerading under policy Cluster",
    "plan/service_rules.ts",
    '[`${words.setMark} comment "masquerade"`, `goto ${cluster}`]',
    "[`goto ${cluster}`]",
  ],
  [
    "masquerading of the node under policy Local",
    "plan/service_rules.ts",
    'rules.push(`fib saddr type local ${words.setMark} comment "masquerade local traffic"`);',
    "",
  ],
  [
    "the node under policy Local",
    "plan/service_rules.ts",
    'rules.push(`fib saddr type local goto ${cluster} comment "short-circuit local traffic"`);',
    "",
  ],
  [
    "an interface prefix is a whole name",
    "plan/service_rules.ts",
    'notLocal: `iifname != "${detector.prefix}*"`',
    'notLocal: `iifname != "${detector.prefix}"`',
  ],
  // Services.
  ["cluster IPs", "plan/service_rules.ts", "this.#draft.share(SETS.clusterIps, clusterIP);", ""],
  [
    "internal policy Local",
    "plan/service_rules.ts",
    "const { internalPolicyLocal: local } = this.#servicePort;",
    "const local = false;",
  ],
  [
    "verdict of cluster IPs",
    "plan/service_rules.ts",
    "this.#addVerdict(SETS.noEndpointServices, claim);",
    "",
  ],
  ["verdict of external addresses", "plan/service_rules.ts", "this.#addVerdict(noEndpointMap, claim);", ""],
  [
    "always refuse",
    "plan/service_rules.ts",
    '"drop" : `goto ${CHAINS.reject}`',
    "`goto ${CHAINS.reject}` : `goto ${CHAINS.reject}`",
  ],
  ["always drop", "plan/service_rules.ts", '"drop" : `goto ${CHAINS.reject}`', '"drop" : "drop"'],
  ["other sources", "plan/service_rules.ts", ', "drop"] };', "] };"],
  [
    "endpoints remember clients",
    "plan/service_rules.ts",
    "`update @${own.affinitySet} { ${ip} saddr }`,",
    "",
  ],
  [
    "clients are recognised",
    "plan/service_rules.ts",
    "...own.map(({ affinitySet, chain }) => `${ip} saddr @${affinitySet} goto ${chain}`),",
    "",
  ],
];

const MEMORY: readonly Change[] = [
  ["DNS first", "plan/plan.ts", "ports.some(({ port }) => port === DNS_PORT)", "false"],
  [
    "what others keep goes",
    "store/store.ts",
    "for (const elements of taken.values()) held.elements.push(...elements);",
    "",
  ],
  [
    "what others keep is theirs no more",
    "store/store.ts",
    "for (const [owner, elements] of taken) this.#giveUp(owner, elements);",
    "",
  ],
  ["shared elements stay while wanted", "store/store.ts", "&& countOf(nameOf(element)) > 0", "&& false"],
  ["shared elements are added once", "store/store.ts", "return isFirst;", "return true;"],
  [
    "a changed timeout",
    "lib/netfilter/nft_objects.ts",
    "known === undefined || known.timeoutSeconds !== container.timeoutSeconds",
    "known === undefined",
  ],
  [
    "changed rules of a chain",
    "lib/netfilter/nft_objects.ts",
    "sameTexts(known.rules, chain.rules)",
    "true",
  ],
  [
    "slots that were read",
    "store/full_sync.ts",
    "(container) => this.#rest.elements(container)",
    "() => undefined",
  ],
  [
    "values that were read",
    "lib/netfilter/nft_objects.ts",
    "known.value === element.value && !isRenamed(known, element)",
    "true",
  ],
  ["names that were read", "lib/netfilter/nft_objects.ts", "&& !isRenamed(known, element)", ""],
  [
    "leftover elements",
    "store/full_sync.ts",
    "for (const [key, value] of of) elements.push({ container, key, value });",
    "",
  ],
  [
    "leftovers in sets that are not wanted",
    "store/full_sync.ts",
    "for (const [container, of] of this.#elements) {",
    "for (const [container, of] of [...this.#elements].slice(0, 21)) {",
  ],
  [
    "the layout that was read",
    "apply/proxier.ts",
    "own !== null && !own.containers.has(LAYOUT_SET)",
    "false",
  ],
  [
    "the layout is told by a set",
    "apply/proxier.ts",
    "!own.containers.has(LAYOUT_SET)",
    '!own.comment.endsWith("layout 1")',
  ],
  [
    "clients of sets with another timeout",
    "apply/proxier.ts",
    "known === undefined || known.timeoutSeconds !== timeoutSeconds",
    "known === undefined",
  ],
  ["comments are cut", "plan/chains.ts", "const COMMENT_BYTES = 128;", "const COMMENT_BYTES = 256;"],
];

function mutation([name, file, find, replace]: Change, unitTests: boolean): Mutation {
  const path = file.startsWith("lib/") ? file : FOLDER + file;
  return { name: `nftables, ${name}`, edits: [{ file: path, find, replace }], unitTests };
}

export const NFTABLES_MUTATIONS: readonly Mutation[] = [
  ...RULES.map((change) => mutation(change, false)),
  ...MEMORY.map((change) => mutation(change, true)),
];
