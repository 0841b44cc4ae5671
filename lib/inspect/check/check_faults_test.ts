/**
 * Output of the tools with one planted fault, in every mode: it is reported with its Service and place, and no other Service is blamed.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { inputOf } from "../../../tests/support/check_objects.ts";
import { all, checked, printed } from "../../../tests/support/check_texts.ts";
import type { RulesMode } from "../desired/desired.ts";
import { checkDocument, checkLines, type CheckReport } from "./report.ts";

const NONE = { permissions: "none" } as const;

type Planted = readonly [
  name: string,
  /** Plants the fault in the tool's output. */
  plant: (sound: string) => string,
  /** Words of the line that reports it: Service, kind, place, cause and texts. */
  finds: readonly [string, ...string[]],
  /** True: other Services are blamed, too. */
  hitsOthers?: boolean,
];
type Fault = readonly [mode: RulesMode, tool: string, ...Planted];

function of(mode: RulesMode, tool: string, faults: readonly Planted[]): readonly Fault[] {
  return faults.map((fault) => [mode, tool, ...fault]);
}

/** Removes the first line that matches; there must be one. */
const drop = (line: RegExp) => (text: string): string => text.replace(line, "");
/** Swaps two neighbouring lines that match. */
const swap = (line: RegExp) => (text: string): string =>
  text.replace(new RegExp(`(${line.source}\n)(${line.source}\n)`, "m"), (...parts: string[]) => {
    const whole = parts[0] ?? "";
    const [one = "", two = ""] = whole.split("\n");
    return `${two}\n${one}\n`;
  });
const append = (line: string) => (text: string): string => text.replace(/\n?$/, `\n${line}\n`);

const FAULTS: readonly Fault[] = [
  ...of("iptables", "iptables", [
    ["the rule of a cluster IP is removed", drop(/^-A KUBE-SERVICES .*shop\/web:http cluster IP.*\n/m), [
      "shop/web | missing | iptables nat KUBE-SERVICES | a rule is missing",
    ]],
    ["endpoints are tried in another order", swap(/^-A KUBE-SVC-\S+ .*shop\/web:http -> .*$/), [
      "shop/web | order | iptables nat KUBE-SVC-",
      "another order",
    ]],
    ["an endpoint has another address", (text) => text.replace("10.244.0.12:8080\n", "10.244.9.9:8080\n"), [
      "shop/web | changed | iptables nat KUBE-SEP-",
      "+",
      "10.244.9.9:8080",
    ]],
    ["a Service's chain is flushed", (text) => text.replaceAll(/^-A KUBE-SVC-\S+ .*shop\/web.*\n/gm, ""), [
      "shop/web | missing | iptables nat KUBE-SVC-",
      "the chain is empty",
    ]],
    ["a chain is gone", (text) => {
      const chain = /^-A (KUBE-SEP-\S+) .*10\.244\.0\.13:8080$/m.exec(text)?.[1] ?? "";
      return text.replaceAll(new RegExp(`^(?::${chain} .*|-A ${chain} .*)\n`, "gm"), "");
    }, ["shop/web | missing | iptables nat KUBE-SEP-", "the chain is gone"]],
    ["the chain of all Services is flushed", (text) => text.replaceAll(/^-A KUBE-SERVICES .*\n/gm, ""), [
      "shop/api | missing | iptables nat KUBE-SERVICES",
      "the chain is empty",
    ], true],
    ["a jump is gone", drop(/^-I PREROUTING .*KUBE-SERVICES\n/m), [
      "base | missing | iptables nat PREROUTING | the jump is missing",
    ]],
    ["masquerading is flushed", (text) => text.replaceAll(/^-A KUBE-POSTROUTING .*\n/gm, ""), [
      "base | missing | iptables nat KUBE-POSTROUTING | the chain is empty",
    ]],
    ["masquerading stands in another order", swap(/^-A KUBE-POSTROUTING .*$/), [
      "base | order | iptables nat KUBE-POSTROUTING",
    ]],
    [
      "node ports come before cluster IPs",
      (text) => {
        const tail = /^-A KUBE-SERVICES .*-j KUBE-NODEPORTS\n/m.exec(text)?.[0] ?? "";
        return text.replace(tail, "").replace(/^-A KUBE-SERVICES .*shop\/web:http cluster IP/m, `${tail}$&`);
      },
      ["shop/web | order | iptables nat KUBE-SERVICES", "behind others"],
      true,
    ],
    [
      "a rule of another program in the chain of all Services",
      (text) =>
        text.replace(/^-A KUBE-SERVICES .*cluster IP/m, "-A KUBE-SERVICES -d 10.96.0.77/32 -j RETURN\n$&"),
      ["base | surplus | iptables nat KUBE-SERVICES | a rule that is not ours"],
    ],
    [
      "a rule of a Service is there twice",
      (text) => text.replace(/^-A KUBE-NODEPORTS .*shop\/web.*\n/m, "$&$&"),
      ["shop/web | surplus | iptables nat KUBE-NODEPORTS | a rule is too much"],
    ],
    ["another program's redirection in front", (text) =>
      text.replace(
        /^-I PREROUTING .*KUBE-SERVICES\n/m,
        "$&-I PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.99:80\n",
      ), ["shop/web | foreign | table nat chain PREROUTING rule 1", "redirects"]],
    ["another program's jump in front that lets packets pass untranslated", (text) =>
      text.replace(
        /^-I PREROUTING .*KUBE-SERVICES\n/m,
        "$&-A EARLY -d 10.96.0.2/32 -j ACCEPT\n-I PREROUTING -j EARLY\n",
      )
        .replace(":PREROUTING", ":EARLY - [0:0]\n:PREROUTING"), [
      "shop/api | foreign | table nat chain EARLY rule 1",
      "lets pass untranslated",
    ]],
  ]),
  ...of("nftables", "nftables", [
    ["an element is missing", drop(/^add element ip kproxy service-ips \{ 10\.96\.0\.1 \. tcp \. 80 .*\n/m), [
      "shop/web | missing | nftables ip kproxy service-ips | an element is missing",
      "-10.96.0.1 . tcp . 80",
    ]],
    ["an element leads elsewhere", (text) => text.replace("10.244.0.12 . 8080", "10.244.9.9 . 8080"), [
      "shop/web | changed | nftables ip kproxy endpoints-tcp | an element leads elsewhere",
      "+",
      "10.244.9.9",
    ]],
    [
      "an element is too much",
      append("add element ip kproxy endpoints-tcp { 10.96.0.1 . 80 . 9 : 10.244.9.9 . 8080 }"),
      ["shop/web | surplus | nftables ip kproxy endpoints-tcp | an element is too much"],
    ],
    [
      "an element of no Service",
      append("add element ip kproxy endpoints-tcp { 10.96.7.7 . 80 . 0 : 10.244.9.9 . 8080 }"),
      ["leftover | leftover | nftables ip kproxy endpoints-tcp | an element that no Service wants"],
    ],
    ["a chain is flushed", append("flush chain ip kproxy services"), [
      "base | missing | nftables ip kproxy services | the chain is empty",
    ]],
    ["a rule more in a chain", append("add rule ip kproxy masquerading ip saddr 10.0.0.1 return"), [
      "base | surplus | nftables ip kproxy masquerading | a rule is too much",
    ]],
    [
      "another program's chain in our table",
      append(
        "add chain ip kproxy intruder { type filter hook input priority 0 ; policy accept ; }",
      ),
      ["base | surplus | nftables ip kproxy intruder | another program hooked a chain into our table"],
    ],
    [
      "another program's table drops before",
      append(
        "add table ip early\nadd chain ip early pre { type filter hook prerouting priority -300 ; policy accept ; }\n" +
          "add rule ip early pre ip daddr 10.96.0.2 drop",
      ),
      ["shop/api | foreign | table ip early chain pre rule 1", "drops"],
    ],
  ]),
  ...of("ipvs", "ipvsadm", [
    [
      "a real server has another weight",
      (text) => text.replace(/(^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*-w) 1/m, "$1 7"),
      ["shop/web | changed | IPVS 10.96.0.1:80/TCP", "another weight", "+10.244.0.12:8080 weight 7"],
    ],
    ["a real server is missing", drop(/^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*\n/m), [
      "shop/web | missing | IPVS",
      "a real server is missing",
    ]],
    ["a real server of no Service", (text) =>
      text.replace(
        /^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*\n/m,
        (line) => line + line.replace("10.244.0.12", "10.244.9.9"),
      ), ["shop/web | surplus | IPVS", "a real server is too much", "10.244.9.9"]],
    ["a virtual server is missing", (text) => text.replaceAll(/^-[Aa] -t 10\.96\.0\.2:80 .*\n/gm, ""), [
      "shop/api | missing | IPVS",
      "the virtual server is missing",
    ]],
    ["the scheduler is another one", (text) => text.replace(/(^-A -t 10\.96\.0\.1:80 -s) rr/m, "$1 lc"), [
      "shop/web | changed | IPVS",
      "treats packets otherwise",
      "scheduler lc",
    ]],
  ]),
  ...of("ipvs", "ipset", [
    ["an entry of a set is missing", drop(/^add KUBE-CLUSTER-IP 10\.96\.0\.1,tcp:80.*\n/m), [
      "shop/web | missing | ipset KUBE-CLUSTER-IP | an entry is missing",
      "-10.96.0.1,tcp:80",
    ]],
    ["an entry of no Service", append("add KUBE-CLUSTER-IP 10.96.7.7,tcp:80"), [
      "leftover | leftover | ipset KUBE-CLUSTER-IP | an entry that no Service wants",
    ]],
  ]),
  ...of("ipvs", "iptables", [
    ["a chain is flushed", (text) => text.replaceAll(/^-A KUBE-MARK-MASQ .*\n/gm, ""), [
      "base | missing | iptables nat KUBE-MARK-MASQ | the chain is empty",
    ]],
    ["a jump is gone", drop(/^-I PREROUTING .*KUBE-SERVICES\n/m), [
      "base | missing | iptables nat PREROUTING | the jump is missing",
    ]],
  ]),
  ...of("iptables", "nftables", [
    ["rules of nftables mode beside", () => printed("nftables", inputOf("nftables")).nftables ?? "", [
      "leftover | otherMode | table ip kproxy",
      "kproxy cleanup --only=nftables",
    ], true],
  ]),
  ...of("userspace", "iptables", [
    ["the rule of a cluster IP is removed", drop(/^-A KUBE-PORTALS-CONTAINER .*shop\/web.*\n/m), [
      "shop/web | missing | iptables nat KUBE-PORTALS-CONTAINER | a rule is missing",
    ]],
    [
      "a rule leads to another port",
      (text) => text.replace(/^(-A KUBE-PORTALS-HOST .*shop\/web.*:)\d+$/m, "$165000"),
      ["shop/web | changed | iptables nat KUBE-PORTALS-HOST", "+", ":65000"],
    ],
    ["a chain is flushed", (text) => text.replaceAll(/^-A KUBE-NODEPORT-CONTAINER .*\n/gm, ""), [
      "shop/web | missing | iptables nat KUBE-NODEPORT-CONTAINER | a rule is missing; the chain is empty",
    ], true],
    ["a jump is missing", drop(/^-A OUTPUT .*KUBE-PORTALS-HOST\n/m), [
      "base | missing | iptables nat OUTPUT | the jump is missing",
    ]],
    [
      "a rule in front takes what is meant for a Service",
      (text) => text.replace("-A PREROUTING ", "-A PREROUTING -d 10.96.0.1/32 -j ACCEPT\n-A PREROUTING "),
      ["shop/web | foreign | table nat chain PREROUTING rule 1", "lets pass untranslated"],
    ],
  ]),
];

for (const [mode, tool, name, plant, finds, hitsOthers = false] of FAULTS) {
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
    const [whose = ""] = finds[0].split(" | ");
    if (!hitsOthers) assertEquals(lines.filter((line) => !line.startsWith(`${whose} | `)), []);
    const report: CheckReport = {
      mode,
      desiredFrom: "files",
      liveFrom: "texts",
      families: [check],
      repair: null,
    };
    const text = checkLines(report).join("\n");
    if (whose.startsWith("shop/")) assertStringIncludes(text, `Service ${whose}\n`);
    const { kind, clean } = JSON.parse(JSON.stringify(checkDocument(report)));
    assertEquals([kind, clean], ["Check", false]);
  });
}
