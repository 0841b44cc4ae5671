import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { JUMP_RULES } from "../../lib/backend/ipvs/plan/base_rules.ts";
import { SET_KINDS } from "../../lib/backend/ipvs/plan/sets.ts";
import { JUMPS } from "../../lib/backend/userspace/plan/chains.ts";
import type { JumpRule } from "../../lib/netfilter/iptables_jumps.ts";
import { FLOW_CASES } from "../../tests/flows/flow_cases.ts";
import { optionsOf } from "../../tests/flows/flow_case.ts";
import { stateOf } from "../../tests/flows/planner_input.ts";
import { planNftables } from "../../lib/backend/nftables/plan/plan.ts";
import { exampleNftablesOptions } from "../../tests/support/golden_nftables.ts";
import { examplePlan } from "../../tests/support/golden.ts";
import { projectFiles, ROOT } from "../project_files.ts";
import { IPTABLES_WAY } from "./iptables_way.ts";
import { IPVS_WAY } from "./ipvs_way.ts";
import { NFTABLES_WAY } from "./nftables_way.ts";
import { type Box, faultsOf, type Picture, pictureSvg } from "./picture.ts";
import { PICTURES } from "./pictures.ts";
import { USERSPACE_WAY } from "./userspace_way.ts";

const SMALL: Picture = {
  file: "small.svg",
  title: "Small",
  subtitle: "",
  description: "Two boxes",
  width: 400,
  height: 200,
  bands: [],
  boxes: [
    { id: "a", kind: "chain", x: 10, y: 10, width: 100, title: "one" },
    { id: "b", kind: "chain", x: 10, y: 100, width: 100, title: "<two>" },
  ],
  arrows: [{ from: { box: "a", side: "bottom" }, to: { box: "b", side: "top" } }],
  legend: [["chain", "a chain"]],
};

function faultsWith(change: Partial<Picture>): string[] {
  return faultsOf({ ...SMALL, ...change });
}

Deno.test(
  "what does not fit, overlaps, leans or is not explained is a fault",
  { permissions: "none" },
  () => {
    assertEquals(faultsOf(SMALL), []);
    const [a, b] = SMALL.boxes as [Box, Box];
    assertEquals(faultsWith({ boxes: [a, { ...b, y: 30 }] }), ["a and b lie over one another"]);
    assertEquals(faultsWith({ boxes: [a, { ...b, title: "far too long for it" }] }), ["b is 65 too narrow"]);
    assertEquals(faultsWith({ boxes: [a, { ...b, y: 180 }] }), ["b leaves the picture"]);
    assertEquals(faultsWith({ legend: [] }), ["the legend lacks chain"]);
    const [arrow] = SMALL.arrows;
    assert(arrow !== undefined);
    assertEquals(faultsWith({ arrows: [{ ...arrow, to: { box: "c", side: "top" } }] }), ["an arrow names c"]);
    assertEquals(faultsWith({ arrows: [{ ...arrow, via: [[70, 70]] }] }).length, 1);
    assertEquals(faultsWith({ arrows: [{ ...arrow, label: "goes", labelAt: [50, 80] }] }), [
      '"goes" lies over something',
    ]);
    assertEquals(faultsWith({ arrows: [{ ...arrow, label: "goes", labelAt: [64, 80] }] }), []);
    assertThrows(() => pictureSvg({ ...SMALL, legend: [] }), RangeError, "small.svg: the legend lacks chain");
  },
);

Deno.test("text stays text, and both grounds have colours", { permissions: "none" }, () => {
  const svg = pictureSvg(SMALL);
  assertStringIncludes(svg, ">&lt;two&gt;</text>");
  assertStringIncludes(svg, "prefers-color-scheme: dark");
  assertEquals(/<image|<foreignObject|<script|href=/.exec(svg), null);
});

Deno.test("in the pictures everything fits", { permissions: "none" }, () => {
  for (const picture of PICTURES) assertEquals(faultsOf(picture), [], picture.file);
  assertEquals(PICTURES.length, new Set(PICTURES.map(({ file }) => file)).size);
});

Deno.test("the picture of docs/architecture.md has at most 15 boxes, and names folders that are there", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/architecture.md`);
  const [, picture = ""] = /^```mermaid\n(.*?)^```$/ms.exec(page) ?? [];
  const boxes = [...picture.matchAll(/\[([^\]]+)\]/g)].map(([, words = ""]) => words);
  assert(boxes.length > 10 && boxes.length <= 15, `${boxes.length}`);
  const files = await projectFiles();
  const names = boxes.flatMap((words) => words.match(/\blib\/[\w/]+/g) ?? []);
  for (const name of names) {
    assert(files.some((file) => file.startsWith(`${name.replace("MODE", "iptables")}/`)), name);
  }
});

function box({ boxes }: Picture, id: string): Box {
  const found = boxes.find((one) => one.id === id);
  assert(found !== undefined, id);
  return found;
}

/** The chains that a box lists are those that a chain of the kernel's leads to. */
function assertJumps(listed: Box, jumps: readonly JumpRule[], table: string, chain: string): void {
  const targets = jumps.filter((jump) => jump.table === table && jump.chain === chain).map(({ target }) =>
    target
  );
  assert(targets.length > 0, `${table} ${chain}`);
  const names = (listed.lines ?? []).flatMap(({ name }) => name ?? []);
  assertEquals(new Set(names), new Set(targets), `${table} ${chain}`);
}

Deno.test("chains hang where the pictures of iptables and userspace say", { permissions: "none" }, () => {
  const { jumps } = examplePlan("IPv4", []).base;
  assertJumps(box(IPTABLES_WAY, "input"), jumps, "filter", "INPUT");
  assertJumps(box(IPTABLES_WAY, "forward"), jumps, "filter", "FORWARD");
  assertJumps(box(IPTABLES_WAY, "filter-output"), jumps, "filter", "OUTPUT");
  assertJumps(box(USERSPACE_WAY, "prerouting"), JUMPS, "nat", "PREROUTING");
  assertJumps(box(USERSPACE_WAY, "output"), JUMPS, "nat", "OUTPUT");
  assertJumps(box(USERSPACE_WAY, "input"), JUMPS, "filter", "INPUT");
});

Deno.test("chains and sets of the picture of ipvs are there", { permissions: "none" }, () => {
  assertJumps(box(IPVS_WAY, "input"), JUMP_RULES, "filter", "INPUT");
  const sets: readonly string[] = SET_KINDS;
  for (const { name = "" } of box(IPVS_WAY, "sets").lines ?? []) assert(sets.includes(name), name);
});

Deno.test("chains and maps of the picture of nftables are there", { permissions: "none" }, () => {
  const plans = FLOW_CASES.map((one) =>
    planNftables(stateOf("IPv4", one.objects, optionsOf(one)), "all", exampleNftablesOptions("IPv4"))
  );
  const kinds = (name: string): string => name.replaceAll(/-\d+/g, "-N");
  const known = new Set(plans.flatMap(({ base, sharedChains }) => [
    ...base.chains.map(({ name }) => name),
    ...base.containers.map(({ name }) => `@${name}`),
    ...[...sharedChains.keys()].map(kinds),
  ]));
  const names = NFTABLES_WAY.boxes.flatMap(({ title, isName, kind, lines = [] }) => [
    ...(isName === true ? [title] : []),
    ...(kind === "chain" ? lines.flatMap(({ name }) => name ?? []) : []),
  ]);
  assert(names.length > 15);
  for (const name of names) assert(known.has(name) || known.has(kinds(name)), name);
});
