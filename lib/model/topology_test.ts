import { assertEquals } from "@std/assert";
import type { Endpoint, NodeFacts } from "./state.ts";
import { NODE_A, testEndpoint } from "../../tests/support/model_objects.ts";
import { isAvailableFor, type TopologyMode, topologyMode } from "./endpoint.ts";

const pure = { permissions: "none" } as const;

function hinted(zoneHints: string[], nodeHints: string[] = [], fields: Partial<Endpoint> = {}): Endpoint {
  return testEndpoint("10.0.0.1", { zoneHints, nodeHints, ...fields });
}

Deno.test("hints count only if every ready endpoint has one and one is for this node or zone", pure, () => {
  const notReady = { ready: false, serving: false };
  const draining = { ready: false, terminating: true };
  const table: readonly [string, Endpoint[], TopologyMode, [number, string][], NodeFacts?][] = [
    ["no endpoints", [], "", []],
    ["none ready", [hinted(["z1"], ["node-a"], notReady)], "", []],
    ["zones, one ours", [hinted(["z1"]), hinted(["z2"])], "PreferSameZone", [[7, "node"]]],
    ["several zones per endpoint", [hinted(["z2", "z1"]), hinted(["z3"])], "PreferSameZone", [[7, "node"]]],
    ["one ready without a hint", [hinted(["z1"]), hinted([])], "", [[7, "node"], [7, "zone"]]],
    ["zones, none ours", [hinted(["z2"]), hinted(["z3"])], "", [[7, "node"], [2, "zone"]]],
    ["not-ready does not veto", [hinted(["z1"]), hinted([], [], notReady)], "PreferSameZone", [[7, "node"]]],
    ["draining does not veto", [hinted(["z1"]), hinted([], [], draining)], "PreferSameZone", [[7, "node"]]],
    ["not-ready does not enable", [hinted(["z2"]), hinted(["z1"], [], notReady)], "", [[7, "node"], [
      2,
      "zone",
    ]]],
    ["nodes, one ours", [hinted(["z1"], ["node-a"]), hinted(["z1"], ["node-b"])], "PreferSameNode", []],
    ["nodes without zones", [hinted([], ["node-a"]), hinted([], ["node-b"])], "PreferSameNode", []],
    ["one without node hint falls to zones", [hinted(["z1"], ["node-a"]), hinted(["z1"])], "PreferSameZone", [
      [7, "node"],
    ]],
    [
      "nodes not ours fall to zones",
      [hinted(["z1"], ["node-c"]), hinted(["z2"], ["node-b"])],
      "PreferSameZone",
      [
        [2, "node"],
      ],
    ],
    ["nodes not ours, no zones", [hinted([], ["node-c"])], "", [[2, "node"], [7, "zone"]]],
    ["node without a zone", [hinted(["z1"]), hinted([""])], "", [[7, "node"], [2, "missing label"]], {
      name: "node-a",
      zone: "",
    }],
    ["node without a name", [hinted([], [""])], "", [[2, "node"], [7, "zone"]], { name: "", zone: "z1" }],
  ];
  for (const [what, endpoints, mode, notes, node = NODE_A] of table) {
    const seen: [number, string][] = [];
    const got = topologyMode(endpoints, node, (verbosity, message) => seen.push([verbosity, message]));
    assertEquals([what, got], [what, mode]);
    assertEquals(seen.map(([verbosity]) => verbosity), notes.map(([verbosity]) => verbosity), what);
    seen.forEach(([, message], index) => {
      assertEquals(message.includes(notes[index]?.[1] ?? "?"), true, `${what}: ${message}`);
    });
  }
});

Deno.test("an endpoint is available to the node or zone its hints name", pure, () => {
  const endpoint = hinted(["z2", "z1"], ["node-b"]);
  assertEquals(isAvailableFor("", endpoint, NODE_A), true);
  assertEquals(isAvailableFor("PreferSameZone", endpoint, NODE_A), true);
  assertEquals(isAvailableFor("PreferSameNode", endpoint, NODE_A), false);
  assertEquals(isAvailableFor("PreferSameZone", hinted(["z2"]), NODE_A), false);
  assertEquals(isAvailableFor("PreferSameNode", hinted([], ["node-c", "node-a"]), NODE_A), true);
});
