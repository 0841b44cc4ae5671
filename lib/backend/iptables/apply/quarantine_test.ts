/** A Service that iptables or the kernel refuses keeps its former rules, and no other Service notices. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { SyncError } from "../../../errors.ts";
import type { IptablesVariant } from "../../../kernel/iptables.ts";
import { parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import { defaultSettings, type ServiceSizes } from "../../../../tests/support/fake_iptables_state.ts";
import { chainOf, iptablesProxier, syncRequest } from "../../../../tests/support/iptables_rig.ts";

async function rig(variant: IptablesVariant, fake = new FakeIptables()) {
  const clock = { nowMs: 0 };
  const proxier = await iptablesProxier(fake, { variant, nowMs: () => clock.nowMs });
  return {
    fake,
    clock,
    proxier,
    restart: () => rig(variant, fake),
    sync: (sizes: ServiceSizes, changed?: readonly string[]) =>
      proxier.sync(syncRequest("IPv4", sizes, changed)),
    /** Chains with their rules, the shared ones sorted, because their order is that of the changes. */
    found: (): Map<string, readonly string[]> => {
      const chains = new Map<string, readonly string[]>();
      for (const [table, saved] of parseIptablesSave(fake.saved("IPv4", undefined, variant))) {
        for (const [name, { rules }] of saved) {
          const isShared = /^KUBE-(SERVICES|NODEPORTS|EXTERNAL)/.test(name);
          chains.set(`${table} ${name}`, isShared ? rules.toSorted() : rules);
        }
      }
      return new Map([...chains].sort());
    },
  };
}

async function fresh(variant: IptablesVariant, sizes: ServiceSizes): Promise<Map<string, readonly string[]>> {
  const other = await rig(variant);
  await other.sync(sizes);
  return other.found();
}

/** Place of an endpoint in `stateOf`: those of s5 begin at 10.128.0.81. */
const FOURTH_OF_S5 = "10.128.0.84";

const WAYS = [["nft", "kernel"], ["nft", "program"], ["legacy", "kernel"], ["legacy", "program"]] as const;
for (const [variant, by] of WAYS) {
  const title = `${variant}, refused by the ${by}`;
  const refuse = (fake: FakeIptables, ...words: readonly string[]): void => {
    fake.refuse = (line) =>
      words.some((word) => line.includes(word)) ? { by, problem: "Invalid argument" } : undefined;
  };

  Deno.test(`${title}: at a start all but the refused Services are served, in one sync`, async () => {
    const { fake, sync, found } = await rig(variant);
    const sizes = Object.fromEntries(Array.from({ length: 150 }, (_, i) => [`s${i}`, i % 3]));
    // An address that is matched and one that is translated to.
    refuse(fake, "-d 10.96.0.17 ", "--to-destination 10.128.1.241:");
    const report = await sync(sizes);
    assertEquals(report.quarantined?.map(({ service }) => service), ["shop/s17", "shop/s31"]);
    for (const { problem } of report.quarantined ?? []) {
      assertStringIncludes(problem, by === "kernel" && variant === "legacy" ? "failed" : "Invalid argument");
      assert(!/line \d/.test(problem), problem);
    }
    const { s17: _s17, s31: _s31, ...others } = sizes;
    fake.refuse = () => undefined;
    assertEquals(found(), await fresh(variant, others));
  });

  Deno.test(`${title}: a change of many goes in without it, which keeps what it had`, async () => {
    const { fake, clock, proxier, sync, found } = await rig(variant);
    const before = { "s5": 3, "s6-np": 2, "s7": 1 };
    await sync(before);
    refuse(fake, FOURTH_OF_S5);
    const report = await sync({ "s5": 4, "s6-np": 1, "s8": 0 }, ["s5", "s6-np", "s7", "s8"]);
    assertEquals(report.quarantined?.map(({ service }) => service), ["shop/s5"]);
    const reached = { "s5": 3, "s6-np": 1, "s8": 0 };
    assertEquals(found(), await fresh(variant, reached));
    assertEquals(await proxier.findDamage(), false);

    // Now that it is known, changes of others cost what they always do.
    fake.runs.length = 0;
    await sync({ "s5": 4, "s6-np": 2, "s8": 0 }, ["s6-np"]);
    assertEquals(fake.runs.length, 1);
    // It is tried when it changes, alone.
    assertEquals((await sync({ "s5": 5, "s6-np": 2, "s8": 0 }, ["s5"])).quarantined?.length, 1);
    assertEquals(found(), await fresh(variant, { ...reached, "s6-np": 2 }));
    // And after a minute, when the kernel may take it.
    fake.refuse = () => undefined;
    const last = { "s5": 5, "s6-np": 2, "s8": 1 };
    assertEquals((await sync(last, ["s8"])).quarantined?.length, 1);
    clock.nowMs += 60_000;
    assertEquals((await sync(last, [])).quarantined, []);
    assertEquals(found(), await fresh(variant, last));
  });

  Deno.test(`${title}: a refused Service keeps what it had when the settings change`, async () => {
    const { fake, proxier, sync, found } = await rig(variant);
    await sync({ "s5": 3 });
    refuse(fake, FOURTH_OF_S5);
    await sync({ "s5": 4 }, ["s5"]);
    assertEquals(proxier.configure({ ...defaultSettings("IPv4"), masqueradeAll: true }), true);
    // Everything is written, whatever is asked for.
    assertEquals((await sync({ "s5": 4, "s6": 1 }, [])).quarantined?.length, 1);
    const translated = [...found().values()].flat().filter((rule) => rule.includes("--to-destination"));
    const addresses = translated.map((rule) => /10\.128\.\d+\.\d+/.exec(rule)?.[0]);
    assertEquals(addresses.toSorted(), ["10.128.0.81", "10.128.0.82", "10.128.0.83", "10.128.0.97"]);
  });

  Deno.test(`${title}: an emptied chain of what a refused Service keeps is seen`, async () => {
    const { fake, proxier, sync } = await rig(variant);
    await sync({ "s5": 3, "s6": 1 });
    refuse(fake, FOURTH_OF_S5);
    await sync({ "s5": 4, "s6": 1 }, ["s5"]);
    assertEquals(await proxier.findDamage(), false);
    const chain = chainOf(fake, "shop/s5:http cluster IP", variant);
    await fake.run([`iptables-${variant}`, "-t", "nat", "-F", chain]);
    assertEquals(await proxier.findDamage(), [`nat ${chain}`]);
  });

  Deno.test(`${title}: a refused Service may go`, async () => {
    const { fake, sync, found } = await rig(variant);
    await sync({ "s5": 3, "s6": 1 });
    refuse(fake, FOURTH_OF_S5);
    assertEquals((await sync({ "s5": 4, "s6": 1 }, ["s5"])).quarantined?.length, 1);
    assertEquals((await sync({ "s6": 1 }, ["s5"])).quarantined, []);
    assertEquals(found(), await fresh(variant, { "s6": 1 }));
  });
}

Deno.test("no Service is quarantined for what is not its fault", async (t) => {
  for (const variant of ["nft", "legacy"] as const) {
    for (
      const [name, code, stderr] of [
        ["no memory", 1, "iptables-restore: line 9 failed: Cannot allocate memory\n"],
        ["no rights", 4, "iptables-restore: Permission denied (you must be root)\n"],
        ["no memory, in other words", 1, "iptables-restore: Memory allocation problem.\n"],
        ["no space", 4, "line 9: RULE_APPEND failed (No space left on device): rule in chain X\n"],
        [
          "no file for the lock",
          4,
          "Fatal: can't open lock file /run/xtables.lock: No such file or directory\n",
        ],
        [
          "a table that cannot be read",
          3,
          "iptables-restore v1.8.9 (nf_tables): Parsing nftables rule failed\n",
        ],
        ["killed", 137, ""],
        ["once refused and then taken", 1, "iptables-restore: line 9 failed\n"],
      ] as const
    ) {
      await t.step(`${variant}: ${name}`, async () => {
        const { fake, sync, found } = await rig(variant);
        const sizes = { "s5": 3, "s6": 1 };
        fake.failRestores(1, 1, code, stderr);
        if (code === 1 && !/memory/i.test(stderr)) await sync(sizes);
        else await assertRejects(() => sync(sizes), SyncError);
        assertEquals((await sync(sizes)).quarantined, []);
        assertEquals(found(), await fresh(variant, sizes));
      });
    }
  }
});

const ALL_NEED = ["-A KUBE-MARK-MASQ ", "-A KUBE-POSTROUTING ", "-j KUBE-MARK-MASQ", "-j DNAT "];

Deno.test("what all of them need is refused: that is a failure of the sync, and costs nobody anything", async (t) => {
  for (
    const [variant, by, count] of [
      ...WAYS.map(([variant, by]) => [variant, by, 6] as const),
      // So many go in by stages.
      ["nft", "kernel", 50] as const,
    ]
  ) {
    for (const needed of ALL_NEED) {
      await t.step(`${variant}, ${count} Services, by the ${by}: ${needed}`, async () => {
        const sizes = Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, 6 + i % 3]));
        // Has no endpoints, so it needs only a rule of table filter.
        const all = { ...sizes, "s200": 0 };
        const { fake, sync, found, restart } = await rig(variant);
        await sync(all);
        const before = found();
        fake.refuse = (line) => line.includes(needed) ? { by, problem: "No such file" } : undefined;
        // A new process of the proxy knows nothing of what the kernel holds.
        const next = await restart();
        // Nothing differs, so nothing is written.
        assertEquals((await next.sync(all)).quarantined, []);
        assertEquals(found(), before);
        const others = { ...Object.fromEntries(Object.keys(sizes).map((name) => [name, 10])), "s200": 0 };
        if (needed.startsWith("-j")) await assertRejects(() => next.sync(others), SyncError);
        assertEquals(found(), before);
        // No chains are left for their rules, and no Service may lose its rules in table filter.
        await fake.run([`iptables-${variant}-restore`], { stdin: "*nat\nCOMMIT\n" });
        await assertRejects(() => next.sync(all), SyncError);
        assertEquals(filterOf(found()), filterOf(before));
        fake.refuse = () => undefined;
        assertEquals((await next.sync(all)).quarantined, []);
        assertEquals(found(), before);
      });
    }
  }
});

Deno.test("one that is alone is quarantined even if all of its rules are refused", async () => {
  const { fake, sync } = await rig("nft");
  fake.refuse = (line) => line.includes("-j DNAT ") ? { by: "kernel", problem: "Invalid" } : undefined;
  assertEquals((await sync({ "s5": 1 })).quarantined?.map(({ service }) => service), ["shop/s5"]);
});

function filterOf(
  chains: ReadonlyMap<string, readonly string[]>,
): readonly (readonly [string, readonly string[]])[] {
  return [...chains].filter(([name]) => name.startsWith("filter "));
}
