/**
 * Faults, planted one by one into a node with real rules: `check`, `doctor` or `trace` names the true cause of each; a packet that
 * arrives otherwise fares as `trace` says of the rules that are there; `check --repair` fixes what is ours and touches nothing else; and
 * with the fix the packet arrives again, as all do at first.
 *
 * @module
 */
import { besideAudit } from "../cli/kproxy.ts";
import { assert, assertEquals, assertMatch } from "@std/assert";
import { FaultLab, SOUND } from "../support/faults/fault_lab.ts";
import type { FaultMode, PlantedFault } from "../support/faults/fault.ts";
import { FOREIGN_RULE_FAULTS } from "../support/faults/foreign_rules.ts";
import { NODE_FAULTS } from "../support/faults/node.ts";
import { OBJECT_FAULTS } from "../support/faults/objects.ts";
import { OWN_RULE_FAULTS } from "../support/faults/own_rules.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

/** What hardly depends on the mode is planted in one of them each, in turn: every fault costs a second on a busy machine. */
const inTurn = (faults: readonly PlantedFault[]): readonly PlantedFault[] =>
  faults.map((fault, index) =>
    fault.modes.length === 1 ? fault : { ...fault, modes: [index % 2 === 0 ? "iptables" : "nftables"] }
  );

const FAULTS: readonly PlantedFault[] = [
  ...OWN_RULE_FAULTS,
  ...FOREIGN_RULE_FAULTS,
  ...inTurn(OBJECT_FAULTS),
  ...inTurn(NODE_FAULTS),
];
/** Words after `--` choose faults by name. */
const isChosen = ({ name }: PlantedFault): boolean =>
  Deno.args.length === 0 || Deno.args.some((word) => name.includes(word));

const TOOLS = ["ip", "sysctl", "conntrack", "iptables", "ip6tables", "iptables-legacy", "nft"];

async function plantAndFix(lab: FaultLab, fault: PlantedFault): Promise<void> {
  const { packet, plant, flags = [], fix } = fault;
  const given = typeof flags === "function" ? () => flags(lab) : () => flags;
  const sound = packet === undefined ? "" : SOUND[packet] ?? "";
  await plant(lab);
  try {
    await isNamed(lab, fault, sound, given());
  } catch (error) {
    // The others are planted into a sound node all the same.
    if (fix !== "repair") await fix(lab);
    await lab.restore();
    throw error;
  }
  if (fix !== "repair") {
    await fix(lab);
    const after = await lab.kproxy("check", []);
    assertEquals([after.code, after.err], [0, ""], after.out);
  }
  if (packet !== undefined) assertEquals(await lab.send(packet, sound), [], "after the fix");
}

/** The answer names it, the packet fares as predicted, and `--repair` fixes it if it is ours. */
async function isNamed(
  lab: FaultLab,
  fault: PlantedFault,
  sound: string,
  flags: readonly string[],
): Promise<void> {
  const { packet, ask: [command, ...args], says, code = 1, fix, really } = fault;
  const planted = await lab.others();
  const answer = await lab.kproxy(command, args, flags);
  assertMatch(answer.out + answer.err, says);
  assertEquals(answer.code, code, answer.out + answer.err);
  // Nothing of it is ours to be fixed: a repair changes nothing.
  if (fix !== "repair" && lab.api === null) await lab.kproxy("check", ["--repair"], flags);
  if (packet !== undefined) {
    const predicted = await lab.predict(packet);
    if (really === undefined) assert(predicted !== sound, `${packet} fares as before: ${predicted}`);
    assertEquals(
      await lab.send(packet, really ?? predicted),
      [],
      `${predicted} was predicted by ${lab.lastTrace}`,
    );
  }
  if (fix === "repair") {
    const repair = await lab.kproxy("check", ["--repair"], flags);
    assertEquals([repair.code, besideAudit(repair)], [0, ""], repair.out);
  }
  assertEquals(await lab.others(), planted, "what is not ours");
}

for (const mode of ["iptables", "nftables"] as const satisfies readonly FaultMode[]) {
  const faults = FAULTS.filter((fault) => fault.modes.includes(mode) && isChosen(fault));
  e2eTest(`planted faults are named by their cause, ${mode}`, [
    ROOT_NAMESPACES,
    ...TOOLS.map(program),
  ], async (t) => {
    await using lab = await FaultLab.create(mode);
    const before = await lab.others();
    for (const fault of faults) {
      await t.step({
        name: fault.name,
        fn: () => plantAndFix(lab, fault),
        // The lab's agents and their servers outlive a step.
        sanitizeOps: false,
        sanitizeResources: false,
      });
    }
    assertEquals(await lab.others(), before, "all is as it was");
  });
}

Deno.test("at least forty faults, each by a name of its own", { permissions: "none" }, () => {
  const names = FAULTS.map(({ name }) => name);
  assert(new Set(names).size >= 40, String(names.length));
  for (const mode of ["iptables", "nftables"] as const) {
    const ofMode = FAULTS.filter((fault) => fault.modes.includes(mode)).map(({ name }) => name);
    assertEquals(ofMode.length, new Set(ofMode).size);
    assert(ofMode.length >= 40, `${mode}: ${ofMode.length}`);
  }
});
