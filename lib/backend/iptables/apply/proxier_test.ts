import { assert, assertEquals, assertRejects } from "@std/assert";
import { SyncError } from "../../../errors.ts";
import { nodePortAddresses } from "../../../model/node.ts";
import { parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import type { ServiceSizes } from "../../../../tests/support/fake_iptables_state.ts";
import { endState, freshEndState, iptablesRig as rig } from "../../../../tests/support/iptables_rig.ts";

Deno.test("a full sync reads once and writes with one process, canaries included", async () => {
  const { fake, sync } = await rig();
  const report = await sync({ "s1": 2, "s2-np": 1, "s3": 0 });
  assertEquals(fake.runs.map(({ argv }) => argv[0]), [
    "iptables-save",
    "iptables-restore",
    "iptables-restore",
  ]);
  assertEquals(report.commands, 3);
  const tables = parseIptablesSave(fake.saved("IPv4"));
  for (const table of ["mangle", "nat", "filter"]) assert(tables.get(table)?.has("KUBE-PROXY-CANARY"), table);
  assertEquals(tables.get("filter")?.get("KUBE-SERVICES")?.rules.length, 1);
  assertEquals(report.total["nat"], countRules(tables.get("nat")));
  assertEquals(report.total["filter"], countRules(tables.get("filter")));
  assertEquals(
    report.written["nat"],
    countRules(tables.get("nat")) + 3,
    "three jumps of nat are written, too",
  );

  fake.runs.length = 0;
  const again = await sync({ "s1": 2, "s2-np": 1, "s3": 0 });
  assertEquals(fake.runs.map(({ argv }) => argv[0]), ["iptables-save"], "nothing differs");
  assertEquals(again.written, { filter: 0, nat: 0 });
  assertEquals(again.total, report.total);
});

/** Rules in our chains of a table: without the jumps, which stand in the kernel's own. */
function countRules(
  table: ReadonlyMap<string, { policy: string; rules: readonly string[] }> | undefined,
): number {
  return [...table?.values() ?? []].filter(({ policy }) => policy === "-").flatMap(({ rules }) => rules)
    .length;
}

Deno.test("a change starts one process, no change none", async () => {
  const { fake, sync } = await rig();
  await sync({ s1: 2, s2: 1 });
  fake.runs.length = 0;
  assertEquals((await sync({ s1: 2, s2: 1 }, ["s1", "s2"])).commands, 0);
  assertEquals(fake.runs.length, 0);
  const report = await sync({ s1: 3, s2: 1 }, ["s1"]);
  assertEquals(fake.runs.map(({ argv }) => argv), [[
    "iptables-restore",
    "-w",
    "5",
    "--noflush",
    "--counters",
  ]]);
  assertEquals(report.bytes, fake.runs[0]?.stdin.length);
  assert(!fake.runs[0]?.stdin.includes("shop/s2"), "an unchanged Service is not mentioned");
  assertEquals(endState(fake), await freshEndState({ s1: 3, s2: 1 }));
});

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: events end in the rules of a fresh sync, however many applies fail between them`, async () => {
    const events: readonly (readonly [ServiceSizes, readonly string[]])[] = [
      [{ "s1": 2, "s2-np": 3 }, ["s1", "s2-np"]],
      [{ "s1": 2, "s2-np": 3, "s3": 0 }, ["s3"]],
      [{ "s1": 4, "s2-np": 3, "s3": 1 }, ["s1", "s3"]],
      [{ "s1": 4, "s3": 1 }, ["s2-np"]],
      [{ "s1": 0, "s3": 1, "s4-np": 2 }, ["s1", "s4-np"]],
      [{ "s3": 1, "s4-np": 1 }, ["s1", "s4-np"]],
    ];
    for (const failures of [0, 1, 3]) {
      for (const atBlock of [0, 1, 2]) {
        const { fake, sync } = await rig({ variant });
        await sync({});
        let failed = 0;
        for (const [sizes, changed] of events) {
          fake.failRestores(failures, atBlock);
          for (let attempt = 0; attempt < failures; attempt++) {
            await sync(sizes, attempt === 0 ? changed : undefined).catch((error) => {
              assert(error instanceof SyncError);
              failed++;
            });
          }
          await sync(sizes, changed);
          assertEquals(
            endState(fake, variant),
            await freshEndState(sizes, variant),
            `${failures} at ${atBlock}`,
          );
        }
      }
    }
  });
}

Deno.test("a change that does not fit what another process did is a full sync", async () => {
  const { fake, sync } = await rig();
  await sync({ s1: 2 });
  // The next change deletes a rule from this chain.
  await fake.run(["iptables", "-F", "KUBE-SERVICES", "-t", "nat"]);
  fake.runs.length = 0;
  await sync({}, ["s1"]);
  assertEquals(fake.runs.slice(0, 2).map(({ argv }) => argv[0]), ["iptables-restore", "iptables-save"]);
  assertEquals(endState(fake), await freshEndState({}));
});

Deno.test("tables that cannot be read fail the full sync", async () => {
  const fake = new FakeIptables({ missing: ["iptables-save"] });
  const { sync } = await rig({ fake });
  const error = await assertRejects(() => sync({ s1: 1 }), SyncError, "iptables-save");
  assertEquals(error.phase, "read");
});

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: the rules of another service proxy are taken over without a moment without the jump`, async () => {
    const before: Record<string, number> = {};
    for (let i = 0; i < 120; i++) before[`s${i}`] = 10;
    const { fake, sync } = await rig({ variant });
    await sync(before);
    // Every Service has another rule, and many come.
    const other = await rig({ fake, variant, settings: { masqueradeAll: true } });
    const after: Record<string, number> = { ...before, "s3": 4, "s200-np": 2 };
    for (let i = 300; i < 410; i++) after[`s${i}`] = 10;
    delete after["s5"];
    const problems: string[] = [];
    let commits = 0;
    fake.onCommit = (_, save) => {
      commits++;
      const nat = parseIptablesSave(save()).get("nat");
      for (const chain of ["PREROUTING", "OUTPUT"]) {
        const jumps = nat?.get(chain)?.rules.filter((rule) => rule.endsWith("-j KUBE-SERVICES")) ?? [];
        if (jumps.length !== 1) problems.push(`${commits}: ${chain} holds ${jumps.length} jumps`);
      }
      for (const name of ["s1", "s3", "s77"]) {
        const rule = nat?.get("KUBE-SERVICES")?.rules.find((text) =>
          text.includes(`shop/${name}:http cluster IP`)
        );
        const chain = rule?.split(" ").at(-1) ?? "";
        const picks = nat?.get(chain)?.rules.filter((text) => text.includes("-j KUBE-SEP-")) ?? [];
        if (picks.length === 0) problems.push(`${commits}: ${name} leads nowhere`);
        for (const pick of picks) {
          const endpoint = pick.split(" ").at(-1) ?? "";
          if (nat?.get(endpoint)?.rules.length !== 2) {
            problems.push(`${commits}: ${name} → ${endpoint} is empty`);
          }
        }
      }
    };
    await other.sync(after);
    fake.onCommit = undefined;
    assertEquals(problems, []);
    assert(variant === "legacy" || commits > 3, `staged: ${commits}`);
    const same = await rig({ fake, variant });
    await same.sync(after);
    assertEquals(endState(fake, variant), await freshEndState(after, variant));
  });
}

Deno.test("node ports move with the addresses of the node", async () => {
  const settings = { nodePortAddresses: nodePortAddresses("IPv4", ["192.0.2.0/24"]) };
  let interfaceIps = ["127.0.0.1", "192.0.2.10"];
  const { fake, proxier, sync } = await rig({ settings, interfaceIps: () => interfaceIps });
  const tail = () =>
    parseIptablesSave(fake.saved("IPv4")).get("nat")?.get("KUBE-SERVICES")?.rules
      .filter((rule) => rule.endsWith("-j KUBE-NODEPORTS")).map((rule) => /-d (\S+)/.exec(rule)?.[1]);
  await sync({ "s1-np": 1 });
  assertEquals([tail(), proxier.isOutdated()], [["192.0.2.10"], false]);
  interfaceIps = ["192.0.2.11", "192.0.2.10"];
  assertEquals(proxier.isOutdated(), true);
  await sync({ "s1-np": 1 }, []);
  assertEquals([tail(), proxier.isOutdated()], [["192.0.2.10", "192.0.2.11"], false]);
});
