/**
 * Takes each kind of rule out of the finished rules, and each jump, and asks that some flow case notices. What no case notices is
 * either not tested or not needed.
 */
import { assert, assertEquals } from "@std/assert";
import { FLOW_CASES } from "./flow_cases.ts";
import { differences, type FlowCase, optionsOf } from "./flow_case.ts";
import { type RulesText, rulesText, tableOf } from "./iptables_backend.ts";
import type { IpFamily } from "../../lib/model/objects.ts";

/** One kind of rule: in which table, and how its line begins or what is in it. */
interface RuleKind {
  readonly name: string;
  readonly table: "filter" | "nat";
  readonly line: RegExp;
}

const SERVICE_CHAIN = "KUBE-SV[CL]-[A-Z2-7]{16}";
const FILTERED = String
  .raw`-m comment --comment "\S+ has no (?:local )?endpoints" -m \w+ -p \w+ -d \S+ --dport \d+ -j (?:REJECT|DROP)`;

/** Numbers are those of `guards.ts`; the others are no rules of Services, or parts of one. */
const RULE_KINDS: readonly RuleKind[] = [
  { name: "1 cluster IP", table: "nat", line: /^-A KUBE-SERVICES .* cluster IP" / },
  { name: "2 cluster IP REJECT", table: "filter", line: /^-A KUBE-SERVICES .* -j REJECT$/ },
  { name: "2 cluster IP DROP", table: "filter", line: /^-A KUBE-SERVICES .* -j DROP$/ },
  { name: "3 external IP", table: "nat", line: /^-A KUBE-SERVICES .* external IP" / },
  // Rules 4 and 7 are equal but for the address they are about.
  {
    name: "4 external IP verdict",
    table: "filter",
    line: new RegExp(`^-A KUBE-EXTERNAL-SERVICES .*-d 19[28]`),
  },
  { name: "5 load-balancer IP", table: "nat", line: /^-A KUBE-SERVICES .* loadbalancer IP" / },
  { name: "6 load-balancer firewall", table: "filter", line: /^-A KUBE-PROXY-FIREWALL / },
  {
    name: "7 load-balancer IP verdict",
    table: "filter",
    line: new RegExp(`^-A KUBE-EXTERNAL-SERVICES .*-d 203`),
  },
  { name: "4 and 7", table: "filter", line: new RegExp(`^-A KUBE-EXTERNAL-SERVICES ${FILTERED}$`) },
  { name: "8 node port", table: "nat", line: /^-A KUBE-NODEPORTS / },
  {
    name: "9 node port REJECT",
    table: "filter",
    line: /^-A KUBE-EXTERNAL-SERVICES .*--dst-type LOCAL .* -j REJECT$/,
  },
  {
    name: "9 node port DROP",
    table: "filter",
    line: /^-A KUBE-EXTERNAL-SERVICES .*--dst-type LOCAL .* -j DROP$/,
  },
  { name: "10 health check", table: "filter", line: /^-A KUBE-NODEPORTS .* health check node port" / },
  {
    name: "12 masquerade all",
    table: "nat",
    line: new RegExp(`^-A ${SERVICE_CHAIN} .* cluster IP" .* --dport \\d+ -j KUBE-MARK-MASQ$`),
  },
  ...["-s", "-i \\w+", "-i \\w+\\+"].map((fragment): RuleKind => ({
    name: `12′ masquerade what is not local, ${fragment}`,
    table: "nat",
    line: new RegExp(
      `^-A ${SERVICE_CHAIN} .* cluster IP" .* ! ${fragment}${
        fragment === "-s" ? " \\S+" : ""
      } -j KUBE-MARK-MASQ$`,
    ),
  })),
  { name: "12′ under policy Local", table: "nat", line: /^-A KUBE-SVL-\S+ .* cluster IP" .* ! -s / },
  { name: "13 masquerade external", table: "nat", line: /^-A KUBE-EXT-\S+ .*"masquerade traffic for/ },
  { name: "14 pod traffic", table: "nat", line: /^-A KUBE-EXT-\S+ .*"pod traffic for/ },
  { name: "15 masquerade LOCAL", table: "nat", line: /^-A KUBE-EXT-\S+ .*"masquerade LOCAL traffic/ },
  { name: "16 route LOCAL", table: "nat", line: /^-A KUBE-EXT-\S+ .*"route LOCAL traffic/ },
  { name: "17 external policy Cluster", table: "nat", line: /^-A KUBE-EXT-\S+ -j KUBE-SVC-/ },
  { name: "17 external policy Local", table: "nat", line: /^-A KUBE-EXT-\S+ -j KUBE-SVL-/ },
  { name: "18 source range", table: "nat", line: /^-A KUBE-FW-\S+ .* -s \S+\/\d+ -j/ },
  { name: "19 load-balancer IP as source", table: "nat", line: /^-A KUBE-FW-\S+ .* -s [^\s/]+ -j/ },
  { name: "20 what falls through", table: "nat", line: /^-A KUBE-FW-\S+ .*"other traffic to [^"]*"$/ },
  { name: "21 cluster endpoints", table: "nat", line: /^-A KUBE-SVC-\S+ .*-j KUBE-SEP-/ },
  { name: "21 one of several", table: "nat", line: /^-A KUBE-SVC-\S+ .*--probability .*-j KUBE-SEP-/ },
  {
    name: "21 the last of several",
    table: "nat",
    line: /^-A KUBE-SVC-\S+ (-m comment --comment "[^"]*" )?-j KUBE-SEP-/,
  },
  { name: "22 local endpoints", table: "nat", line: /^-A KUBE-SVL-\S+ .*-j KUBE-SEP-/ },
  { name: "22 one of several", table: "nat", line: /^-A KUBE-SVL-\S+ .*--probability .*-j KUBE-SEP-/ },
  { name: "21 affinity", table: "nat", line: /^-A KUBE-SVC-\S+ .*--rcheck / },
  { name: "22 affinity", table: "nat", line: /^-A KUBE-SVL-\S+ .*--rcheck / },
  { name: "23 hairpin", table: "nat", line: /^-A KUBE-SEP-\S+ .*-s \S+ -j KUBE-MARK-MASQ$/ },
  { name: "23 DNAT", table: "nat", line: /^-A KUBE-SEP-\S+ .*-j DNAT / },
  { name: "localnet guard", table: "filter", line: /^-A KUBE-FIREWALL / },
  { name: "invalid packets", table: "filter", line: /^-A KUBE-FORWARD .*INVALID/ },
  { name: "forward marked", table: "filter", line: /^-A KUBE-FORWARD .*--mark / },
  { name: "forward established", table: "filter", line: /^-A KUBE-FORWARD .*ESTABLISHED/ },
  { name: "unmarked return", table: "nat", line: /^-A KUBE-POSTROUTING -m mark ! / },
  { name: "clear the mark", table: "nat", line: /^-A KUBE-POSTROUTING -j MARK / },
  { name: "masquerade", table: "nat", line: /^-A KUBE-POSTROUTING .*-j MASQUERADE/ },
  { name: "set the mark", table: "nat", line: /^-A KUBE-MARK-MASQ / },
  {
    name: "node-port tail for all addresses",
    table: "nat",
    line: /^-A KUBE-SERVICES .*--dst-type LOCAL (! -d \S+ )?-j/,
  },
  { name: "node-port tail for one address", table: "nat", line: /^-A KUBE-SERVICES .*NOTE: [^"]*" -d / },
];

interface LoadedCase {
  readonly flowCase: FlowCase;
  readonly text: Readonly<Record<IpFamily, RulesText>>;
}

const LOADED: readonly LoadedCase[] = FLOW_CASES.map((flowCase) => {
  const options = optionsOf(flowCase);
  return {
    flowCase,
    text: {
      IPv4: rulesText("IPv4", flowCase.objects, options),
      IPv6: rulesText("IPv6", flowCase.objects, options),
    },
  };
});

/** Passes the lines through `change`, which sees the table each stands in; it drops a line by yielding null. */
function changeLines(restore: string, change: (table: string, line: string) => string | null): string {
  let table = "";
  const lines = restore.split("\n").map((line) => {
    if (line.startsWith("*")) table = line.slice(1);
    return change(table, line);
  });
  return lines.filter((line) => line !== null).join("\n");
}

/** How many cases the changed rules break. */
function brokenCases(change: (text: RulesText) => RulesText): { touched: number; broken: number } {
  let touched = 0;
  let broken = 0;
  for (const { flowCase, text } of LOADED) {
    const changed = { IPv4: change(text.IPv4), IPv6: change(text.IPv6) };
    if (changed.IPv4 === text.IPv4 && changed.IPv6 === text.IPv6) continue;
    touched++;
    if (differences(tableOf(changed, optionsOf(flowCase)), flowCase.flows).length > 0) broken++;
  }
  return { touched, broken };
}

for (const { name, table, line } of RULE_KINDS) {
  Deno.test(`some flow case breaks without the rules "${name}"`, { permissions: "none" }, () => {
    const { touched, broken } = brokenCases((text) => {
      const restore = changeLines(
        text.restore,
        (inTable, one) => inTable === table && line.test(one) ? null : one,
      );
      return restore === text.restore ? text : { ...text, restore };
    });
    assert(touched > 0, `no case has such rules: ${line}`);
    assert(broken > 0, `${touched} cases have such rules and none needs them`);
  });
}

/** Small changes of a rule that a planner could get wrong. */
const REWRITES: readonly { name: string; from: RegExp; to: string }[] = [
  { name: "DROP where REJECT belongs", from: /-j REJECT$/, to: "-j DROP" },
  { name: "REJECT where DROP belongs", from: /(has no local endpoints.*) -j DROP$/, to: "$1 -j REJECT" },
  { name: "another probability", from: /--probability 0\.5000000000/, to: "--probability 0.3333333333" },
  {
    name: "local is turned around",
    from: /! -s (?!127)(\S+) -j KUBE-MARK-MASQ/,
    to: "-s $1 -j KUBE-MARK-MASQ",
  },
  { name: "an interface prefix becomes a name", from: /-i (\w+)\+/, to: "-i $1" },
  { name: "the firewall is passed by", from: /(loadbalancer IP" .*-j KUBE-)FW-/, to: "$1EXT-" },
  { name: "node ports go to the cluster policy", from: /^(-A KUBE-NODEPORTS .*-j KUBE-)EXT-/, to: "$1SVC-" },
  { name: "external policy Local is ignored", from: /^(-A KUBE-EXT-\S+ -j KUBE-)SVL-/, to: "$1SVC-" },
  { name: "affinity never ends", from: / --seconds \d+/, to: "" },
  { name: "affinity is not recorded", from: / -m recent --name \S+ --set/, to: "" },
  { name: "the service port stays", from: /(--to-destination \S+):\d+$/, to: "$1" },
  {
    name: "node ports take other hosts' traffic",
    from: / -m addrtype --dst-type LOCAL (.*-j KUBE-NODEPORTS)$/,
    to: " $1",
  },
  {
    name: "node ports refuse other hosts' traffic",
    from: / -m addrtype --dst-type LOCAL (.*-j REJECT)$/,
    to: " $1",
  },
  { name: "IPv6 localhost is taken", from: / ! -d ::1\/128/, to: "" },
  { name: "IPv4 localhost is taken", from: / ! -d 127\.0\.0\.0\/8/, to: "" },
  { name: "everything is taken for local", from: / -m addrtype --src-type LOCAL/, to: "" },
  { name: "another mark is set", from: /--or-mark 0x00004000/, to: "--or-mark 0x00008000" },
  {
    name: "the health check is guarded by protocol",
    from: /(health check node port" )-m tcp -p tcp/,
    to: "$1-m udp -p udp",
  },
];

for (const { name, from, to } of REWRITES) {
  Deno.test(`some flow case breaks if ${name}`, { permissions: "none" }, () => {
    const { touched, broken } = brokenCases((text) => {
      const restore = changeLines(text.restore, (_table, one) => one.replace(from, to));
      return restore === text.restore ? text : { ...text, restore };
    });
    assert(touched > 0, `no case has such rules: ${from}`);
    assert(broken > 0, `${touched} cases have such rules and none notices`);
  });
}

/** `TABLE CHAIN TARGET` of every jump from a built-in chain. */
const JUMPS: readonly string[] = [...LOADED[0]?.text.IPv4.builtin ?? []].flatMap(([place, rules]) =>
  rules.map((rule) => `${place} ${/-j (\S+)$/.exec(rule)?.[1]}`)
);

Deno.test("all fourteen jumps are there", { permissions: "none" }, () => {
  assertEquals(new Set(JUMPS).size, 14);
});

/** Owned by kubelet: kproxy's rule in it is about packets from the wire, which never come through OUTPUT. */
const UNSEEN_JUMP = "filter OUTPUT KUBE-FIREWALL";

for (const jump of JUMPS.filter((one) => one !== UNSEEN_JUMP)) {
  Deno.test(`some flow case breaks without the jump ${jump}`, { permissions: "none" }, () => {
    const [table, chain, target] = jump.split(" ");
    const place = `${table} ${chain}`;
    const { broken } = brokenCases((text) => {
      const builtin = new Map(text.builtin);
      builtin.set(place, (builtin.get(place) ?? []).filter((rule) => !rule.endsWith(`-j ${target}`)));
      return { ...text, builtin };
    });
    assert(broken > 0, "no case needs it");
  });
}

Deno.test("some flow case breaks if forwarded traffic is accepted before the load-balancer firewall", {
  permissions: "none",
}, () => {
  const { broken } = brokenCases((text) => {
    const forward = text.builtin.get("filter FORWARD") ?? [];
    const first = forward.filter((rule) => rule.endsWith("-j KUBE-FORWARD"));
    const rest = forward.filter((rule) => !rule.endsWith("-j KUBE-FORWARD"));
    return { ...text, builtin: new Map(text.builtin).set("filter FORWARD", [...first, ...rest]) };
  });
  assert(broken > 0);
});
