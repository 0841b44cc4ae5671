/**
 * Takes each kind of rule and element out of the finished text of nftables mode, or gets it wrong, and asks that some flow case
 * notices. What no case notices is either not tested or not needed.
 */
import { assert } from "@std/assert";
import type { IpFamily } from "../../lib/model/objects.ts";
import { FLOW_CASES } from "./flow_cases.ts";
import { differences, type FlowCase, optionsOf } from "./flow_case.ts";
import { nftTableOf, nftText } from "./nftables_backend.ts";

interface LoadedCase {
  readonly flowCase: FlowCase;
  readonly text: Readonly<Record<IpFamily, string>>;
}

const LOADED: readonly LoadedCase[] = FLOW_CASES.map((flowCase) => {
  const options = optionsOf(flowCase);
  return {
    flowCase,
    text: {
      IPv4: nftText("IPv4", flowCase.objects, options),
      IPv6: nftText("IPv6", flowCase.objects, options),
    },
  };
});

/** One command a line: elements in braces over several lines become a command each. */
function commandsOf(text: string): string[] {
  return text.replace(
    /^(add element \S+ \S+ \S+) \{\n([^}]*)\n\}$/gm,
    (_, start: string, elements: string) =>
      elements.split(",\n").map((element) => `${start} { ${element} }`).join("\n"),
  ).split("\n");
}

/** How many cases have such commands, and how many of them the change breaks. */
function brokenCases(change: (command: string) => string | null): { touched: number; broken: number } {
  let touched = 0;
  let broken = 0;
  for (const { flowCase, text } of LOADED) {
    const changed = (family: IpFamily): { text: string; isOther: boolean } => {
      const before = commandsOf(text[family]);
      const after = before.map(change).filter((command) => command !== null);
      return { text: after.join("\n"), isOther: after.join("\n") !== before.join("\n") };
    };
    const [four, six] = [changed("IPv4"), changed("IPv6")];
    if (!four.isOther && !six.isOther) continue;
    touched++;
    const table = nftTableOf({ IPv4: four.text, IPv6: six.text }, optionsOf(flowCase));
    if (differences(table, flowCase.flows, "nftables").length > 0) broken++;
  }
  return { touched, broken };
}

/** Words in the command, and how its rule or element begins. */
const KINDS: readonly (readonly [name: string, command: RegExp])[] = [
  ["the firewall before routing", /^add rule \S+ kproxy filter-prerouting-pre-dnat /],
  ["the firewall of what the node sends", /^add rule \S+ kproxy filter-output-pre-dnat /],
  ["node ports without endpoints", /^add rule \S+ kproxy filter-input .*jump nodeport-endpoints-check/],
  ["Services without endpoints, to the node", /^add rule \S+ kproxy filter-input .*jump service-endpoints/],
  ["Services without endpoints, forwarded", /^add rule \S+ kproxy filter-forward .*jump service-endpoints/],
  [
    "Services without endpoints, from the node",
    /^add rule \S+ kproxy filter-output .*jump service-endpoints/,
  ],
  ["unused ports of cluster IPs, forwarded", /^add rule \S+ kproxy filter-forward .*jump cluster-ips-check/],
  [
    "unused ports of cluster IPs, from the node",
    /^add rule \S+ kproxy filter-output .*jump cluster-ips-check/,
  ],
  ["translation before routing", /^add rule \S+ kproxy nat-prerouting /],
  ["translation of what the node sends", /^add rule \S+ kproxy nat-output /],
  ["translation of sources", /^add rule \S+ kproxy nat-postrouting /],
  ["refusal of unused ports", /^add rule \S+ kproxy cluster-ips-check .*@cluster-ips reject/],
  ["unallocated cluster IPs", /^add rule \S+ kproxy cluster-ips-check .*drop/],
  ["masquerading from outside", /^add rule \S+ kproxy services .*saddr != .*meta mark set/],
  ["masquerading by interface", /^add rule \S+ kproxy services .*iifname != "cni0" .*meta mark set/],
  ["masquerading by interface prefix", /^add rule \S+ kproxy services .*iifname != "veth\*" .*meta mark set/],
  ["masquerading of all", /^add rule \S+ kproxy services .*masquerade all/],
  ["dispatch by address", /^add rule \S+ kproxy services .*vmap @service-ips/],
  ["dispatch by node port", /^add rule \S+ kproxy services .*vmap @service-nodeports/],
  ["marked packets", /^add rule \S+ kproxy masquerading meta mark/],
  ["hairpins", /^add rule \S+ kproxy masquerading ct status dnat/],
  ["masquerading from outside, external Cluster", /^add rule \S+ kproxy masq-tcp-\d+ meta mark set/],
  ["the same of node ports", /^add rule \S+ kproxy nodeport-masq-tcp-\d+ meta mark set/],
  ["pods under external Local", /^add rule \S+ kproxy external-tcp-\d+-\d+ ip6? saddr .*goto tcp-/],
  ["the same of node ports, pods", /^add rule \S+ kproxy nodeport-external-tcp-\d+-\d+ ip6? saddr .*goto/],
  ["the node's mark under external Local", /^add rule \S+ kproxy external-tcp-\d+-\d+ fib .*mark set/],
  [
    "the same of node ports, the node's mark",
    /^add rule \S+ kproxy nodeport-external-tcp-\d+-\d+ fib .*mark set/,
  ],
  ["the node under external Local", /^add rule \S+ kproxy external-tcp-\d+-\d+ fib .*goto/],
  ["the same of node ports, the node", /^add rule \S+ kproxy nodeport-external-tcp-\d+-\d+ fib .*goto/],
  ["local endpoints under external Local", /^add rule \S+ kproxy external-tcp-\d+-\d+ goto local-/],
  [
    "the same of node ports, local",
    /^add rule \S+ kproxy nodeport-external-tcp-\d+-\d+ goto nodeport-local-/,
  ],
  ["UDP under external Local", /^add rule \S+ kproxy (?:nodeport-)?external-udp-\d+-\d+ goto/],
  ["the choice, TCP", /^add rule \S+ kproxy tcp-\d+ dnat/],
  ["the choice, UDP", /^add rule \S+ kproxy udp-\d+ dnat/],
  ["the choice, SCTP", /^add rule \S+ kproxy sctp-\d+ dnat/],
  ["the choice of node ports, SCTP", /^add rule \S+ kproxy nodeport-sctp-\d+ dnat/],
  ["the choice among local ones", /^add rule \S+ kproxy local-tcp-\d+ dnat/],
  ["the choice of node ports", /^add rule \S+ kproxy nodeport-tcp-\d+ dnat/],
  ["the choice of node ports among local ones", /^add rule \S+ kproxy nodeport-local-tcp-\d+ dnat/],
  ["source ranges", /^add rule \S+ kproxy firewall-\S*\/\S* .*saddr \S+\/\d+ return/],
  ["load-balancer IPs as sources", /^add rule \S+ kproxy firewall-\S*\/\S* .*saddr (?!\S*\/)\S+ return/],
  ["what no source range holds", /^add rule \S+ kproxy firewall-\S*\/\S* drop/],
  ["affinity", /^add rule \S+ kproxy service-\S*\/\S* .*saddr @affinity/],
  ["affinity among local ones", /^add rule \S+ kproxy local-\S*\/\S* .*saddr @affinity/],
  ["the first choice under affinity", /^add rule \S+ kproxy service-\S*\/\S* numgen/],
  ["the first choice among local ones", /^add rule \S+ kproxy local-\S*\/\S* numgen/],
  ["what affinity remembers", /^add rule \S+ kproxy endpoint-\S+ update/],
  ["where affinity leads", /^add rule \S+ kproxy endpoint-\S+ .*dnat/],
  ["masquerading under affinity", /^add rule \S+ kproxy external-\S*\/\S* meta mark/],
  ["addresses that serve node ports", /^add element \S+ kproxy nodeport-ips /],
  ["cluster IPs", /^add element \S+ kproxy cluster-ips /],
  ["hairpin pairs", /^add element \S+ kproxy hairpin-connections /],
  ["addresses of Services", /^add element \S+ kproxy service-ips /],
  ["node ports", /^add element \S+ kproxy service-nodeports /],
  ["addresses without endpoints", /^add element \S+ kproxy no-endpoint-services .*goto reject/],
  ["addresses without local endpoints", /^add element \S+ kproxy no-endpoint-services .*: drop/],
  ["node ports without any endpoint", /^add element \S+ kproxy no-endpoint-nodeports .*goto reject/],
  ["node ports without local endpoints", /^add element \S+ kproxy no-endpoint-nodeports .*: drop/],
  ["firewalls of addresses", /^add element \S+ kproxy firewall-ips /],
  ...["endpoints", "local-endpoints", "nodeport-endpoints", "local-nodeport-endpoints"].flatMap((map) =>
    ["tcp", "udp"].map((protocol) =>
      [`elements of ${map}-${protocol}`, new RegExp(`^add element \\S+ kproxy ${map}-${protocol} `)] as const
    )
  ),
  ["the second slots", /^add element \S+ kproxy \S*endpoints-\w+ \{ .* \. 1 : /],
];

for (const [name, command] of KINDS) {
  Deno.test(`nftables: some flow case breaks without ${name}`, { permissions: "none" }, () => {
    const { touched, broken } = brokenCases((one) => command.test(one) ? null : one);
    assert(touched > 0, `no case has such commands: ${command}`);
    assert(broken > 0, `${touched} cases have such commands and none needs them`);
  });
}

/** Small changes that a planner could get wrong. */
const REWRITES: readonly (readonly [name: string, from: RegExp, to: string])[] = [
  ["refusing becomes dropping", /^(add rule \S+ kproxy reject-chain) reject$/, "$1 drop"],
  ["dropping becomes refusing", /(no-endpoint-services .*): drop/, "$1: goto reject-chain"],
  ["unused ports are dropped", /@cluster-ips reject/, "@cluster-ips drop"],
  ["the choice counts one too many", /^(add rule \S+ kproxy tcp-1 .*mod) 1 /, "$1 2 "],
  ["the choice counts one too few", /^(add rule \S+ kproxy tcp-2 .*mod) 2 /, "$1 1 "],
  ["affinity chooses among too few", /numgen random mod 2 vmap/, "numgen random mod 1 vmap"],
  ["local is turned around", /saddr != (\S+) meta mark set/, "saddr $1 meta mark set"],
  ["an interface prefix becomes a name", /"veth\*"/, '"veth"'],
  ["masquerading asks no mark", /meta mark & \S+ != 0x00000000 meta/, "meta"],
  ["the mark stays", /meta mark set meta mark \^ \S+ masquerade/, "masquerade"],
  ["another mark is set", /mark \| 0x00004000/, "mark | 0x00008000"],
  ["other marks are lost", /meta mark set meta mark \| 0x00004000/, "meta mark set 0x00004000"],
  ["hairpins ask no translation", /ct status dnat (ip6? saddr \. )/, "$1"],
  ["node ports take other hosts' traffic", /fib daddr type local (.*@service-nodeports)/, "$1"],
  ["node ports take localhost", / ip daddr != 127\.0\.0\.0\/8(.*@service-nodeports)/, "$1"],
  ["IPv6 node ports take localhost", / ip6 daddr != ::1(.*@service-nodeports)/, "$1"],
  ["node ports take every address", /ip6? daddr @nodeport-ips (.*@service-nodeports)/, "$1"],
  ["everybody is the node", /fib saddr type local goto/, "goto"],
  ["everybody is marked as the node", /fib saddr type local (meta mark set)/, "$1"],
  [
    "external Local is ignored",
    /^(add rule \S+ kproxy external-tcp-(\d+)-\d+ goto) local-tcp-\d+/,
    "$1 tcp-$2",
  ],
  ["refusals hit connections that are there", /ct state new (jump cluster-ips-check)/, "$1"],
  ["the firewall comes after the translation", /(pre-dnat \{ .*priority) (?:dstnat - 10|-110)/, "$1 0"],
  ["affinity never ends", /timeout \d+s/, "timeout 1000000s"],
  ["affinity does not start afresh", /update @affinity/, "add @affinity"],
  ["the service port stays", /(: goto endpoint|dnat to \S+):\d+$/, "$1"],
  ["a source range lets all in", /ip saddr \S+\/\d+ return/, "ip saddr 0.0.0.0/0 return"],
];

for (const [name, from, to] of REWRITES) {
  Deno.test(`nftables: some flow case breaks if ${name}`, { permissions: "none" }, () => {
    const { touched, broken } = brokenCases((one) => one.replace(from, to));
    assert(touched > 0, `no case has such commands: ${from}`);
    assert(broken > 0, `${touched} cases have such commands and none notices`);
  });
}
