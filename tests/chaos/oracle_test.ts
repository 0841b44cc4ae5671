/** Rules that keep what objects promise, and the same rules with one thing wrong, as a wrong planner would write them every time. */
import { assertEquals, assertNotEquals } from "@std/assert";
import { liveOfTexts, type LiveText } from "../../lib/inspect/live/live.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { DEFAULT_OPTIONS } from "../flows/flow_case.ts";
import { IPTABLES_BACKEND } from "../flows/iptables_backend.ts";
import { IPVS_BACKEND } from "../flows/ipvs_backend.ts";
import { NFTABLES_BACKEND } from "../flows/nftables_backend.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import fc from "../support/fast_check.ts";
import { exampleState } from "../support/golden.ts";
import type { FakeMachine } from "./fake_chaos.ts";
import { fakeIptablesMachine, fakeIpvsMachine, fakeNftablesMachine } from "./fake_machines.ts";
import { ChaosCluster, IDLE as CLUSTER_IDLE } from "./cluster.ts";
import { brokenPromises, type OracleNode, throughRules } from "./oracle.ts";
import { Random } from "./random.ts";

const OBJECTS = [
  service("shop/web", { clusterIP: "10.96.1.1", ports: [":80"] }),
  slice("shop/web.1", [":8080"], ["10.244.1.1@node-b", "10.244.1.2@node-a"]),
  service("shop/lb", {
    type: "LoadBalancer",
    clusterIP: "10.96.1.2",
    ports: [":80:30081"],
    ingress: [{ ip: "203.0.113.9", ipMode: "VIP" }],
    loadBalancerSourceRanges: ["192.0.2.0/24"],
  }),
  slice("shop/lb.1", [":8080"], ["10.244.1.3@node-b"]),
  service("shop/none", { clusterIP: "10.96.1.3", ports: [":80"] }),
];
const IDLE = [["10.96.1.4", 80]] as const;

type Wrong = readonly [what: string, find: RegExp, replace: string];

const MODES:
  readonly (readonly [make: () => FakeMachine | Promise<FakeMachine>, wrongs: readonly Wrong[]])[] = [
    [() => fakeIptablesMachine("nft"), [
      ["a share", /--probability 0\.5\d*/, "--probability 0.9"],
      ["an endpoint", /--to-destination 10\.244\.1\.1:8080/, "--to-destination 10.244.1.9:8080"],
      ["no masquerading", /^-A KUBE-SVC-\S+ .*! -s \S+ -j KUBE-MARK-MASQ\n/m, ""],
      ["nobody is refused", /^-A KUBE-SERVICES .*shop\/none has no endpoints.*\n/m, ""],
      ["no source ranges", /^-A KUBE-PROXY-FIREWALL .*\n/m, ""],
      ["a cluster IP too many", /-d 10\.96\.1\.1(?:\/32)? (.*-j KUBE-SVC)/, "-d 10.96.1.4 $1"],
    ]],
    [() => fakeNftablesMachine(), [
      ["a share", /numgen random mod 2/, "numgen random mod 3"],
      ["an endpoint", /10\.244\.1\.1 \. 8080/, "10.244.1.9 . 8080"],
      ["no masquerading", /^\t\t.*@cluster-ips .*mark set .*\n/m, ""],
      ["nobody is refused", /10\.96\.1\.3/g, "10.96.1.9"],
      [
        "no source ranges",
        /203\.0\.113\.9 \. tcp \. 80 : goto firewall/,
        "203.0.113.8 . tcp . 80 : goto firewall",
      ],
    ]],
    [() => fakeIpvsMachine(), [
      ["an endpoint", /^-a .* -r 10\.244\.1\.1:8080 .*\n/m, ""],
      ["no virtual server", /^-A -t 10\.96\.1\.1:80 .*\n(?:-a .*\n)*/m, ""],
      ["no source ranges", /^add KUBE-LOAD-BALANCER-FW .*\n/m, ""],
    ]],
  ];

for (const [make, wrongs] of MODES) {
  const machine = await make();
  Deno.test(
    `${machine.mode}: rules that are wrong at every start break a promise`,
    { permissions: "none" },
    async () => {
      const objects = OBJECTS.flatMap((json) => decodeObject(json, "an object").objects);
      await machine.proxier(machine.exec).sync({ state: exampleState("IPv4", objects), changed: "all" });
      const texts = await machine.texts();
      const broken = (all: readonly LiveText[]): string[] => {
        const live = liveOfTexts(all, { from: "a fake", bound: null, problems: [] });
        const node = { mode: machine.mode, name: "node-a", zone: "", nodePortIps: ["192.0.2.10"] };
        return brokenPromises(throughRules(live), OBJECTS, node, IDLE);
      };
      assertEquals(broken(texts), []);
      for (const [what, find, replace] of wrongs) {
        const changed = texts.map((one) => ({ ...one, text: one.text.replace(find, replace) }));
        assertNotEquals(changed, texts, `nothing to get wrong: ${what}`);
        assertNotEquals(broken(changed), [], what);
      }
    },
  );
}

/** Of one chaos run. */
const CHANGES = 40;
const ZONE = "topology.kubernetes.io/zone";

for (const backend of [IPTABLES_BACKEND, NFTABLES_BACKEND, IPVS_BACKEND]) {
  Deno.test(`${backend.name}: what the clusters of chaos runs promise, a first sync keeps`, {
    permissions: "none",
  }, () => {
    fc.assert(
      fc.property(fc.nat(), (seed) => {
        const [cluster, random] = [new ChaosCluster(), new Random(seed)];
        for (let change = 0; change < CHANGES; change++) cluster.change(random);
        const objects = cluster.objects as readonly unknown[] as readonly ApiJson[];
        const zone = cluster.objects.find(({ kind }) => kind === "Node")?.metadata.labels?.[ZONE] ?? "";
        const { IPv4, IPv6 } = DEFAULT_OPTIONS.nodeIps;
        const mode = backend.name as OracleNode["mode"];
        const table = backend.load(objects, { ...DEFAULT_OPTIONS, zone });
        const node = { mode, name: DEFAULT_OPTIONS.nodeName, zone, nodePortIps: [IPv4, IPv6] };
        assertEquals(brokenPromises((packet) => table.send(packet, 0), objects, node, CLUSTER_IDLE), []);
      }),
      { numRuns: 60 },
    );
  });
}
