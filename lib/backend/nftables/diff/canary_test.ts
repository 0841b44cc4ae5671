import { assertEquals } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import { exampleCommittedTable, exampleNftablesOptions } from "../../../../tests/support/golden_nftables.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../../../tests/support/model_objects.ts";
import type { ApiObject } from "../../../model/objects.ts";
import { canaryDamage, canaryOf, CanarySampler, type Complaint, DeepChecks } from "./canary.ts";
import type { CommittedTable } from "./committed.ts";
import { planChange } from "./plan_change.ts";

const NONE = { permissions: "none" } as const;

function service(name: string, at: number, fields: Parameters<typeof testService>[0] = {}): ApiObject[] {
  const ip = `10.244.${1 + (at >> 8)}.${at & 255}`;
  return [
    testService({ name, clusterIP: `10.96.${at >> 8}.${at & 255}`, ...fields }),
    testSlice({
      name: `${name}-1`,
      serviceName: name,
      ports: [testSlicePort({ protocol: fields.ports?.[0]?.protocol ?? "TCP" })],
      endpoints: [testSliceEndpoint(ip)],
    }),
  ];
}

const OPEN = { type: "NodePort", ports: [testPort({ nodePort: 30080 })] } as const;
const UDP = { ports: [testPort({ protocol: "UDP" })] } as const;

/** The kernel holds `objects` now; `names` changed. */
function applyChange(
  committed: CommittedTable,
  objects: readonly ApiObject[],
  names: ReadonlySet<string>,
): void {
  committed.apply(
    planChange(exampleState("IPv4", objects), names, exampleNftablesOptions("IPv4"), committed),
  );
}

/** Containers in which one look finds an element that has to be there. */
function containersOf(sampler: CanarySampler, committed: CommittedTable): string[] {
  const { present } = sampler.next(committed);
  return [...new Set(present.map(({ container }) => container))].sort();
}

const PLAIN = ["cluster-ips", "endpoints-tcp", "nodeport-ips", "service-ips"];

Deno.test("each look asks for an element of every set and map that has any", NONE, () => {
  const web = service("web", 1), open = service("open", 2, OPEN), udp = service("udp", 3, UDP);
  const withOpen = [...PLAIN, "nodeport-endpoints-tcp", "service-nodeports"].sort();
  const committed = exampleCommittedTable(web);
  const sampler = new CanarySampler();
  assertEquals(containersOf(sampler, committed), PLAIN);
  // One that is the first in a map, and is not what the look after that samples.
  applyChange(committed, [...web, ...open], new Set(["shop/open"]));
  sampler.written(new Set(["shop/open"]), committed);
  assertEquals(containersOf(sampler, committed), withOpen);
  // It goes, and nobody is there any more; another one comes.
  applyChange(committed, web, new Set(["shop/open"]));
  sampler.written(new Set(["shop/open"]), committed);
  assertEquals(containersOf(sampler, committed), PLAIN);
  // It serves no node port any more; another one does.
  applyChange(committed, [...web, ...open, ...udp], new Set(["shop/open", "shop/udp"]));
  sampler.written(new Set(["shop/open", "shop/udp"]), committed);
  assertEquals(containersOf(sampler, committed), [...withOpen, "endpoints-udp"].sort());
  const closed = service("open", 2);
  applyChange(committed, [...web, ...closed, ...udp], new Set(["shop/open"]));
  sampler.written(new Set(["shop/open"]), committed);
  assertEquals(containersOf(sampler, committed), [...PLAIN, "endpoints-udp"].sort());
});

/** More than one look samples, and behind them one with maps of its own. */
const MANY = [
  ...Array.from({ length: 150 }, (_, at) => service(`s${100 + at}`, at + 1)).flat(),
  ...service("udp", 200, UDP),
  ...service("open", 201, OPEN),
];

Deno.test("of many Services, all come to their turn, and each look is about some", NONE, () => {
  const committed = exampleCommittedTable(MANY);
  const sampler = new CanarySampler();
  const sample = () => {
    const { present, unchanged } = sampler.next(committed);
    const ips = [...present, ...unchanged].filter(({ container }) => container === "service-ips");
    return new Set(ips.map(({ key }) => key));
  };
  const looks = [sample(), sample(), sample()];
  for (const { size } of looks) assertEquals(size >= 100 && size < 105, true, String(size));
  assertEquals(looks[0]!.union(looks[1]!).size, 152);
  assertEquals(looks[1]!.union(looks[2]!).size, 152);
});

Deno.test("sets and maps of Services far behind are asked for, too, also after a full sync", NONE, () => {
  const committed = exampleCommittedTable(MANY);
  const sampler = new CanarySampler();
  const all = [...PLAIN, "endpoints-udp", "nodeport-endpoints-tcp", "service-nodeports"].sort();
  assertEquals([containersOf(sampler, committed), containersOf(sampler, committed)], [all, all]);
  // A full sync has nothing of those that were there.
  const others = exampleCommittedTable([
    ...service("other", 9),
    ...MANY.slice(0, -4),
    ...service("else", 8, OPEN),
  ]);
  sampler.written("all", others);
  const left = all.filter((name) => name !== "endpoints-udp");
  assertEquals([containersOf(sampler, others), containersOf(sampler, others)], [left, left]);
  assertEquals(containersOf(new CanarySampler(), exampleCommittedTable([])), ["nodeport-ips"]);
});

Deno.test("where the Service that was asked for has left a map, another one is", NONE, () => {
  const last = service("z", 202, { type: "NodePort", ports: [testPort({ nodePort: 30090 })] });
  const committed = exampleCommittedTable([...MANY, ...last]);
  const sampler = new CanarySampler();
  sampler.next(committed);
  applyChange(committed, [...MANY.slice(0, -2), ...service("open", 201), ...last], new Set(["shop/open"]));
  sampler.written(new Set(["shop/open"]), committed);
  // The next look samples the last Services, too, the one after it does not.
  sampler.next(committed);
  assertEquals(containersOf(sampler, committed).includes("service-nodeports"), true);
});

Deno.test("a Service that goes without a word is asked for no more", NONE, () => {
  const committed = exampleCommittedTable(service("web", 1));
  const sampler = new CanarySampler();
  sampler.next(committed);
  applyChange(committed, [], new Set(["shop/web"]));
  assertEquals(containersOf(sampler, committed), ["nodeport-ips"]);
});

Deno.test(
  "the text of a look: rules behind the last ones if it is deep, elements that go and that come",
  NONE,
  () => {
    const sample = {
      chains: new Map([["services", 3], ["empty", 0], ["tcp-1", 1]]),
      hookedChain: "nat-output",
      present: [{ container: "cluster-ips", key: "10.96.0.1", value: "" }],
      unchanged: [
        { container: "cluster-ips", key: "10.96.0.2", value: "" },
        { container: "service-ips", key: "10.96.0.2 . tcp . 80", value: "goto tcp-1" },
      ],
    };
    const elements = [
      "delete element ip kproxy cluster-ips { 10.96.0.1 }",
      "add element ip kproxy cluster-ips { 10.96.0.2 }",
      "add element ip kproxy service-ips { 10.96.0.2 . tcp . 80 : goto tcp-1 }",
      "",
    ];
    const deep = canaryOf("ip kproxy", sample, true);
    assertEquals(deep.text.split("\n"), [
      "add rule ip kproxy services index 2 jump nat-output",
      "flush chain ip kproxy empty",
      "add rule ip kproxy tcp-1 index 0 jump nat-output",
      ...elements,
    ]);
    assertEquals([...deep.refused], [1, 3]);
    const shallow = canaryOf("ip kproxy", sample, false);
    assertEquals(shallow.text.split("\n"), [
      "flush chain ip kproxy services",
      "flush chain ip kproxy empty",
      "flush chain ip kproxy tcp-1",
      ...elements,
    ]);
    assertEquals([...shallow.refused], []);
  },
);

Deno.test("what a look was refused for tells damage, that all is well, or nothing", NONE, () => {
  const canary = { text: "add rule one\nflush chain two\nadd rule three\n", refused: new Set([1, 3]) };
  const [one, three] = [1, 3].map((line) => ({ line, message: "Operation not supported" })) as [
    Complaint,
    Complaint,
  ];
  const gone = (line: number): Complaint => ({ line, message: "No such file or directory" });
  const cases: readonly [complaints: readonly Complaint[], found: string | null | undefined][] = [
    [[one, three], null],
    // Another kernel or libc has other words.
    [[{ ...one, message: "Not supported" }, { ...three, message: "Invalid argument" }], null],
    [[one, gone(2), three], "No such file or directory: flush chain two"],
    [[{ ...one, line: 2 }, one, three], "Operation not supported: flush chain two"],
    // nft itself stops at the first thing that is not there.
    [[gone(3)], "No such file or directory: add rule three"],
    [[one], undefined],
    [[], undefined],
  ];
  for (const [complaints, found] of cases) assertEquals(canaryDamage(canary, complaints), found);
  assertEquals(canaryDamage({ ...canary, refused: new Set() }, []), undefined);
});

Deno.test(
  "a deep look is due at once, and after a cheap one; after a dear one for a hundredth of the time",
  NONE,
  () => {
    const checks = new DeepChecks();
    assertEquals(checks.isDue(0), true);
    checks.done(1_000, 1_250);
    assertEquals([checks.isDue(1_249), checks.isDue(1_250)], [false, true]);
    checks.done(2_000, 2_251);
    assertEquals([checks.isDue(27_350), checks.isDue(27_351)], [false, true]);
  },
);
