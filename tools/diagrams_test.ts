/** Mermaid diagrams of the documentation name existing folders, chains, maps and sets. */
import { assert, assertEquals } from "@std/assert";
import { CHAINS, JUMP_RULES } from "../lib/backend/ipvs/plan/base_rules.ts";
import { DEVICE } from "../lib/backend/ipvs/plan/ruleset.ts";
import { SET_KINDS } from "../lib/backend/ipvs/plan/sets.ts";
import { SERVICE_CHAIN_PREFIXES } from "../lib/backend/iptables/plan/chains.ts";
import { planNftables } from "../lib/backend/nftables/plan/plan.ts";
import { JUMPS } from "../lib/backend/userspace/plan/chains.ts";
import type { JumpRule } from "../lib/netfilter/iptables_jumps.ts";
import { optionsOf } from "../tests/flows/flow_case.ts";
import { FLOW_CASES } from "../tests/flows/flow_cases.ts";
import { stateOf } from "../tests/flows/planner_input.ts";
import { examplePlan } from "../tests/support/golden.ts";
import { exampleNftablesOptions } from "../tests/support/golden_nftables.ts";
import { projectFiles, ROOT } from "./project_files.ts";

const MODES_PAGE = await Deno.readTextFile(`${ROOT}/docs/modes.md`);
const ARCHITECTURE = await Deno.readTextFile(`${ROOT}/docs/architecture.md`);

/** Texts of a page's first diagram after a heading, as a list of lines per box. */
function boxesOf(page: string, heading: string): string[][] {
  const section = page.slice(page.indexOf(`\n${heading}\n`));
  const [, diagram = ""] = /^```mermaid\n(.*?)^```$/ms.exec(section) ?? [];
  const boxes = [...diagram.matchAll(/\["?([^\]]+?)"?\]|\{([^}]+)\}/g)].map(([, box, choice]) =>
    (box ?? choice ?? "").split("<br/>")
  );
  assert(boxes.length > 5, heading);
  return boxes;
}

/** Names of chains and sets in a box that begins with these words. */
function namesIn(boxes: readonly string[][], head: string): string[] {
  const lines = boxes.find(([first = ""]) => first.startsWith(head));
  assert(lines !== undefined, head);
  return lines.flatMap((line) => /^KUBE-[A-Z-]+/.exec(line)?.[0] ?? []);
}

/** Asserts that a box lists exactly the chains that a built-in chain jumps to. */
function assertJumps(
  boxes: readonly string[][],
  jumps: readonly JumpRule[],
  table: string,
  chain: string,
): void {
  const targets = jumps.filter((jump) => jump.table === table && jump.chain === chain).map(({ target }) =>
    target
  );
  assert(targets.length > 0, `${table} ${chain}`);
  assertEquals(new Set(namesIn(boxes, `${table} ${chain}`)), new Set(targets), `${table} ${chain}`);
}

Deno.test("the diagram of the architecture has at most 15 boxes, and names folders that are there", async () => {
  const boxes = boxesOf(`\n${ARCHITECTURE}`, "# Architecture");
  assert(boxes.length <= 15, `${boxes.length}`);
  const names = boxes.flat().flatMap((words) => words.match(/\blib\/[\w/]+/g) ?? []);
  assert(names.length > 8);
  const files = await projectFiles();
  for (const name of names) {
    assert(files.some((file) => file.startsWith(`${name.replace("MODE", "iptables")}/`)), name);
  }
});

Deno.test("chains hang where the diagrams of iptables and userspace say", () => {
  const { jumps } = examplePlan("IPv4", []).base;
  const iptables = boxesOf(MODES_PAGE, "## Mode iptables");
  for (const chain of ["INPUT", "FORWARD", "OUTPUT"]) assertJumps(iptables, jumps, "filter", chain);
  assertJumps(iptables, jumps, "nat", "POSTROUTING");
  const known = new Set([...SERVICE_CHAIN_PREFIXES, ...jumps.map(({ target }) => target), "KUBE-NODEPORTS"]);
  for (const name of iptables.flat().flatMap((line) => /^KUBE-[A-Z-]+/.exec(line)?.[0] ?? [])) {
    assert(known.has(name), name);
  }
  const userspace = boxesOf(MODES_PAGE, "## Mode userspace");
  for (const chain of ["PREROUTING", "OUTPUT"]) assertJumps(userspace, JUMPS, "nat", chain);
  assertJumps(userspace, JUMPS, "filter", "INPUT");
});

Deno.test("chains, sets and the device of the diagram of ipvs are there", () => {
  const boxes = boxesOf(MODES_PAGE, "## Mode IPVS");
  assertJumps(boxes, JUMP_RULES, "filter", "INPUT");
  assertJumps(boxes, JUMP_RULES, "filter", "OUTPUT");
  for (const head of ["nat PREROUTING", "nat OUTPUT", "nat POSTROUTING"]) {
    for (const name of namesIn(boxes, head)) assert(CHAINS.nat.includes(name), name);
  }
  const sets: readonly string[] = SET_KINDS;
  for (const name of namesIn(boxes, "ipset")) assert(sets.includes(name), name);
  assert(boxes.flat().some((line) => line.includes(DEVICE)));
});

Deno.test("chains and maps of the diagram of nftables are there", () => {
  const plans = FLOW_CASES.map((one) =>
    planNftables(stateOf("IPv4", one.objects, optionsOf(one)), "all", exampleNftablesOptions("IPv4"))
  );
  const kinds = (name: string): string => name.replaceAll(/-\d+/g, "-N");
  const known = new Set(plans.flatMap(({ base, sharedChains }) => [
    ...base.chains.map(({ name }) => name),
    ...base.containers.map(({ name }) => `@${name}`),
    ...[...sharedChains.keys()].map(kinds),
  ]));
  const names = boxesOf(MODES_PAGE, "## Mode nftables").flat()
    .filter((line) => /^@?[a-z]+(-[a-z0-9]+)+$/.test(line));
  assert(names.length > 15, `${names.length}`);
  for (const name of names) assert(known.has(name) || known.has(kinds(name)), name);
});
