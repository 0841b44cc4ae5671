/**
 * What `kproxy check` finds: texts of the tools with one fault planted, in every mode. Each is named with its Service and its place, and a
 * node without a fault is clean.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { planTexts } from "../../backend/ipvs/diff/render.ts";
import { API, EMPTY, inputOf, OLD, service, slice, WEB } from "../../../tests/support/check_objects.ts";
import { KUBE_PROXY_TABLE } from "../../../tests/support/kube_proxy_table.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { DataPlane, DesiredInput } from "../desired/desired.ts";
import { iptablesPlan, iptablesText } from "../desired/iptables.ts";
import { ipvsPlan } from "../desired/ipvs.ts";
import { nftablesPlan, nftablesText } from "../desired/nftables.ts";
import { liveOfTexts, type LiveText } from "../live/saved_texts.ts";
import { checkNode } from "./check.ts";
import { checkDocument, type CheckReport } from "./check_json.ts";
import { checkLines } from "./check_text.ts";
import type { Difference, FamilyCheck } from "./difference.ts";
import { leaveBeside } from "./repair.ts";

const NONE = { permissions: "none" } as const;

type Texts = Readonly<Record<string, string>>;

/** What the tools print of a node that is as it should be, by tool. */
function printed(plane: DataPlane, input: DesiredInput): Texts {
  switch (plane) {
    case "iptables":
      return {
        iptables: iptablesText(iptablesPlan(input, "IPv4")).replace(
          "*filter\n",
          "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
        ).replace("*nat\n", "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"),
      };
    case "nftables":
      return { nftables: nftablesText(nftablesPlan(input, "IPv4")) };
    case "ipvs": {
      const plan = ipvsPlan(input, "IPv4");
      const { iptables, ipset, ipvsadm } = planTexts(plan);
      const jumps = ["filter", "nat"].map((table) =>
        [
          `*${table}`,
          ...plan.base.jumps.filter((jump) => jump.table === table)
            .map(({ chain, args }) => `-I ${chain} ${args}`),
          "COMMIT",
          "",
        ].join("\n")
      );
      const whole = iptables.includes("-I ") ? iptables : `${iptables}${jumps.join("")}`;
      return { iptables: whole, ipset, ipvsadm };
    }
  }
}

async function checked(plane: DataPlane, texts: Texts, input = inputOf(plane)): Promise<FamilyCheck> {
  const list = Object.entries(texts).map(([name, text]): LiveText => ({ name, text, family: "IPv4" }));
  const live = liveOfTexts(list, { from: "texts", bound: null, problems: [] });
  const [check] = await checkNode({
    plane,
    desired: input,
    live,
    isKernel: false,
    nodeAddresses: ["192.0.2.10"],
    podInterface: "cni0",
    quarantined: null,
  });
  assert(check !== undefined);
  return check;
}

function all({ base, services, leftovers }: FamilyCheck): readonly string[] {
  const line = (of: string) => ({ kind, place, cause, wanted, found }: Difference): string =>
    [of, kind, place, cause, ...wanted.map((text) => `-${text}`), ...found.map((text) => `+${text}`)].join(
      " | ",
    );
  return [
    ...base.map(line("base")),
    ...[...services].flatMap(([name, differences]) => differences.map(line(name))),
    ...leftovers.map(line("leftover")),
  ];
}

for (const plane of ["iptables", "nftables", "ipvs"] as const) {
  Deno.test(`${plane}: a node as it should be is clean`, NONE, async () => {
    const input = inputOf(plane);
    const check = await checked(plane, printed(plane, input), input);
    assertEquals([all(check), check.problems, check.compared], [[], [], 3]);
  });

  Deno.test(
    `${plane}: an empty node misses everything, and rules of a Service that is gone are leftovers`,
    NONE,
    async () => {
      const input = inputOf(plane);
      const bare = await checked(plane, { iptables: "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n" }, input);
      assertEquals(
        [...bare.services.keys()].sort(),
        ["shop/api", "shop/empty", "shop/web"].slice(0, bare.services.size),
      );
      assert(bare.base.length > 0 && bare.services.size >= 2);
      const stale = printed(plane, inputOf(plane, [...WEB, ...API, ...EMPTY, ...OLD]));
      const found = await checked(plane, stale, input);
      assertEquals([...found.services], [], all(found).join("\n"));
      assert(found.leftovers.length > 0);
      assert(/old|10\.96\.0\.9|30089|10\.244\.0\.99/.test(all(found).join("\n")), all(found).join("\n"));
    },
  );
}

interface Fault {
  readonly name: string;
  readonly plane: DataPlane;
  /** Of the text of one tool. */
  readonly plant: (sound: string) => string;
  readonly tool?: string;
  /** Words of the line that names it: whose, kind, place, cause and texts. */
  readonly finds: readonly string[];
  /** Nobody else is blamed. */
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
    plane: "iptables",
    plant: drop(/^-A KUBE-SERVICES .*shop\/web:http cluster IP.*\n/m),
    finds: ["shop/web | missing | iptables nat KUBE-SERVICES | a rule is missing"],
    only: "shop/web",
  },
  {
    name: "endpoints are tried in another order",
    plane: "iptables",
    plant: swap(/^-A KUBE-SVC-\S+ .*shop\/web:http -> .*$/),
    finds: ["shop/web | order | iptables nat KUBE-SVC-", "another order"],
    only: "shop/web",
  },
  {
    name: "an endpoint has another address",
    plane: "iptables",
    plant: (text) => text.replace("10.244.0.12:8080\n", "10.244.9.9:8080\n"),
    finds: ["shop/web | changed | iptables nat KUBE-SEP-", "+", "10.244.9.9:8080"],
    only: "shop/web",
  },
  {
    name: "a Service's chain is flushed",
    plane: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-SVC-\S+ .*shop\/web.*\n/gm, ""),
    finds: ["shop/web | missing | iptables nat KUBE-SVC-", "the chain is empty"],
    only: "shop/web",
  },
  {
    name: "a chain is gone",
    plane: "iptables",
    plant: (text) => {
      const chain = /^-A (KUBE-SEP-\S+) .*10\.244\.0\.13:8080$/m.exec(text)?.[1] ?? "";
      return text.replaceAll(new RegExp(`^(?::${chain} .*|-A ${chain} .*)\n`, "gm"), "");
    },
    finds: ["shop/web | missing | iptables nat KUBE-SEP-", "the chain is gone"],
    only: "shop/web",
  },
  {
    name: "the chain of all Services is flushed",
    plane: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-SERVICES .*\n/gm, ""),
    finds: ["shop/api | missing | iptables nat KUBE-SERVICES", "the chain is empty"],
  },
  {
    name: "a jump is gone",
    plane: "iptables",
    plant: drop(/^-I PREROUTING .*KUBE-SERVICES\n/m),
    finds: ["base | missing | iptables nat PREROUTING | the jump is missing"],
    only: "base",
  },
  {
    name: "masquerading is flushed",
    plane: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-POSTROUTING .*\n/gm, ""),
    finds: ["base | missing | iptables nat KUBE-POSTROUTING | the chain is empty"],
    only: "base",
  },
  {
    name: "masquerading stands in another order",
    plane: "iptables",
    plant: swap(/^-A KUBE-POSTROUTING .*$/),
    finds: ["base | order | iptables nat KUBE-POSTROUTING"],
    only: "base",
  },
  {
    name: "node ports come before cluster IPs",
    plane: "iptables",
    plant: (text) => {
      const tail = /^-A KUBE-SERVICES .*-j KUBE-NODEPORTS\n/m.exec(text)?.[0] ?? "";
      return text.replace(tail, "").replace(/^-A KUBE-SERVICES .*shop\/web:http cluster IP/m, `${tail}$&`);
    },
    finds: ["shop/web | order | iptables nat KUBE-SERVICES", "behind others"],
  },
  {
    name: "a rule of somebody in the chain of all Services",
    plane: "iptables",
    plant: (text) =>
      text.replace(/^-A KUBE-SERVICES .*cluster IP/m, "-A KUBE-SERVICES -d 10.96.0.77/32 -j RETURN\n$&"),
    finds: ["base | surplus | iptables nat KUBE-SERVICES | a rule that is not ours"],
    only: "base",
  },
  {
    name: "a rule of a Service is there twice",
    plane: "iptables",
    plant: (text) => text.replace(/^-A KUBE-NODEPORTS .*shop\/web.*\n/m, "$&$&"),
    finds: ["shop/web | surplus | iptables nat KUBE-NODEPORTS | a rule is too much"],
    only: "shop/web",
  },
  {
    name: "somebody's redirection in front",
    plane: "iptables",
    plant: (text) =>
      text.replace(
        /^-I PREROUTING .*KUBE-SERVICES\n/m,
        "$&-I PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.99:80\n",
      ),
    finds: ["shop/web | foreign | table nat chain PREROUTING rule 1", "redirects"],
    only: "shop/web",
  },
  {
    name: "somebody's jump in front that lets packets pass untranslated",
    plane: "iptables",
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
    plane: "nftables",
    plant: drop(/^add element ip kproxy service-ips \{ 10\.96\.0\.1 \. tcp \. 80 .*\n/m),
    finds: [
      "shop/web | missing | nftables ip kproxy service-ips | an element is missing",
      "-10.96.0.1 . tcp . 80",
    ],
    only: "shop/web",
  },
  {
    name: "an element leads elsewhere",
    plane: "nftables",
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
    plane: "nftables",
    plant: append("add element ip kproxy endpoints-tcp { 10.96.0.1 . 80 . 9 : 10.244.9.9 . 8080 }"),
    finds: ["shop/web | surplus | nftables ip kproxy endpoints-tcp | an element is too much"],
    only: "shop/web",
  },
  {
    name: "an element of nobody",
    plane: "nftables",
    plant: append("add element ip kproxy endpoints-tcp { 10.96.7.7 . 80 . 0 : 10.244.9.9 . 8080 }"),
    finds: ["leftover | leftover | nftables ip kproxy endpoints-tcp | an element that no Service wants"],
    only: "leftover",
  },
  {
    name: "a chain is flushed",
    plane: "nftables",
    plant: append("flush chain ip kproxy services"),
    finds: ["base | missing | nftables ip kproxy services | the chain is empty"],
    only: "base",
  },
  {
    name: "a rule more in a chain",
    plane: "nftables",
    plant: append("add rule ip kproxy masquerading ip saddr 10.0.0.1 return"),
    finds: ["base | surplus | nftables ip kproxy masquerading | a rule is too much"],
    only: "base",
  },
  {
    name: "somebody's chain in our table",
    plane: "nftables",
    plant: append(
      "add chain ip kproxy intruder { type filter hook input priority 0 ; policy accept ; }",
    ),
    finds: ["base | surplus | nftables ip kproxy intruder | somebody hooked a chain into our table"],
    only: "base",
  },
  {
    name: "somebody's table drops before",
    plane: "nftables",
    plant: append(
      "add table ip early\nadd chain ip early pre { type filter hook prerouting priority -300 ; policy accept ; }\n" +
        "add rule ip early pre ip daddr 10.96.0.2 drop",
    ),
    finds: ["shop/api | foreign | table ip early chain pre rule 1", "drops"],
    only: "shop/api",
  },
  {
    name: "a real server has another weight",
    plane: "ipvs",
    tool: "ipvsadm",
    plant: (text) => text.replace(/(^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*-w) 1/m, "$1 7"),
    finds: ["shop/web | changed | IPVS 10.96.0.1:80/TCP", "another weight", "+10.244.0.12:8080 weight 7"],
    only: "shop/web",
  },
  {
    name: "a real server is missing",
    plane: "ipvs",
    tool: "ipvsadm",
    plant: drop(/^-a -t 10\.96\.0\.1:80 .*10\.244\.0\.12:8080.*\n/m),
    finds: ["shop/web | missing | IPVS", "a real server is missing"],
    only: "shop/web",
  },
  {
    name: "a real server of nobody",
    plane: "ipvs",
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
    plane: "ipvs",
    tool: "ipvsadm",
    plant: (text) => text.replaceAll(/^-[Aa] -t 10\.96\.0\.2:80 .*\n/gm, ""),
    finds: ["shop/api | missing | IPVS", "the virtual server is missing"],
    only: "shop/api",
  },
  {
    name: "the scheduler is another one",
    plane: "ipvs",
    tool: "ipvsadm",
    plant: (text) => text.replace(/(^-A -t 10\.96\.0\.1:80 -s) rr/m, "$1 lc"),
    finds: ["shop/web | changed | IPVS", "treats packets otherwise", "scheduler lc"],
    only: "shop/web",
  },
  {
    name: "an entry of a set is missing",
    plane: "ipvs",
    tool: "ipset",
    plant: drop(/^add KUBE-CLUSTER-IP 10\.96\.0\.1,tcp:80.*\n/m),
    finds: ["shop/web | missing | ipset KUBE-CLUSTER-IP | an entry is missing", "-10.96.0.1,tcp:80"],
    only: "shop/web",
  },
  {
    name: "an entry of nobody",
    plane: "ipvs",
    tool: "ipset",
    plant: append("add KUBE-CLUSTER-IP 10.96.7.7,tcp:80"),
    finds: ["leftover | leftover | ipset KUBE-CLUSTER-IP | an entry that no Service wants"],
    only: "leftover",
  },
  {
    name: "a chain is flushed",
    plane: "ipvs",
    tool: "iptables",
    plant: (text) => text.replaceAll(/^-A KUBE-MARK-MASQ .*\n/gm, ""),
    finds: ["base | missing | iptables nat KUBE-MARK-MASQ | the chain is empty"],
    only: "base",
  },
  {
    name: "a jump is gone",
    plane: "ipvs",
    tool: "iptables",
    plant: drop(/^-I PREROUTING .*KUBE-SERVICES\n/m),
    finds: ["base | missing | iptables nat PREROUTING | jumps are missing"],
    only: "base",
  },
  {
    name: "rules of nftables mode beside",
    plane: "iptables",
    tool: "nftables",
    plant: () => printed("nftables", inputOf("nftables")).nftables ?? "",
    finds: ["leftover | otherMode | table kproxy", "kproxy cleanup --only=nftables"],
  },
];

for (const { name, plane, plant, tool = plane, finds, only } of FAULTS) {
  Deno.test(`${plane}, ${tool}: ${name}`, NONE, async () => {
    const sound = printed(plane, inputOf(plane));
    const planted = plant(sound[tool] ?? "");
    assert(planted !== (sound[tool] ?? ""), `Nothing was planted into:\n${sound[tool]}`);
    const check = await checked(plane, { ...sound, [tool]: planted });
    const lines = all(check);
    assert(
      lines.some((line) => finds.every((words) => line.includes(words))),
      `${finds.join(" … ")} is not in:\n${lines.join("\n")}`,
    );
    if (only !== undefined) assertEquals(lines.filter((line) => !line.startsWith(`${only} | `)), []);
    const report: CheckReport = {
      mode: plane,
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

Deno.test("rules as iptables-save prints them are those that were written", NONE, async () => {
  const { iptables = "" } = printed("iptables", inputOf("iptables"));
  const saved = iptables
    .replaceAll(/ -s (10\.244\.0\.\d+) /g, " -s $1/32 ")
    .replaceAll(
      /--probability ([\d.]+)/g,
      (_, p: string) => `--probability ${(Math.round(Number(p) * 2 ** 31) / 2 ** 31).toFixed(11)}`,
    );
  assert(saved !== iptables);
  assertEquals(all(await checked("iptables", { iptables: saved })), []);
});

Deno.test("rules of kube-proxy's nftables mode are compared by what they do", NONE, async () => {
  const shop = (ips: readonly string[]): DesiredInput =>
    inputOf("nftables", [
      service("web", "10.96.10.1", 0, {
        type: "ClusterIP",
        ports: [{ name: "http", port: 80, protocol: "TCP" }],
      }),
      slice("web", ips),
    ]);
  const live = { nft: KUBE_PROXY_TABLE };
  const same = await checked("nftables", live, shop(["10.244.0.11", "10.244.0.12"]));
  assertEquals([all(same), same.notes.length], [[], 1]);
  assertStringIncludes(same.notes.join(), "kube-proxy's: they are compared by what they do");
  const other = await checked("nftables", live, shop(["10.244.0.11", "10.244.0.13"]));
  const lines = all(other);
  assertEquals(lines.length, 3, lines.join("\n"));
  assertStringIncludes(lines[0] ?? "", "shop/web | behaviour | packet 10.244.0.5@cni0 → 10.96.10.1:80/tcp");
  assertStringIncludes(lines[0] ?? "", "10.244.0.13:8080 (1/2)");
  const beside = await checked("nftables", {
    own: printed("nftables", shop(["10.244.0.11"])).nftables ?? "",
    ...live,
  }, shop(["10.244.0.11"]));
  assertEquals(beside.leftovers.map(({ kind, place }) => [kind, place]), [[
    "otherMode",
    "table ip kube-proxy",
  ]]);
  assertStringIncludes(beside.leftovers[0]?.cause ?? "", "kproxy cleanup --of=kube-proxy --only=nftables");
});

Deno.test(
  "rules with kube-proxy's counters are compared by what they do where their words differ",
  NONE,
  async () => {
    const { iptables = "" } = printed("iptables", inputOf("iptables"));
    const counted = iptables.replace(
      /^-A KUBE-NODEPORTS .*-j (KUBE-EXT-\S+)$/m,
      (rule, chain: string) =>
        `-A KUBE-NODEPORTS -d 127.0.0.0/8 -p tcp -m comment --comment "shop/api:http" -m tcp --dport 30081 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j ${chain}\n${rule}`,
    );
    const check = await checked("iptables", { iptables: counted });
    assertEquals(all(check), []);
    assertStringIncludes(check.notes.join(), "kube-proxy's");
    const broken = await checked("iptables", {
      iptables: counted.replaceAll(/^-A KUBE-SVC-\S+ .*shop\/web.*\n/gm, ""),
    });
    assertEquals([...broken.services.keys()], ["shop/web"]);
  },
);

Deno.test("what a tool could not read is not called missing", NONE, async () => {
  const problems = [{ place: "iptables-nft-save -c", message: "Permission denied: reading it needs root" }];
  const live = liveOfTexts([], { from: "the kernel", bound: [], problems });
  const checks = await checkNode({
    plane: "iptables",
    desired: inputOf("iptables"),
    live,
    isKernel: true,
    nodeAddresses: [],
    podInterface: "cni0",
    quarantined: null,
  });
  assertEquals(checks.map((check) => [check.family, all(check), check.notes.length]), [["IPv4", [], 1]]);
  const report = {
    mode: "iptables",
    desiredFrom: "files",
    liveFrom: "the kernel",
    families: checks,
    repair: null,
  };
  const text = checkLines(report).join("\n");
  assertStringIncludes(text, "Not read: iptables-nft-save -c: Permission denied");
  assert(!text.includes("nothing differs"), text);
  assertEquals(JSON.parse(JSON.stringify(checkDocument(report))).clean, false);
});

const FINE = { time: "2026-11-22T10:00:00Z", kind: "full", durationMs: 1 };
const LEAVES: readonly (readonly [
  name: string,
  status: { readonly used?: string; readonly failed?: boolean; readonly drift?: string },
  words: string,
  isAllowed: boolean,
])[] = [
  ["one that is well mends it itself", {}, "every 30 s and mends them itself", false],
  ["one that has mended before does so again", { drift: "repaired" }, "mends them itself", false],
  ["one whose syncs fail does not", { failed: true }, "its last sync of IPv4 failed: no memory", true],
  ["one that has tried in vain does not", { drift: "lasting" }, "nat KUBE-SERVICES stayed damaged", true],
  ["one of another mode is left alone", { used: "ipvs", failed: true }, "runs mode ipvs", false],
];

for (const [name, { used = "iptables", failed = false, drift }, words, isAllowed] of LEAVES) {
  Deno.test(`beside a running kproxy: ${name}`, NONE, () => {
    const family = {
      lastSync: FINE,
      lastFailure: failed ? { ...FINE, time: "2026-11-22T10:05:00Z", error: "no memory" } : null,
    };
    const damaged = ["nat KUBE-SERVICES"];
    const status = {
      mode: { used, configured: used, fallback: null },
      families: { IPv4: family },
      drift: { found: 1, repaired: 0, recent: drift === undefined ? [] : [{ outcome: drift, damaged }] },
    } as unknown as Parameters<typeof leaveBeside>[0];
    const leave = leaveBeside(status, "127.0.0.1:10249", defaultConfig(), "iptables");
    assertEquals(leave.isAllowed, isAllowed);
    assertStringIncludes(leave.isAllowed ? leave.note ?? "" : leave.reason, words);
  });
}
