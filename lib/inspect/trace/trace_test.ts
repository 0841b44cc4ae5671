/**
 * What `kproxy trace` finds wrong on a node: rules of the desired iptables mode as the tools print them, with a fault planted.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { KUBE_PROXY_TABLE } from "../../../tests/support/kube_proxy_table.ts";
import { defaultConfig } from "../../config/defaults.ts";
import { parsePacket } from "../../sim/flow.ts";
import { type NodeSurroundings, plainSurroundings } from "../../sim/node/surroundings.ts";
import { iptablesPlan, iptablesText } from "../desired/iptables.ts";
import {
  type DataPlane,
  type DesiredInput,
  desiredRules,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "../desired/desired.ts";
import { nftablesPlan, nftablesText } from "../desired/nftables.ts";
import { liveOfTexts, type LiveText } from "../live/saved_texts.ts";
import { readDestination } from "./packet.ts";
import { type Trace, tracePacket } from "./trace.ts";
import { traceDocument } from "./trace_json.ts";
import { traceLines } from "./trace_text.ts";
import { decodeObject } from "../../source/decode/decode.ts";

const NONE = { permissions: "none" } as const;
const PACKET = "10.244.0.5@cni0 → 10.96.10.1:80/tcp";

function objectsOf(
  conditions: readonly Record<string, unknown>[],
): ReturnType<typeof decodeObject>["objects"] {
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: conditions.map((one, index) => ({
      addresses: [`10.244.0.${11 + index}`],
      nodeName: "node-a",
      ...one,
    })),
  };
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name: "web" },
    spec: {
      type: "ClusterIP",
      clusterIP: "10.96.10.1",
      ports: [{ name: "http", port: 80, protocol: "TCP" }],
    },
  };
  const node = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "z1" } },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }] },
  };
  return [service, slice, node].flatMap((json) => decodeObject(json, "test").objects);
}

function inputOf(
  conditions: readonly Record<string, unknown>[] = [{}, {}],
  nodeName = "node-a",
): DesiredInput {
  const state = stateOfObjects(objectsOf(conditions), nodeName, () => {});
  const config = { ...defaultConfig(), clusterCIDR: "10.244.0.0/16" };
  return { ...state, config, machine: UNKNOWN_MACHINE, warn: () => {} };
}

/** As `iptables-save` prints it. */
function printed(input: DesiredInput): string {
  const text = iptablesText(iptablesPlan(input, "IPv4"));
  return text.replace(
    "*filter\n",
    "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
  );
}

interface Node {
  readonly texts: readonly LiveText[];
  readonly around?: Partial<NodeSurroundings>;
  readonly packet?: string;
  readonly input?: DesiredInput;
  readonly plane?: DataPlane;
  /** As the command was given it. */
  readonly nodeName?: string;
}

async function traced(
  { texts, around = {}, packet = PACKET, nodeName, input = inputOf(undefined, nodeName), plane = "iptables" }:
    Node,
): Promise<Trace> {
  const live = liveOfTexts(texts, { from: "the kernel", bound: [], problems: [] }).get("IPv4");
  return tracePacket({
    family: "IPv4",
    packet: parsePacket(packet),
    surroundings: {
      ...plainSurroundings({ nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 }),
      ...around,
    },
    desired: {
      from: "files",
      mode: plane,
      state: input,
      rules: await desiredRules(plane, input, "IPv4"),
      quarantined: null,
    },
    live: live ?? null,
    findings: [],
    notes: [],
  });
}

const SOUND = printed(inputOf());
const save = (text: string): LiveText => ({ name: "iptables-save", text });

Deno.test("an endpoint of this node that is looked for where the world is, is told", NONE, async () => {
  const routed = async (pods: string): Promise<readonly string[]> => {
    const outInterface = (address: string): string => address.startsWith("10.244.") ? pods : "eth0";
    return (await traced({ texts: [save(SOUND)], around: { outInterface } })).notes;
  };
  assertEquals(await routed("cni0"), []);
  assertEquals(await routed("eth0"), [
    "The route to 10.244.0.11, 10.244.0.12, which should be on this node, leads out of eth0, as that to the world does",
  ]);
});

Deno.test("a sound node has nothing wrong", NONE, async () => {
  const trace = await traced({ texts: [save(SOUND)] });
  assertEquals([trace.difference, trace.findings, trace.problems], [null, [], []]);
  const text = traceLines(trace, (rows) => rows.map((row) => row.join(" "))).join("\n");
  assertStringIncludes(text, "10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade no");
  assertStringIncludes(text, "say the same");
});

interface Fault {
  readonly name: string;
  readonly node: (sound: string) => Node;
  /** Words of what is found. */
  readonly finds: string;
  /** Words of the step where desired and live part; absent: it does not matter. */
  readonly step?: string;
}

const FAULTS: readonly Fault[] = [
  {
    name: "a policy of FORWARD that drops, behind our marks",
    node: (sound) => ({ texts: [save(sound.replace(":FORWARD ACCEPT", ":FORWARD DROP"))] }),
    finds: "dropped by what is no service proxy's: table filter chain FORWARD: policy DROP",
    step: "policy DROP",
  },
  {
    name: "somebody's rule drops in front",
    node: (sound) => ({
      texts: [save(sound.replace("-I FORWARD", "-A FORWARD -s 10.244.0.0/16 -j DROP\n-I FORWARD"))],
    }),
    finds: "chain FORWARD rule 5: -s 10.244.0.0/16 -j DROP",
    step: "-s 10.244.0.0/16 -j DROP",
  },
  {
    name: "a table of somebody else drops, before any translation",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          'table inet firewall {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\tip daddr 10.96.0.0/16 counter packets 3 bytes 180 drop comment "no"\n\t}\n}\n',
      }],
    }),
    finds: "table inet firewall chain pre rule 1",
    step: "ip daddr 10.96.0.0/16",
  },
  {
    name: "a table of somebody else drops a range of ports",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          "table inet fw {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\ttcp dport 60-90 drop\n\t}\n}\n",
      }],
    }),
    finds: "table inet fw chain pre rule 1: tcp dport 60-90 drop",
    step: "tcp dport 60-90 drop",
  },
  {
    name: "the jump to the rules is gone",
    node: (sound) => ({
      texts: [save(sound.replaceAll(/^-I (PREROUTING|OUTPUT).*-j KUBE-SERVICES$/gm, "# gone"))],
    }),
    finds: "No packet is led to the rules of iptables mode",
  },
  {
    name: "the rule of the Service is gone",
    node: (sound) => ({ texts: [save(sound.replace(/^-A KUBE-SERVICES .*cluster IP.*\n/m, ""))] }),
    finds: "do something else",
    step: "shop/web:http cluster IP",
  },
  {
    name: "an endpoint has another address",
    node: (sound) => ({
      texts: [save(sound.replace("--to-destination 10.244.0.12:8080", "--to-destination 10.244.9.9:8080"))],
    }),
    finds: "do something else",
    step: "10.244.9.9",
  },
  {
    name: "the Service's chain is empty",
    node: (sound) => ({ texts: [save(sound.replaceAll(/^-A KUBE-SVC-.*\n/gm, ""))] }),
    finds: "do something else",
    step: "KUBE-SVC-",
  },
  {
    name: "the node does not forward",
    node: (sound) => ({
      texts: [save(sound)],
      around: { notForwarding: { IPv4: "net.ipv4.ip_forward is 0", IPv6: null } },
    }),
    finds: "IPv4 packets are not forwarded: net.ipv4.ip_forward is 0",
  },
  {
    name: "somebody switches connection tracking off",
    node: (sound) => ({
      texts: [
        save(
          `${sound}*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.0/16 -j CT --notrack\nCOMMIT\n`,
        ),
      ],
    }),
    finds: "rule translates it: table raw chain PREROUTING rule 1: -d 10.96.0.0/16 -j CT --notrack",
  },
  {
    name: "a table of nftables switches connection tracking off",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          "table ip early {\n\tchain pre {\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\tip daddr 10.96.0.0/16 notrack\n\t}\n}\n",
      }],
    }),
    finds: "rule translates it: table ip early chain pre rule 1: ip daddr 10.96.0.0/16 notrack",
  },
  {
    name: "somebody drops what leaves through the endpoints' interface",
    node: (sound) => ({
      texts: [save(sound.replace("-I FORWARD", "-A FORWARD -o cni0 -j DROP\n-I FORWARD"))],
      around: { outInterface: (address) => address.startsWith("10.244.") ? "cni0" : "eth0" },
    }),
    finds: "chain FORWARD rule 5: -o cni0 -j DROP",
  },
  {
    name: "a table of nftables drops what leaves through the endpoints' interface",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          'table inet fw {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\toifname "cni*" drop\n\t}\n}\n',
      }],
      around: { outInterface: () => "cni0" },
    }),
    finds: 'table inet fw chain f rule 1: oifname "cni*" drop',
  },
  {
    name: "there is no way to the endpoints",
    node: (sound) => ({ texts: [save(sound)], around: { outInterface: () => null } }),
    finds: "there is no route to 10.244.0.11",
  },
  {
    name: "the name of the node is not that of its Node",
    node: (sound) => ({ texts: [save(sound)], around: {}, nodeName: "worker-9" }),
    finds:
      "There is no Node worker-9, by whose name policies and hints are decided here; Node node-a has an address " +
      "of this machine: --hostname-override=node-a",
  },
  {
    name: "the interface is down",
    node: (sound) => ({ texts: [save(sound)], around: { downInterfaces: new Set(["cni0"]) } }),
    finds: "the interface is down",
  },
  {
    name: "the way back to the source is another one",
    node: (sound) => ({
      texts: [save(sound)],
      around: { strictInterfaces: new Set(["cni0"]), outInterface: () => "eth1" },
    }),
    finds: "reverse path filter: the way back is through eth1",
  },
  {
    name: "no rules at all",
    node: () => ({ texts: [save("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")] }),
    finds: "There are no rules of a service proxy",
  },
  {
    name: "rules of another mode, which do the same",
    node: () => ({ texts: [{ name: "nft", text: KUBE_PROXY_TABLE }] }),
    finds: "should have rules of mode iptables, and has those of kube-proxy (nftables: table ip kube-proxy)",
  },
  {
    name: "kube-proxy's table is still there, beside kproxy's rules",
    node: (sound) => ({ texts: [save(sound), { name: "nft", text: KUBE_PROXY_TABLE }] }),
    finds: "Rules of several service proxies are in force",
  },
];

for (const { name, node, finds, step } of FAULTS) {
  Deno.test(`trace finds: ${name}`, NONE, async () => {
    const planted = node(SOUND);
    assert(
      planted.around !== undefined || planted.texts.length > 1 || planted.texts[0]?.text !== SOUND,
      "no fault",
    );
    const trace = await traced(planted);
    assertStringIncludes(trace.findings.join("\n"), finds);
    if (step === undefined) return;
    const { difference } = trace;
    const steps = [difference?.desiredStep, difference?.liveStep].map((one) => `${one?.chain}: ${one?.rule}`)
      .join("\n");
    assertStringIncludes(steps, step);
  });
}

Deno.test("rules of kube-proxy's nftables mode are walked, too", NONE, async () => {
  const live = [{ name: "nft", text: KUBE_PROXY_TABLE }];
  const trace = await traced({ texts: live, plane: "nftables", packet: "10.0.0.7@eth0 → 10.96.10.1:80/tcp" });
  assertEquals([trace.difference, trace.findings, trace.problems], [null, [], []]);
  assertEquals(trace.live?.flow.outcomes.map(({ translatedTo, masquerade }) => [translatedTo, masquerade]), [
    ["10.244.0.11:8080", true],
    ["10.244.0.12:8080", true],
  ]);
});

Deno.test("kproxy's own table, as a text for nft, is walked", NONE, async () => {
  const text = nftablesText(nftablesPlan(inputOf(), "IPv4"));
  const trace = await traced({ texts: [{ name: "render", text }], plane: "nftables" });
  assertEquals([trace.difference, trace.findings], [null, []]);
});

const LEFT_OUT: readonly (readonly [conditions: Record<string, unknown>, reason: string])[] = [
  [{ conditions: { ready: false } }, "not ready"],
  [{ conditions: { ready: false, serving: true, terminating: true } }, "terminating, and others are ready"],
  [
    { conditions: { ready: false, serving: false, terminating: true } },
    "terminating and not serving any more",
  ],
];

for (const [conditions, reason] of LEFT_OUT) {
  Deno.test(`an endpoint is left out: ${reason}`, NONE, async () => {
    const input = inputOf([{}, conditions]);
    const { service } = await traced({ texts: [save(printed(input))], input });
    const verdicts = service?.uses.endpoints.map(({ cluster }) => [cluster?.isUsed, cluster?.reason]);
    assertEquals(verdicts, [[true, "ready"], [false, reason]]);
  });
}

Deno.test("an endpoint is left out: its hint is for another zone", NONE, async () => {
  const hint = (zone: string): Record<string, unknown> => ({ hints: { forZones: [{ name: zone }] } });
  const input = inputOf([hint("z1"), hint("z2")]);
  const { service } = await traced({ texts: [save(printed(input))], input });
  assertEquals(service?.uses.endpoints[1]?.cluster, {
    isUsed: false,
    reason: "hint: it is for zone z2, this is z1",
  });
});

Deno.test("what cannot be evaluated in a table of others costs that chain only", NONE, async () => {
  const text =
    "table inet fw {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\ttcp dport http-alt drop\n\t}\n}\n";
  const { unsure, difference } = await traced({ texts: [save(SOUND), { name: "nft", text }] });
  assertEquals(difference, null);
  assertEquals(unsure.length, 1);
  assertMatch(
    unsure[0] ?? "",
    /^Table inet fw chain pre: .*http-alt.*; it is taken to let the packet pass$/,
  );
});

Deno.test(
  "a Service of both families is asked at its address of the source's family, else of IPv4",
  NONE,
  () => {
    const clusterIPs = ["fd00:10:96::15", "10.96.0.21"];
    const service = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { namespace: "shop", name: "dual" },
      spec: {
        type: "ClusterIP",
        clusterIP: clusterIPs[0],
        clusterIPs,
        ipFamilies: ["IPv6", "IPv4"],
        ports: [{ name: "http", port: 80, protocol: "TCP" }],
      },
    };
    const { states } = stateOfObjects(decodeObject(service, "test").objects, "node-a", () => {});
    for (const order of [[...states], [...states].reverse()]) {
      const ip = (from: string): string => readDestination("shop/dual", new Map(order), from).ip;
      assertEquals(["10.244.0.5@cni0", "fd00:10:244::5", "local", "world", "cni0"].map(ip), [
        "10.96.0.21",
        "fd00:10:96::15",
        "10.96.0.21",
        "10.96.0.21",
        "10.96.0.21",
      ]);
    }
  },
);

Deno.test("a port that the Service has not is told with those that it has", NONE, async () => {
  const { notes } = await traced({ texts: [save(SOUND)], packet: "10.244.0.5@cni0 → 10.96.10.1:81/tcp" });
  assertEquals(notes, ["10.96.10.1 is an address of Service shop/web, whose ports are 80/TCP"]);
});

Deno.test("where one rule chooses among all endpoints, no choice is told twice", NONE, async () => {
  const text = nftablesText(nftablesPlan(inputOf(), "IPv4"));
  const trace = await traced({ texts: [{ name: "render", text }], plane: "nftables" });
  const lines = traceLines(trace, (rows) => rows.map((row) => row.join(" ")));
  assertEquals(lines.filter((line) => line.includes("of new connections")), []);
  const chance = await traced({ texts: [save(SOUND)] });
  const ways = traceLines(chance, (rows) => rows.map((row) => row.join(" "))).join("\n");
  assertMatch(ways, /1\/2 of new connections\n.*KUBE-SVC-.*\n.*10\.244\.0\.11[^]*1\/2 of new connections\n/);
});

Deno.test("the document of a trace has a version and no bigint", NONE, async () => {
  const document = JSON.parse(JSON.stringify(traceDocument(await traced({ texts: [save(SOUND)] }))));
  assertEquals([document.apiVersion, document.kind], ["kproxy/v1", "Trace"]);
  assertEquals(document.live.outcomes[0].probability, "1/2");
  assertEquals(document.live.outcomes[0].steps[0].hook, "prerouting");
});

Deno.test("hostile texts are told and cost nothing else", NONE, async () => {
  const texts: LiveText[] = [
    save(`${SOUND.replace("*nat", "*nat\n:\n-A\n-Z KUBE-SERVICES\n-A MISSING -j DROP\ngarbage")}`),
    {
      name: "nft",
      text:
        `table ip x {\n\tchain c {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\t"""\n\t\tip frob 1\n\t}\n`,
    },
    { name: "sets", text: "create a hash:ip family inet hashsize 1 maxelem 1\nadd b 1.2.3.4\nfrob\n" },
    { name: "noise", text: "\u0000\u0001 nothing at all" },
  ];
  const trace = await traced({ texts });
  assertEquals(trace.difference, null);
  const places = trace.problems.map(({ place }) => place.split(":")[0]);
  assertEquals([...new Set(places)].sort(), ["iptables-save", "nft", "noise", "sets"]);
});
