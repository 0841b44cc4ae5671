/**
 * Texts of the tools with one fault planted, in every mode: each is named with its Service and its place, and no other Service is blamed.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { inputOf } from "../../../tests/support/check_objects.ts";
import { all, checked, printed } from "../../../tests/support/check_texts.ts";
import type { RulesMode } from "../desired/desired.ts";
import { checkDocument, checkLines, type CheckReport } from "./report.ts";

const NONE = { permissions: "none" } as const;

interface Fault {
  readonly name: string;
  readonly mode: RulesMode;
  /** Of the text of one tool. */
  readonly plant: (sound: string) => string;
  readonly tool?: string;
  /** Words of the line that names it: whose, kind, place, cause and texts. */
  readonly finds: readonly string[];
  /** No other Service is blamed. */
  readonly only?: string;
}

/** The first line that fits, without it; it must be there. */
const drop = (line: RegExp) => (text: string): string => text.replace(line, "");
/** Two neighbouring lines that fit change places. */
const swap = (line: RegExp) => (text: string): string =>
  text.replace(new RegExp(`(${line.source}\n)(${line.source}\n)`, "m"), (...parts: string[]) => {
    const whole = parts[0] ?? "";
    const [one = "", two = ""] = whole.split("\n");
    return `${two}\n${one}\n`;
  });
const append = (line: string) => (text: string): string => text.replace(/\n?$/, `\n${line}\n`);

const FAULTS: readonly Fault[] = [
  {
    name: "the rule of a cluster IP is removed",
    mode: "iptables",
    plant: drop(/^-A KUBE-SERVICES .*shop\/web:http cluster IP.*\n/m),
    finds: ["shop/web | missing | iptables nat KUBE-SERVICES | a rule is missing"],
    only: "shop/web",
  },
  {
    name: "endpoints are tried in another order",
    mode: "iptables",
    plant: swap(/^-A KUBE-SVC-\S+ .*shop\/web:http -> .*$/),
    finds: ["shop/web | order | iptables nat KUBE-SVC-", "another order"],
    only: "shop/web",
  },
  {
    name: "an endpoint has another address",
    mode: "iptables",
    plant: (text) => text.replace("10.244.0.12:8080\n", "10.244.9.9:8080\n"),
    finds: ["shop/web | changed | iptables nat KUBE-SEP-", "+", "10.244.9.9:8080"],
    only: "shop/web",
  },
  {
    name: "a Service's chain is flushed",
    mode: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-SVC-\S+ .*shop\/web.*\n/gm, ""),
    finds: ["shop/web | missing | iptables nat KUBE-SVC-", "the chain is empty"],
    only: "shop/web",
  },
  {
    name: "a chain is gone",
    mode: "iptables",
    plant: (text) => {
      const chain = /^-A (KUBE-SEP-\S+) .*10\.244\.0\.13:8080$/m.exec(text)?.[1] ?? "";
      return text.replaceAll(new RegExp(`^(?::${chain} .*|-A ${chain} .*)\n`, "gm"), "");
    },
    finds: ["shop/web | missing | iptables nat KUBE-SEP-", "the chain is gone"],
    only: "shop/web",
  },
  {
    name: "the chain of all Services is flushed",
    mode: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-SERVICES .*\n/gm, ""),
    finds: ["shop/api | missing | iptables nat KUBE-SERVICES", "the chain is empty"],
  },
  {
    name: "a jump is gone",
    mode: "iptables",
    plant: drop(/^-I PREROUTING .*KUBE-SERVICES\n/m),
    finds: ["base | missing | iptables nat PREROUTING | the jump is missing"],
    only: "base",
  },
  {
    name: "masquerading is flushed",
    mode: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-POSTROUTING .*\n/gm, ""),
    finds: ["base | missing | iptables nat KUBE-POSTROUTING | the chain is empty"],
    only: "base",
  },
  {
    name: "masquerading stands in another order",
    mode: "iptables",
    plant: swap(/^-A KUBE-POSTROUTING .*$/),
    finds: ["base | order | iptables nat KUBE-POSTROUTING"],
    only: "base",
  },
  {
    name: "node ports come before cluster IPs",
    mode: "iptables",
    plant: (text) => {
      const tail = /^-A KUBE-SERVICES .*-j KUBE-NODEPORTS\n/m.exec(text)?.[0] ?? "";
      return text.replace(tail, "").replace(/^-A KUBE-SERVICES .*shop\/web:http cluster IP/m, `${tail}$&`);
    },
    finds: ["shop/web | order | iptables nat KUBE-SERVICES", "behind others"],
  },
  {
    name: "a rule of another program in the chain of all Services",
    mode: "iptables",
    plant: (text) =>
      text.replace(/^-A KUBE-SERVICES .*cluster IP/m, "-A KUBE-SERVICES -d 10.96.0.77/32 -j RETURN\n$&"),
    finds: ["base | surplus | iptables nat KUBE-SERVICES | a rule that is not ours"],
    only: "base",
  },
  {
    name: "a rule of a Service is there twice",
    mode: "iptables",
    plant: (text) => text.replace(/^-A KUBE-NODEPORTS .*shop\/web.*\n/m, "$&$&"),
    finds: ["shop/web | surplus | iptables nat KUBE-NODEPORTS | a rule is too much"],
    only: "shop/web",
  },
  {
    name: "another program's redirection in front",
    mode: "iptables",
    plant: (text) =>
      text.replace(
        /^-I PREROUTING .*KUBE-SERVICES\n/m,
        "$&-I PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.99:80\n",
      ),
    finds: ["shop/web | foreign | table nat chain PREROUTING rule 1", "redirects"],
    only: "shop/web",
  },
  {
    name: "another program's jump in front that lets packets pass untranslated",
    mode: "iptables",
    plant: (text) =>
      text.replace(
        /^-I PREROUTING .*KUBE-SERVICES\n/m,
        "$&-A EARLY -d 10.96.0.2/32 -j ACCEPT\n-I PREROUTING -j EARLY\n",
      )
        .replace(":PREROUTING", ":EARLY - [0:0]\n:PREROUTING"),
    finds: ["shop/api | foreign | table nat chain EARLY rule 1", "lets pass untranslated"],
    only: "shop/api",
  },
  {
    name: "an element is missing",
    mode: "nftables",
    plant: drop(/^add element ip kproxy service-ips \{ 10\.96\.0\.1 \. tcp \. 80 .*\n/m),
    finds: [
      "shop/web | missing | nftables ip kproxy service-ips | an element is missing",
      "-10.96.0.1 . tcp . 80",
    ],
    only: "shop/web",
  },
  {
    name: "an element leads elsewhere",
    mode: "nftables",
    plant: (text) => text.replace("10.244.0.12 . 8080", "10.244.9.9 . 8080"),
    finds: [
      "shop/web | changed | nftables ip kproxy endpoints-tcp | an element leads elsewhere",
      "+",
      "10.244.9.9",
    ],
    only: "shop/web",
  },
  {
    name: "an element is too much",
    mode: "nftables",
    plant: append("add element ip kproxy endpoints-tcp { 10.96.0.1 . 80 . 9 : 10.244.9.9 . 8080 }"),
    finds: ["shop/web | surplus | nftables ip kproxy endpoints-tcp | an element is too much"],
    only: "shop/web",
  },
  {
    name: "an element of no Service",
    mode: "nftables",
    plant: append("add element ip kproxy endpoints-tcp { 10.96.7.7 . 80 . 0 : 10.244.9.9 . 8080 }"),
    finds: ["leftover | leftover | nftables ip kproxy endpoints-tcp | an element that no Service wants"],
    only: "leftover",
  },
  {
    name: "a chain is flushed",
    mode: "nftables",
    plant: append("flush chain ip kproxy services"),
    finds: ["base | missing | nftables ip kproxy services | the chain is empty"],
    only: "base",
  },
  {
    name: "a rule more in a chain",
    mode: "nftables",
    plant: append("add rule ip kproxy masquerading ip saddr 10.0.0.1 return"),
    finds: ["base | surplus | nftables ip kproxy masquerading | a rule is too much"],
    only: "base",
  },
  {
    name: "another program's chain in our table",
    mode: "nftables",
    plant: append(
      "add chain ip kproxy intruder { type filter hook input priority 0 ; policy accept ; }",
    ),
    finds: ["base | surplus | nftables ip kproxy intruder | another program hooked a chain into our table"],
    only: "base",
  },
  {
    name: "another program's table drops before",
    mode: "nftables",
    plant: append(
      "add table ip early\nadd chain ip early pre { type filter hook prerouting priority -300 ; policy accept ; }\n" +
        "add rule ip early pre ip daddr 10.96.0.2 drop",
    ),
    finds: ["shop/api | foreign | table ip early chain pre rule 1", "drops"],
    only: "shop/api",
  },
  {
    name: "a real server has another weight",
    mode: "ipvs",
    tool: "ipvsadm",
    plant: (text) => text.replace(/(^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*-w) 1/m, "$1 7"),
    finds: ["shop/web | changed | IPVS 10.96.0.1:80/TCP", "another weight", "+10.244.0.12:8080 weight 7"],
    only: "shop/web",
  },
  {
    name: "a real server is missing",
    mode: "ipvs",
    tool: "ipvsadm",
    plant: drop(/^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*\n/m),
    finds: ["shop/web | missing | IPVS", "a real server is missing"],
    only: "shop/web",
  },
  {
    name: "a real server of no Service",
    mode: "ipvs",
    tool: "ipvsadm",
    plant: (text) =>
      text.replace(
        /^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*\n/m,
        (line) => line + line.replace("10.244.0.12", "10.244.9.9"),
      ),
    finds: ["shop/web | surplus | IPVS", "a real server is too much", "10.244.9.9"],
    only: "shop/web",
  },
  {
    name: "a virtual server is missing",
    mode: "ipvs",
    tool: "ipvsadm",
    plant: (text) => text.replaceAll(/^-[Aa] -t 10\.96\.0\.2:80 .*\n/gm, ""),
    finds: ["shop/api | missing | IPVS", "the virtual server is missing"],
    only: "shop/api",
  },
  {
    name: "the scheduler is another one",
    mode: "ipvs",
    tool: "ipvsadm",
    plant: (text) => text.replace(/(^-A -t 10\.96\.0\.1:80 -s) rr/m, "$1 lc"),
    finds: ["shop/web | changed | IPVS", "treats packets otherwise", "scheduler lc"],
    only: "shop/web",
  },
  {
    name: "an entry of a set is missing",
    mode: "ipvs",
    tool: "ipset",
    plant: drop(/^add KUBE-CLUSTER-IP 10\.96\.0\.1,tcp:80.*\n/m),
    finds: ["shop/web | missing | ipset KUBE-CLUSTER-IP | an entry is missing", "-10.96.0.1,tcp:80"],
    only: "shop/web",
  },
  {
    name: "an entry of no Service",
    mode: "ipvs",
    tool: "ipset",
    plant: append("add KUBE-CLUSTER-IP 10.96.7.7,tcp:80"),
    finds: ["leftover | leftover | ipset KUBE-CLUSTER-IP | an entry that no Service wants"],
    only: "leftover",
  },
  {
    name: "a chain is flushed",
    mode: "ipvs",
    tool: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-MARK-MASQ .*\n/gm, ""),
    finds: ["base | missing | iptables nat KUBE-MARK-MASQ | the chain is empty"],
    only: "base",
  },
  {
    name: "a jump is gone",
    mode: "ipvs",
    tool: "iptables",
    plant: drop(/^-I PREROUTING .*KUBE-SERVICES\n/m),
    finds: ["base | missing | iptables nat PREROUTING | the jump is missing"],
    only: "base",
  },
  {
    name: "rules of nftables mode beside",
    mode: "iptables",
    tool: "nftables",
    plant: () => printed("nftables", inputOf("nftables")).nftables ?? "",
    finds: ["leftover | otherMode | table ip kproxy", "kproxy cleanup --only=nftables"],
  },
  {
    name: "the rule of a cluster IP is removed",
    mode: "userspace",
    tool: "iptables",
    plant: drop(/^-A KUBE-PORTALS-CONTAINER .*shop\/web.*\n/m),
    finds: ["shop/web | missing | iptables nat KUBE-PORTALS-CONTAINER | a rule is missing"],
    only: "shop/web",
  },
  {
    name: "a rule leads to another port",
    mode: "userspace",
    tool: "iptables",
    plant: (text) => text.replace(/^(-A KUBE-PORTALS-HOST .*shop\/web.*:)\d+$/m, "$165000"),
    finds: ["shop/web | changed | iptables nat KUBE-PORTALS-HOST", "+", ":65000"],
    only: "shop/web",
  },
  {
    name: "a chain is flushed",
    mode: "userspace",
    tool: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-NODEPORT-CONTAINER .*\n/gm, ""),
    finds: [
      "shop/web | missing | iptables nat KUBE-NODEPORT-CONTAINER | a rule is missing; the chain is empty",
    ],
  },
  {
    name: "a jump is missing",
    mode: "userspace",
    tool: "iptables",
    plant: drop(/^-A OUTPUT .*KUBE-PORTALS-HOST\n/m),
    finds: ["base | missing | iptables nat OUTPUT | the jump is missing"],
    only: "base",
  },
  {
    name: "a rule in front takes what is meant for a Service",
    mode: "userspace",
    tool: "iptables",
    plant: (text) =>
      text.replace("-A PREROUTING ", "-A PREROUTING -d 10.96.0.1/32 -j ACCEPT\n-A PREROUTING "),
    finds: ["shop/web | foreign | table nat chain PREROUTING rule 1", "lets pass untranslated"],
    only: "shop/web",
  },
];

for (const { name, mode, plant, tool = mode, finds, only } of FAULTS) {
  Deno.test(`${mode}, ${tool}: ${name}`, NONE, async () => {
    const sound = printed(mode, inputOf(mode));
    const planted = plant(sound[tool] ?? "");
    assert(planted !== (sound[tool] ?? ""), `Nothing was planted into:\n${sound[tool]}`);
    const check = await checked(mode, { ...sound, [tool]: planted });
    const lines = all(check);
    assert(
      lines.some((line) => finds.every((words) => line.includes(words))),
      `${finds.join(" … ")} is not in:\n${lines.join("\n")}`,
    );
    if (only !== undefined) assertEquals(lines.filter((line) => !line.startsWith(`${only} | `)), []);
    const report: CheckReport = {
      mode,
      desiredFrom: "files",
      liveFrom: "texts",
      families: [check],
      repair: null,
    };
    const text = checkLines(report).join("\n");
    const [first = ""] = finds;
    if (first.startsWith("shop/")) assertStringIncludes(text, `Service ${first.split(" | ")[0]}\n`);
    const { kind, clean } = JSON.parse(JSON.stringify(checkDocument(report)));
    assertEquals([kind, clean], ["Check", false]);
  });
}
