import { assert } from "@std/assert";
import { JUMP_RULES } from "../lib/backend/ipvs/plan/base_rules.ts";
import { SET_KINDS } from "../lib/backend/ipvs/plan/sets.ts";
import { planNftables } from "../lib/backend/nftables/plan/plan.ts";
import { JUMPS } from "../lib/backend/userspace/plan/chains.ts";
import type { JumpRule } from "../lib/netfilter/iptables_jumps.ts";
import { FLOW_CASES } from "../tests/flows/flow_cases.ts";
import { optionsOf } from "../tests/flows/flow_case.ts";
import { stateOf } from "../tests/flows/planner_input.ts";
import { examplePlan } from "../tests/support/golden.ts";
import { exampleNftablesOptions } from "../tests/support/golden_nftables.ts";
import { ROOT } from "./project_files.ts";

const DIAGRAMS = [...(await Deno.readTextFile(`${ROOT}/docs/modes.md`)).matchAll(/```mermaid\n(.*?)```/gs)]
  .map(([, diagram = ""]) => diagram);

/** Each jump from a built-in chain stands in one box together with that chain. */
function assertJumps(diagram: string, jumps: readonly JumpRule[], chains: readonly string[]): void {
  for (
    const { table, chain, target } of jumps.filter((jump) => chains.includes(`${jump.table} ${jump.chain}`))
  ) {
    const lines = diagram.split("\n").filter((line) => line.includes(`${table} ${chain}`));
    assert(
      lines.some((line) => new RegExp(`${target}(?![\\w-])`).test(line)),
      `${table} ${chain}: ${target}`,
    );
  }
}

Deno.test("the diagrams of the modes show the jumps of built-in chains, and sets that are there", () => {
  const [iptables = "", , ipvs = "", userspace = ""] = DIAGRAMS;
  const filter = ["filter INPUT", "filter FORWARD", "filter OUTPUT"];
  assertJumps(iptables, examplePlan("IPv4", []).base.jumps, filter);
  assertJumps(ipvs, JUMP_RULES, ["filter INPUT", "filter OUTPUT", "nat POSTROUTING"]);
  assertJumps(userspace, JUMPS, ["nat PREROUTING", "nat OUTPUT", "filter INPUT"]);
  for (const [, set = ""] of ipvs.matchAll(/(KUBE-[A-Z-]+): \d/g)) {
    assert((SET_KINDS as string[]).includes(set), set);
  }
});

Deno.test("chains and maps of the diagram of mode nftables are there", () => {
  const kinds = (name: string): string => name.replaceAll(/-\d+/g, "-N");
  const known = new Set(
    FLOW_CASES.flatMap((one) => {
      const state = stateOf("IPv4", one.objects, optionsOf(one));
      const { base, sharedChains } = planNftables(state, "all", exampleNftablesOptions("IPv4"));
      const maps = base.containers.map(({ name }) => `@${name}`);
      return [...base.chains.map(({ name }) => name), ...maps, ...[...sharedChains.keys()].map(kinds)];
    }),
  );
  const boxes = [...(DIAGRAMS[1] ?? "").matchAll(/\["([^:"<]+)(?:: (.*?))?["<]/g)];
  const names = boxes.flatMap(([, name = "", checks = ""]) => [name, ...checks.match(/[\w-]+-check/g) ?? []]);
  assert(names.length > 15);
  for (const name of names) assert(known.has(kinds(name)), name);
});
