/** What `kproxy trace` reports of a node, whose rules are as the tools print them. */
import { renderPlan } from "../../backend/nftables/store/full_sync.ts";
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { KUBE_PROXY_TABLE } from "../../../tests/support/kube_proxy_table.ts";
import { stateOfObjects } from "../desired/desired.ts";
import { nftablesPlan } from "../modes/nftables.ts";
import type { LiveText } from "../live/live.ts";
import { readDestination } from "./packet.ts";
import { traceDocument, traceLines } from "./trace_report.ts";
import { decodeObject } from "../../source/decode/decode.ts";
import { inputOf, printed, save, SOUND, traced } from "../../../tests/support/traced_node.ts";

const NONE = { permissions: "none" } as const;

Deno.test("an endpoint of this node that is looked for where the world is, is reported", NONE, async () => {
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
  const text = traceLines(trace).join("\n");
  assertStringIncludes(text, "10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade no");
  assertStringIncludes(text, "say the same");
});

Deno.test("rules of kube-proxy's nftables mode are walked, too", NONE, async () => {
  const live = [{ name: "nft", text: KUBE_PROXY_TABLE }];
  const trace = await traced({ texts: live, mode: "nftables", packet: "10.0.0.7@eth0 → 10.96.10.1:80/tcp" });
  assertEquals([trace.difference, trace.findings, trace.problems], [null, [], []]);
  assertEquals(trace.live?.flow.outcomes.map(({ translatedTo, masquerade }) => [translatedTo, masquerade]), [
    ["10.244.0.11:8080", true],
    ["10.244.0.12:8080", true],
  ]);
});

Deno.test("kproxy's own table, as a text for nft, is walked", NONE, async () => {
  const text = renderPlan(nftablesPlan(inputOf(), "IPv4"));
  const trace = await traced({ texts: [{ name: "render", text }], mode: "nftables" });
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

Deno.test("a port that the Service has not is reported with those that it has", NONE, async () => {
  const { notes } = await traced({ texts: [save(SOUND)], packet: "10.244.0.5@cni0 → 10.96.10.1:81/tcp" });
  assertEquals(notes, ["10.96.10.1 is an address of Service shop/web, whose ports are 80/TCP"]);
});

Deno.test("where one rule chooses among all endpoints, no choice is reported twice", NONE, async () => {
  const text = renderPlan(nftablesPlan(inputOf(), "IPv4"));
  const trace = await traced({ texts: [{ name: "render", text }], mode: "nftables" });
  const lines = traceLines(trace);
  assertEquals(lines.filter((line) => line.includes("of new connections")), []);
  const chance = await traced({ texts: [save(SOUND)] });
  const ways = traceLines(chance).join("\n");
  assertMatch(ways, /1\/2 of new connections\n.*KUBE-SVC-.*\n.*10\.244\.0\.11[^]*1\/2 of new connections\n/);
});

Deno.test("the document of a trace has a version and no bigint", NONE, async () => {
  const document = JSON.parse(JSON.stringify(traceDocument(await traced({ texts: [save(SOUND)] }))));
  assertEquals([document.apiVersion, document.kind], ["kproxy/v1", "Trace"]);
  assertEquals(document.live.outcomes[0].probability, "1/2");
  assertEquals(document.live.outcomes[0].steps[0].hook, "prerouting");
});

Deno.test("hostile texts are reported and cost nothing else", NONE, async () => {
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
