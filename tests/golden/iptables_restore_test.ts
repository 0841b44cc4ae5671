/**
 * The golden rules on the real tools: they load, a full sync from nothing and one over what is there end in them, and so does a
 * difference.
 *
 * @module
 */
import { assertEquals, assertMatch } from "@std/assert";
import type { IptablesPlan } from "../../lib/backend/iptables/plan/ruleset.ts";
import { fullSync } from "../../lib/backend/iptables/store/full_sync.ts";
import type { IptablesStore } from "../../lib/backend/iptables/store/store.ts";
import { groupByChain, ruleOf } from "../../lib/netfilter/iptables_jumps.ts";
import { parseIptablesListing } from "../../lib/netfilter/iptables_save.ts";
import { printedRule } from "../../lib/netfilter/printed_iptables_rule.ts";
import type { IpFamily, Service } from "../../lib/model/objects.ts";
import { testPort, testService } from "../support/model_objects.ts";
import { examplePlan, goldenNames, loadGolden } from "../support/golden.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const VARIANTS = [{ variant: "nft", staged: true }, { variant: "legacy", staged: false }] as const;
/** So few chains in a block that even a golden case is written in several. */
const TINY_BLOCKS = 2;
const LARGE_BLOCKS = 1_200;
const LEGACY_EVERY = 3;

interface Tool {
  readonly netns: Netns;
  readonly restore: string;
  readonly save: string;
  readonly family: IpFamily;
  readonly staged: boolean;
}

async function write(tool: Tool, text: string): Promise<void> {
  if (text === "") return;
  await tool.netns.run([tool.restore, "-w", "5", "--noflush", "--counters"], { stdin: text });
}

async function save(tool: Tool): Promise<string> {
  const texts = [];
  for (const table of ["filter", "nat"]) texts.push(await tool.netns.run([tool.save, "-t", table]));
  return texts.join("").split("\n").filter((line) => !line.startsWith("#"))
    .map((line) => line.replace(/\[\d+:\d+\]/, "[0:0]")).join("\n");
}

/** @returns what is held then, and what was written */
async function writeFull(
  tool: Tool,
  plan: IptablesPlan,
  mostChains: number,
): Promise<{ readonly store: IptablesStore; readonly text: string }> {
  const { tables } = parseIptablesListing(await save(tool));
  const { family } = tool;
  const { store, transaction } = fullSync(plan, { tables, unreadable: new Set() }, { family });
  const blocks = [...transaction.blocks(tool.staged ? mostChains : Infinity)];
  for (const block of blocks) await write(tool, block);
  return { store, text: blocks.join("") };
}

/** A change of all Services, those among them that are gone. @returns what was written */
async function writeChange(tool: Tool, store: IptablesStore, plan: IptablesPlan): Promise<string> {
  const gone = [...store.serviceNames].filter((name) => !plan.services.has(name)).map((name) =>
    [name, null] as const
  );
  const { transaction, commit } = store.change({ ...plan, services: new Map([...plan.services, ...gone]) });
  const text = [...transaction.blocks(Infinity)].join("");
  await write(tool, text);
  commit();
  return text;
}

/** The order of chains and, in dispatch chains, of rules (but the last) is free. */
function normalize(text: string): string[] {
  const lines = text.split("\n").filter((line) => line !== "");
  const isDispatch = (line: string): boolean =>
    /^-A KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|PROXY-FIREWALL) /.test(line);
  const groups = new Map<string, string[]>();
  let table = "";
  for (const line of lines) {
    if (line.startsWith("*")) table = line;
    const chain = line.startsWith("-A ") ? line.split(" ")[1]! : "";
    const key = `${table} ${chain}${line.includes("this must be the last rule") ? " last" : ""}`;
    groups.set(key, [...groups.get(key) ?? [], line]);
  }
  return [...groups.keys()].sort().flatMap((key) => {
    const group = groups.get(key)!;
    return group.every((line) => isDispatch(line) || !line.startsWith("-A ")) ? group.sort() : group;
  });
}

/** The jumps of a first start, in the order that iptables-save shows. */
const JUMPS: Readonly<Record<string, readonly string[]>> = {
  INPUT: ["KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"],
  FORWARD: ["KUBE-PROXY-FIREWALL", "KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"],
  OUTPUT: ["KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-SERVICES", /* nat */ "KUBE-SERVICES"],
  PREROUTING: ["KUBE-SERVICES"],
  POSTROUTING: ["KUBE-POSTROUTING"],
};

function jumpTargets(text: string): Record<string, string[]> {
  const targets: Record<string, string[]> = {};
  for (const [, chain, target] of text.matchAll(/^-A ([A-Z]+) .*-j (\S+)$/gm)) {
    (targets[chain!] ??= []).push(target!);
  }
  return targets;
}

for (const { variant, staged } of VARIANTS) {
  for (const [family, prefix] of [["IPv4", "iptables"], ["IPv6", "ip6tables"]] as const) {
    const restore = `${prefix}-${variant}-restore`;
    const needs = [ROOT_NAMESPACES, program("ip"), program(restore)];
    e2eTest(`golden rules on the real tool, ${variant} ${family}`, needs, async (t) => {
      // Both variants are written by the same text: some of the cases show that the other one takes it.
      for (const [index, name] of goldenNames().entries()) {
        if (variant === "legacy" && index % LEGACY_EVERY !== 0) continue;
        const golden = loadGolden(name);
        if (golden.expected[family] === undefined) continue;
        await t.step(name, () =>
          withNetns(async (netns) => {
            const tool = { netns, restore, save: `${prefix}-${variant}-save`, family, staged };
            await checkCase(tool, family, golden);
          }));
      }
    });
  }
}

for (const { variant, staged } of VARIANTS) {
  const restore = `iptables-${variant}-restore`;
  e2eTest(
    `many rules of long chains are deleted, ${variant}`,
    [ROOT_NAMESPACES, program("ip"), program(restore)],
    async () => {
      const services = manyServices(600);
      const before = examplePlan("IPv4", services);
      // Every seventh goes; each third of the others moves to another address.
      const after = examplePlan(
        "IPv4",
        services.filter((_, index) => index % 7 !== 0).map((service, index) =>
          index % 3 === 0
            ? { ...service, clusterIP: service.clusterIP.replace("10.96", "10.97"), clusterIPs: [] }
            : service
        ),
      );
      await withNetns(async (netns) => {
        const tool = { netns, restore, save: `iptables-${variant}-save`, family: "IPv4" as const, staged };
        await writeFull(tool, after, LARGE_BLOCKS);
        const expected = normalize(await save(tool));
        const { store } = await writeFull(tool, before, LARGE_BLOCKS);
        const text = await writeChange(tool, store, after);
        assertMatch(text, /^-D KUBE-SERVICES -m comment --comment "shop\/many-98 has no endpoints"/m);
        assertEquals(normalize(await save(tool)), expected);
      });
    },
  );
}

/** Services with node port and external IP but no endpoints: rules in filter, in two chains each. */
function manyServices(count: number): Service[] {
  return Array.from({ length: count }, (_, index) =>
    testService({
      name: `many-${index}`,
      type: "NodePort",
      clusterIP: `10.96.${index >> 8}.${index & 255}`,
      ports: [testPort({ nodePort: 30000 + index })],
    }));
}

/** Own chains of Services that are printed in other words than the check of a node's rules expects, which costs it time. */
function otherwisePrinted(plan: IptablesPlan, family: IpFamily, saved: string): readonly string[] {
  const nat = parseIptablesListing(saved).tables.get("nat");
  const bodies = [...plan.services.values()].flatMap((rules) => [...groupByChain(rules?.rules ?? [])]);
  return bodies.filter(([chain, lines]) => {
    const printed = lines.map((line) => `-A ${chain} ${printedRule(ruleOf(line, chain), family)}`);
    return nat?.get(chain)?.holdsText?.(printed.join("\n")) !== true;
  }).map(([chain]) => chain);
}

async function checkCase(tool: Tool, family: IpFamily, golden: ReturnType<typeof loadGolden>): Promise<void> {
  await tool.netns.run([tool.restore, "--test", "--noflush", "--counters"], {
    stdin: golden.expected[family]!,
  });
  const plan = examplePlan(family, golden.objects);

  await writeFull(tool, plan, LARGE_BLOCKS);
  const fresh = await save(tool);
  assertEquals(jumpTargets(fresh), JUMPS);
  assertEquals(otherwisePrinted(plan, family, fresh), []);

  // A second sync over the same rules finds them all: nothing is written.
  assertEquals((await writeFull(tool, plan, TINY_BLOCKS)).text, "");
  assertEquals(await save(tool), fresh);

  // From every other object set to this one, by difference and by full sync, and back.
  for (const objects of [golden.before ?? golden.objects.slice(0, 1), []]) {
    const before = examplePlan(family, objects);
    const { store } = await writeFull(tool, before, TINY_BLOCKS);
    await writeChange(tool, store, plan);
    assertEquals(normalize(await save(tool)), normalize(fresh));
    await writeChange(tool, store, before);
    await writeFull(tool, plan, TINY_BLOCKS);
    assertEquals(normalize(await save(tool)), normalize(fresh));
  }
}
