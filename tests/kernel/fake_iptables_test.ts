import { assertEquals } from "@std/assert";
import { Iptables, type IptablesVariant } from "../../lib/kernel/iptables.ts";
import { iptablesPrograms, probeIptables } from "../../lib/kernel/iptables_variant.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { canonicalRuleText } from "../../lib/netfilter/canonical_iptables_rule.ts";
import { parseIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import { FakeIptables } from "../support/fake_iptables.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { FAKE_CASES, type FakeCase, type Outcome, outcomeOf } from "./fake_iptables_cases.ts";

for (const variant of ["nft", "legacy"] as const) {
  for (const family of ["IPv4", "IPv6"] as const) {
    const needs = [ROOT_NAMESPACES, program(iptablesPrograms(family, variant).command)];
    e2eTest(`the fake iptables equals the real one, ${variant} ${family}`, needs, async (t) => {
      for (const fakeCase of FAKE_CASES) {
        await t.step(fakeCase.name, async () => {
          const real = await withNetns(async (netns) => await play(fakeCase, netns.exec, family, variant));
          const fake = await play(fakeCase, new FakeIptables(), family, variant);
          assertEquals(fake.outcomes, real.outcomes);
          assertEquals(fake.tables, real.tables);
        });
      }
    });
  }
}

Deno.test("the cases exercise every method of Iptables", () => {
  const source = FAKE_CASES.map(({ run }) => run.toString()).join("\n");
  // `list` prints what a
  // kernel has counted: serve_metrics_test.ts compares it with packets. iptables_native_rules_test.ts has what makes saveReadable
  // differ from save. `with` starts nothing, and what comes of tryCounter is in tests/recorded.
  const notPlayed = new Set([
    ...[
      "constructor",
      "hasRandomFully",
      "save",
      "saveReadable",
      "list",
      "with",
      "tryCounter",
    ],
  ]);
  const methods = Object.getOwnPropertyNames(Iptables.prototype).filter((name) => !notPlayed.has(name));
  assertEquals(methods.filter((name) => !source.includes(`.${name}(`)), []);
});

async function play(
  fakeCase: FakeCase,
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<{ outcomes: Outcome[]; tables: Record<string, unknown> }> {
  const found = await probeIptables(exec, family, variant);
  assertEquals(found.variant, variant);
  const iptables = new Iptables(exec, found);
  // Both kernels start with their tables made, whatever the first step is.
  for (const table of ["filter", "nat"] as const) await iptables.restore(`*${table}\n-S OUTPUT\nCOMMIT\n`);
  const outcomes: Outcome[] = [];
  await fakeCase.run(iptables, async (work) => {
    outcomes.push(await outcomeOf(work));
  });
  const tables: Record<string, unknown> = {};
  for (const table of ["filter", "nat"] as const) {
    tables[table] = normalTable(await iptables.save(table), table);
  }
  return { outcomes, tables };
}

/** Chain → rules in one shape, in the order of the text. */
function normalTable(text: string, table: string): [string, string, string[]][] {
  const chains = parseIptablesSave(text).get(table) ?? new Map();
  return [...chains].map(([name, chain]) => [name, chain.policy, chain.rules.map(canonicalRuleText)]);
}

Deno.test("program names follow family and variant", { permissions: "none" }, () => {
  assertEquals(iptablesPrograms("IPv4"), {
    command: "iptables",
    save: "iptables-save",
    restore: "iptables-restore",
  });
  assertEquals(iptablesPrograms("IPv6", "legacy").restore, "ip6tables-legacy-restore");
});
