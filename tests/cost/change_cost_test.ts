import { assert, assertEquals } from "@std/assert";
import type { FakeMachine } from "../chaos/fake_chaos.ts";
import { fakeIptablesMachine, fakeIpvsMachine, fakeNftablesMachine } from "../chaos/fake_machines.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import { rawService, rawSlice } from "../support/raw_objects.ts";
import { type Cost, CountedNode } from "./counted_node.ts";
import { Visits } from "./visits.ts";

const FEW = 1_000;
const MANY = 3_000;
/** The Service that is changed; there in clusters of both sizes, with the same neighbours by name. */
const CHANGED = 500;
/** Beside those the cluster begins with, whatever their number. */
const ADDED = 9_998;

function nameOf(index: number): string {
  return `svc-${String(index).padStart(4, "0")}`;
}

function ip(base: number, index: number): string {
  return `10.${base + (index >> 14)}.${(index >> 7 & 127) + 100}.${(index & 127) + 100}`;
}

/**
 * A ClusterIP Service, one with a node port that only endpoints of the node serve, or one of a load balancer that asks each node for
 * its health; no endpoint is on the node.
 */
function serviceAt(index: number): RawApiObject {
  const raw = rawService(nameOf(index), { clusterIP: ip(100, index) });
  const { spec } = raw as RawApiObject & { spec: Record<string, unknown> };
  if (index % 4 < 2) return raw;
  const [port] = spec["ports"] as readonly object[];
  const outside = {
    externalTrafficPolicy: "Local",
    ports: [{ ...port, nodePort: 30_000 + index }],
    ...index % 4 === 2 ? { type: "NodePort" } : { type: "LoadBalancer", healthCheckNodePort: 40_000 + index },
  };
  return { ...raw, spec: { ...spec, ...outside } } as RawApiObject;
}

function sliceAt(index: number, last = 2): RawApiObject {
  return rawSlice(nameOf(index), [0, 1, last].map((endpoint) => ip(120 + 10 * endpoint, index)));
}

async function startNode(
  create: () => FakeMachine | Promise<FakeMachine>,
  mode: "iptables" | "nftables" | "ipvs",
  services: number,
): Promise<{ readonly node: CountedNode; readonly start: Cost }> {
  const node = new CountedNode(await create(), mode);
  const all = Array.from({ length: services }, (_, index) => index);
  const start = await node.start(all.map(serviceAt), all.map((index) => sliceAt(index)));
  return { node, start };
}

/** What each change costs, by what it is. */
async function costs(node: CountedNode): Promise<Readonly<Record<string, Cost>>> {
  return {
    "an endpoint replaced": await node.change("put", sliceAt(CHANGED, 3)),
    "an endpoint gone": await node.change("put", rawSlice(nameOf(CHANGED), [ip(120, CHANGED)])),
    "an endpoint of a load balancer replaced": await node.change("put", sliceAt(CHANGED + 3, 3)),
    "an object that says nothing new": await node.change("put", sliceAt(CHANGED + 3, 3)),
    "a slice without its Service": await node.change("put", sliceAt(ADDED)),
    "a Service added": await node.change("put", serviceAt(ADDED)),
    "a Service gone": await node.change("delete", serviceAt(ADDED)),
  };
}

/** At most so many entries are looked at for a Service of three endpoints. */
const MAX_VISITS = 3_000;

function testMode(
  mode: "iptables" | "nftables" | "ipvs",
  title: string,
  create: () => FakeMachine | Promise<FakeMachine>,
  program: string,
  maxVisitsAtStart: number,
): void {
  Deno.test(`${title}: a change costs the same at ${FEW} and ${MANY} Services, a start so much for each`, async () => {
    await using stack = new AsyncDisposableStack();
    const [few, many] = [await startNode(create, mode, FEW), await startNode(create, mode, MANY)];
    for (const { node } of [few, many]) stack.use(node);
    const ofEach = (many.start.visits - few.start.visits) / (MANY - FEW);
    assert(ofEach > 0 && ofEach < maxVisitsAtStart, `${ofEach} visits of each Service at a start`);
    const [fewCosts, manyCosts] = [await costs(few.node), await costs(many.node)];
    assertEquals(manyCosts, fewCosts);
    const { programs = [], bytes = 0 } = fewCosts["an endpoint replaced"] ?? {};
    assertEquals(programs, [program]);
    assert(bytes > 0 && bytes < 2_500, `${bytes} bytes`);
    assertEquals(fewCosts["an object that says nothing new"]?.programs, []);
    for (const [change, { visits }] of Object.entries(fewCosts)) {
      assert(visits > 0 && visits < MAX_VISITS, `${change}: ${visits} visits`);
    }
  });
}

testMode("nftables", "nftables", () => fakeNftablesMachine(50_000), "nft", 300);
testMode("iptables", "iptables (nft)", () => fakeIptablesMachine("nft"), "iptables-restore", 320);
testMode("iptables", "iptables (legacy)", () => fakeIptablesMachine("legacy"), "iptables-restore", 365);
testMode("ipvs", "ipvs", fakeIpvsMachine, "ipvsadm", 370);

Deno.test("every way of looking at all entries is counted", { permissions: "none" }, () => {
  const map = new Map(Array.from({ length: 100 }, (_, key) => [key, key]));
  const [set, list] = [new Set(map.keys()), [...map.keys()]];
  const record = Object.fromEntries(map);
  const ways: readonly (() => unknown)[] = [
    () => {
      for (const _ of map);
    },
    () => [...map.values()],
    () => new Map(map),
    () => map.forEach(() => {}),
    () => [...set],
    () => new Set(set),
    () => set.union(new Set()),
    () => list.filter(() => false),
    () => list.toSorted(),
    () => Math.max(...list),
    () => Object.keys(record),
  ];
  for (const way of ways) {
    const visits = new Visits();
    way();
    visits[Symbol.dispose]();
    assert(visits.count >= 100, `${way} counts ${visits.count}`);
  }
  const visits = new Visits();
  map.get(7);
  set.has(7);
  visits[Symbol.dispose]();
  assertEquals(visits.count, 0);
});
