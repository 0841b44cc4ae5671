/** What a change writes, and how Services that claim the same objects affect each other. */
import { assert, assertEquals } from "@std/assert";
import { exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import type { ApiObject, Service } from "../../../model/objects.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../../../tests/support/model_objects.ts";
import type { IpvsOptions, IpvsPlan } from "../plan/ruleset.ts";
import { IpvsStore, planTexts, renderPlan } from "./store.ts";

const pure = { permissions: "none" } as const;

type Changes = Partial<IpvsOptions>;

function plan(objects: readonly ApiObject[], changes: Changes = {}): IpvsPlan {
  return exampleIpvsPlan("IPv4", objects, changes);
}

/** Transaction from some objects to others, as text. */
function change(
  before: readonly ApiObject[],
  after: readonly ApiObject[],
  [beforeOptions, afterOptions]: readonly [Changes, Changes] = [{}, {}],
): string {
  return new IpvsStore(plan(before, beforeOptions)).change(plan(after, afterOptions)).text;
}

function pods(...ips: readonly string[]) {
  return testSlice({
    ports: [testSlicePort()],
    endpoints: ips.map((ip) =>
      testSliceEndpoint(ip, { nodeName: ip.startsWith("10.244.0.") ? "node-a" : "node-b" })
    ),
  });
}

const WEB = testService();
const OTHER = testService({ name: "other", clusterIP: "10.96.0.11", clusterIPs: ["10.96.0.11"] });

function balanced(name: string, fields: Partial<Service> = {}): Service {
  const clusterIP = name === "a" ? "10.96.0.21" : "10.96.0.22";
  return testService({
    name,
    type: "LoadBalancer",
    clusterIP,
    clusterIPs: [clusterIP],
    ports: [testPort({ port: name === "a" ? 80 : 443 })],
    loadBalancerIngress: [{ ip: "203.0.113.9", ipMode: "VIP" }],
    ...fields,
  });
}

Deno.test("an endpoint comes: one line of ipvsadm, and a hairpin entry if it is of this node", pure, () => {
  assertEquals(
    change([WEB, pods("10.244.1.1")], [WEB, pods("10.244.1.1", "10.244.1.2")]),
    "### ipvsadm -R\n-a -t 10.96.0.10:80 -r 10.244.1.2:8080 -m -w 1\n",
  );
  assertEquals(
    change([WEB, pods("10.244.0.1")], [WEB, pods("10.244.0.1", "10.244.0.2")]),
    "### ipset restore\nadd KUBE-LOOP-BACK 10.244.0.2,tcp:8080,10.244.0.2\n" +
      "### ipvsadm -R\n-a -t 10.96.0.10:80 -r 10.244.0.2:8080 -m -w 1\n",
  );
});

Deno.test("an entry that takes the place of another one in its set: no rule comes or goes", pure, () => {
  const open = (nodePort: number) => testService({ type: "NodePort", ports: [testPort({ nodePort })] });
  const text = change([open(30080), pods("10.244.1.1")], [open(30081), pods("10.244.1.1")]);
  assertEquals(text.match(/^(add|del) .*NODE-PORT.*/gm), [
    "add KUBE-NODE-PORT-TCP 30081",
    "del KUBE-NODE-PORT-TCP 30080",
  ]);
  assert(!text.includes("iptables-restore"), text);
});

Deno.test(
  "an entry comes to one set before it goes from another: its packets always belong to one",
  pure,
  () => {
    const external = (externalTrafficPolicy: "Cluster" | "Local") =>
      testService({ externalIPs: ["198.51.100.7"], externalTrafficPolicy });
    const moves = (from: "Cluster" | "Local", to: "Cluster" | "Local"): readonly string[] | null =>
      change([external(from), pods("10.244.0.1")], [external(to), pods("10.244.0.1")]).match(
        /^(add|del) .*/gm,
      );
    assertEquals(moves("Cluster", "Local"), [
      "add KUBE-EXTERNAL-IP-LOCAL 198.51.100.7,tcp:80",
      "del KUBE-EXTERNAL-IP 198.51.100.7,tcp:80",
    ]);
    assertEquals(moves("Local", "Cluster"), [
      "add KUBE-EXTERNAL-IP 198.51.100.7,tcp:80",
      "del KUBE-EXTERNAL-IP-LOCAL 198.51.100.7,tcp:80",
    ]);
  },
);

Deno.test("what is counted is what the texts of the plan hold", pure, () => {
  const objects = [
    balanced("a", {
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 30999,
      loadBalancerSourceRanges: ["198.51.100.0/24"],
    }),
    testService({
      name: "web",
      ports: [testPort({ nodePort: 30080 })],
      type: "NodePort",
      externalIPs: ["203.0.113.1"],
    }),
    pods("10.244.0.1", "10.244.1.1"),
  ];
  for (const all of [objects, []]) {
    const texts = planTexts(plan(all));
    const count = (text: string, line: RegExp): number => text.match(line)?.length ?? 0;
    const [nat = "", filter = ""] = texts.iptables.split("*filter");
    assertEquals(new IpvsStore(plan(all)).counts, {
      filter: count(filter, /^-A /gm),
      nat: count(nat, /^-A /gm),
      virtualServers: count(texts.ipvsadm, /^-A /gm),
      realServers: count(texts.ipvsadm, /^-a /gm),
      entries: count(texts.ipset, /^add /gm),
      addresses: count(texts.ip, /^address add /gm),
    });
  }
});

Deno.test("the text of a plan has the jumps of each table in it", pure, () => {
  const text = renderPlan(plan([WEB]));
  const targets = (table: string): string[] =>
    [...text.split(`*${table}\n`)[1]!.split("COMMIT")[0]!.matchAll(/^-I (\S+) .*-j (\S+)$/gm)]
      .map(([, chain, target]) => `${chain} ${target}`).sort();
  assertEquals(targets("nat"), [
    "OUTPUT KUBE-SERVICES",
    "POSTROUTING KUBE-POSTROUTING",
    "PREROUTING KUBE-SERVICES",
  ]);
  assertEquals(targets("filter"), [
    "FORWARD KUBE-FORWARD",
    "FORWARD KUBE-PROXY-FIREWALL",
    "INPUT KUBE-IPVS-FILTER",
    "INPUT KUBE-NODE-PORT",
    "INPUT KUBE-PROXY-FIREWALL",
    "OUTPUT KUBE-IPVS-OUT-FILTER",
  ]);
});

Deno.test("an endpoint goes: gracefully, unless its Service says otherwise", pure, () => {
  for (
    const [annotations, graceful] of [[{}, true], [
      { "kproxy.io/ipvs-graceful-termination": "false" },
      false,
    ]] as const
  ) {
    const service = testService({ annotations });
    const { steps } = new IpvsStore(plan([service, pods("10.244.1.1", "10.244.1.2")]))
      .change(plan([service, pods("10.244.1.1")]));
    const changes = steps.flatMap(({ changes }) => changes);
    assertEquals(changes.map((one) => [one.kind, "graceful" in one && one.graceful]), [[
      "removeReal",
      graceful,
    ]]);
  }
});

Deno.test("a scheduler or timeout is changed in place: real servers and connections stay", pure, () => {
  assertEquals(
    change([WEB, pods("10.244.1.1")], [
      testService({ sessionAffinity: "ClientIP", affinityTimeoutSeconds: 60 }),
      pods("10.244.1.1"),
    ]),
    "### ipvsadm -R\n-E -t 10.96.0.10:80 -s rr -p 60\n",
  );
  const lc = testService({ annotations: { "kproxy.io/ipvs-scheduler": "lc" } });
  assertEquals(change([WEB], [lc]), "### ipvsadm -R\n-E -t 10.96.0.10:80 -s lc\n");
});

Deno.test("a Service comes: entries, then servers, then its address; no rule changes", pure, () => {
  assertEquals(
    change([OTHER], [OTHER, WEB]),
    "### ipset restore\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\nadd KUBE-IPVS-IPS 10.96.0.10\n" +
      "### ipvsadm -R\n-A -t 10.96.0.10:80 -s rr\n" +
      "### ip -batch -\naddress add 10.96.0.10/32 dev kube-ipvs0\n",
  );
});

Deno.test(
  "a port comes to an address that answers already: source ranges and marks before its server",
  pure,
  () => {
    const ranged = balanced("b", { loadBalancerSourceRanges: ["198.18.0.0/15"] });
    const lines = change([balanced("a")], [balanced("a"), ranged]).split("\n");
    const at = (part: string): number => lines.findIndex((line) => line.includes(part));
    const order = [
      at("add KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.9,tcp:443,198.18.0.0/15"),
      at("KUBE-SOURCE-RANGES-FIREWALL"),
      at("-A -t 203.0.113.9:443 "),
    ];
    assert(order[0]! >= 0, lines.join("\n"));
    assertEquals(order, order.toSorted((left, right) => left - right));
    assertEquals(at("address add 203.0.113.9"), -1);
  },
);

Deno.test("a Service goes: its address first, its entries last", pure, () => {
  assertEquals(
    change([OTHER, WEB], [OTHER]),
    "### ip -batch -\naddress del 10.96.0.10/32 dev kube-ipvs0\n" +
      "### ipvsadm -R\n-D -t 10.96.0.10:80\n" +
      "### ipset restore\ndel KUBE-CLUSTER-IP 10.96.0.10,tcp:80\ndel KUBE-IPVS-IPS 10.96.0.10\n",
  );
});

Deno.test("a port goes while its address stays: refused before its server is gone", pure, () => {
  const two = testService({ ports: [testPort(), testPort({ name: "b", port: 81 })] });
  assertEquals(
    change([two], [WEB]),
    "### ipset restore\ndel KUBE-CLUSTER-IP 10.96.0.10,tcp:81\n### ipvsadm -R\n-D -t 10.96.0.10:81\n",
  );
});

Deno.test("a node port goes: what tells that its server is ours goes after it", pure, () => {
  const exposed = testService({ type: "NodePort", ports: [testPort({ nodePort: 30080 })] });
  const keeper = testService({
    name: "keeper",
    type: "NodePort",
    clusterIP: "10.96.0.12",
    clusterIPs: ["10.96.0.12"],
    ports: [testPort({ nodePort: 30081 })],
  });
  assertEquals(
    change([keeper, exposed], [keeper, WEB]),
    "### ipvsadm -R\n-D -t 192.0.2.10:30080\n### ipset restore\ndel KUBE-NODE-PORT-TCP 30080\n",
  );
  // Even if something else comes with it, whose server comes after its entries.
  assertEquals(
    change([keeper, exposed], [keeper, WEB, OTHER]).match(/^### \S+|.*30080.*|-A .*/gm),
    [
      "### ipvsadm",
      "-D -t 192.0.2.10:30080",
      "### ipset",
      "del KUBE-NODE-PORT-TCP 30080",
      "### ipvsadm",
      "-A -t 10.96.0.11:80 -s rr",
      "### ip",
    ],
  );
  // An endpoint alone does not need a second step.
  assertEquals(
    change([keeper, exposed, pods("10.244.0.1")], [keeper, WEB, pods("10.244.0.1", "10.244.0.2")]).match(
      /^### \S+/gm,
    ),
    ["### ipvsadm", "### ipset"],
  );
});

Deno.test(
  "the first entry of a set brings the rules that need it, the last one takes them along",
  pure,
  () => {
    const external = testService({ externalIPs: ["198.51.100.7"] });
    const text = change([WEB], [external]);
    assert(text.includes("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN\n"), text);
    assertEquals(text.match(/match-set KUBE-EXTERNAL-IP /g)?.length, 3);
    assertEquals(text.match(/^:/gm)?.length, 1);
    const back = change([external], [WEB]);
    assertEquals(back.includes("KUBE-EXTERNAL-IP dst"), false);
    assert(back.includes(":KUBE-SERVICES - [0:0]"));
  },
);

Deno.test("rule 14 comes and goes by itself", pure, () => {
  const open = balanced("a");
  const closed = balanced("a", { loadBalancerSourceRanges: ["198.18.0.0/15"] });
  const other = balanced("b", { loadBalancerSourceRanges: ["198.18.0.0/15"] });
  const rule =
    "KUBE-IPVS-OUT-FILTER -s 203.0.113.9 -m ipvs --vaddr 203.0.113.9 --vproto tcp --vport 80 -j DROP";
  assertEquals(change([other, open], [other, closed]).match(/.*OUT-FILTER.*/g), [`-A ${rule}`]);
  assertEquals(change([other, closed], [other, open]).match(/.*OUT-FILTER.*/g), [`-D ${rule}`]);
});

Deno.test("a load-balancer IP of two Services stays while one of them has it", pure, () => {
  const [a, b] = [balanced("a"), balanced("b")];
  const goes = change([a, b], [a]);
  assertEquals(goes.includes("address del 203.0.113.9"), false, goes);
  assertEquals(goes.includes("KUBE-IPVS-IPS 203.0.113.9"), false, goes);
  assert(goes.includes("-D -t 203.0.113.9:443\n"), goes);
  assert(goes.includes("address del 10.96.0.22/32"), goes);
  assert(change([a], []).includes("address del 203.0.113.9/32"));
  assertEquals(change([a], [a, b]).includes("address add 203.0.113.9"), false);
});

Deno.test(
  "of two Services on one address and port the first in rank is served, whichever came first",
  pure,
  () => {
    const a = balanced("a", { ports: [testPort({ port: 80 })] });
    const b = balanced("b", {
      ports: [testPort({ port: 80 })],
      externalTrafficPolicy: "Local",
      sessionAffinity: "ClientIP",
    });
    const shared = (text: string): string[] => text.match(/.*203\.0\.113\.9.*/g) ?? [];
    const [committedA, committedB] = [new IpvsStore(plan([a])), new IpvsStore(plan([b]))];
    assertEquals(shared(committedA.change(plan([a, b])).text), []);
    assertEquals(shared(committedB.change(plan([a, b])).text), [
      "del KUBE-LOAD-BALANCER-LOCAL 203.0.113.9,tcp:80",
      "-E -t 203.0.113.9:80 -s rr",
    ]);
    // The winner goes, the other one takes over in place.
    assertEquals(shared(change([a, b], [b])), [
      "add KUBE-LOAD-BALANCER-LOCAL 203.0.113.9,tcp:80",
      "-E -t 203.0.113.9:80 -s rr -p 10800",
    ]);
  },
);

Deno.test(
  "on an address of the node an external IP goes before a node port, which takes its place",
  pure,
  () => {
    const external = testService({ externalIPs: ["192.0.2.10"], ports: [testPort({ port: 30080 })] });
    const exposed = testService({
      name: "a",
      type: "NodePort",
      clusterIP: "10.96.0.12",
      clusterIPs: ["10.96.0.12"],
      ports: [testPort({ nodePort: 30080 })],
      sessionAffinity: "ClientIP",
    });
    const servers = change([], [external, exposed]).match(/^-A -t 192\.0\.2\.10:30080.*/gm);
    assertEquals(servers, ["-A -t 192.0.2.10:30080 -s rr"]);
    assertEquals(change([external, exposed], [exposed]).match(/.*192\.0\.2\.10:30080.*/g), [
      "-E -t 192.0.2.10:30080 -s rr -p 10800",
    ]);
  },
);

Deno.test("a hairpin entry of a pod behind two Services stays while one of them has it", pure, () => {
  const slices = [
    pods("10.244.0.1"),
    testSlice({ ...pods("10.244.0.1"), name: "other-1", serviceName: "other" }),
  ];
  assertEquals(change([WEB, OTHER, ...slices], [WEB, slices[0]!]).includes("LOOP-BACK"), false);
});

Deno.test("changed options rewrite the chains that say them", pure, () => {
  const text = change([WEB], [WEB], [{}, { masqueradeAll: true }]);
  assertEquals(text.match(/^(:|\*|###).*/gm), [
    "### iptables-restore --noflush",
    "*nat",
    ":KUBE-SERVICES - [0:0]",
  ]);
});

/** Services with so many external IPs together, the first of which has this number; one alone may not have all of them. */
function many(count: number, first = 0): ApiObject[] {
  const ip = (at: number): string => `198.${18 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}`;
  const ips = Array.from({ length: count }, (_, at) => ip(first + at));
  return Array.from({ length: Math.ceil(count / 9000) }, (_, at) =>
    testService({
      name: `web-${at}`,
      externalIPs: ips.slice(at * 9000, (at + 1) * 9000),
      ...at === 0 ? {} : { clusterIPs: [`10.96.200.${at}`] },
    }));
}

Deno.test("a set that gets too small is replaced by a larger one under the rules that use it", pure, () => {
  const committed = new IpvsStore(plan(many(65_536)));
  const larger = plan(many(65_537));
  const { steps } = committed.change(larger);
  const lines = steps.flatMap((step) => step.program === "ipset" ? step.lines : []);
  const about = (start: string): string[] => lines.filter((line) => line.startsWith(start));
  assertEquals(about("create"), [
    "create KPROXY-GROWING hash:ip,port family inet hashsize 1024 maxelem 131072",
  ]);
  assertEquals(about("swap"), ["swap KPROXY-GROWING KUBE-EXTERNAL-IP"]);
  assertEquals(about("destroy"), ["destroy KPROXY-GROWING"]);
  assertEquals(about("add KPROXY-GROWING").length, 65_537);
  // With the cluster IP, the set of addresses was too small before.
  assertEquals(about("add KUBE").map((line) => line.split(" ")[1]), ["KUBE-IPVS-IPS"]);
  // It does not shrink again.
  const smaller = committed.change(plan(many(1))).text;
  assertEquals(smaller.match(/^(create|swap|destroy).*/gm), null);
});
