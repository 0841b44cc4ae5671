/** Stale chains are deleted, also where a program or others keep them for a while. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { type Logger, silentLogger } from "../../../observe/log.ts";
import type { ServiceSizes } from "../../../../tests/support/fake_iptables_state.ts";
import {
  chainOf,
  endState,
  freshEndState,
  iptablesRig as rig,
} from "../../../../tests/support/iptables_rig.ts";

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: chains that a program did not delete, and said that all is well, go with a look at everything`, async () => {
    const told: string[] = [];
    const logger: Logger = { ...silentLogger, info: (message) => void told.push(message) };
    const { fake, proxier, sync } = await rig({ variant, logger });
    await sync({ "s1": 3, "s2": 2 });
    assertEquals(await proxier.findDamage(), false);
    fake.failRestores(1, 0, 0, "");
    await sync({ "s1": 1 }, ["s1", "s2"]);
    assert(await proxier.findDamage());
    await sync({ "s1": 1 });
    assertEquals(endState(fake, variant), await freshEndState({ "s1": 1 }, variant));
    assertEquals(told.filter((line) => line.includes("are still there")).length, 1);

    // Where nothing else is wrong, too, and no more often than a deletion that fails is tried.
    await fake.run([`iptables-${variant}`, "-t", "nat", "-N", "KUBE-SEP-AAAAAAAAAAAAAAAA"]);
    assertEquals(await proxier.findDamage(), false);
    assertEquals(endState(fake, variant), await freshEndState({ "s1": 1 }, variant));
    fake.runs.length = 0;
    assertEquals(await proxier.findDamage(), false);
    assertEquals(fake.runs.length, 1);
  });
}

for (const variant of ["nft", "legacy"] as const) {
  for (const full of [false, true]) {
    const way = full ? "a full sync" : "a change";
    Deno.test(`${variant}: a Service's chain that others jump to does not keep ${way} out, and goes when they are gone`, async () => {
      const told: string[] = [];
      let nowMs = 0;
      const logger: Logger = {
        ...silentLogger,
        warn: (message, values) => told.push(`${message} ${values?.["chains"]}`),
      };
      const { fake, proxier, sync } = await rig({ variant, logger, nowMs: () => nowMs });
      const run = async (...args: readonly string[]) => {
        const { code, stderr } = await fake.run([`iptables-${variant}`, "-t", "nat", ...args]);
        assertEquals(code, 0, stderr);
      };
      await sync({ "s1": 2, "s2": 1, "s3": 1, "s4": 1 });
      const stuck = ["s1", "s3"].map((name) => chainOf(fake, `${name}:http cluster IP`, variant));
      await run("-N", "OTHER");
      for (const chain of stuck) await run("-A", "OTHER", "-j", chain);
      const left = async (sizes: ServiceSizes, chains: readonly string[]) => {
        const other = await rig({ variant });
        await other.sync(sizes);
        for (const chain of chains) await other.fake.run([`iptables-${variant}`, "-t", "nat", "-N", chain]);
        return (endState(other.fake, variant)).toSorted();
      };
      const found = () => (endState(fake, variant)).filter((line) => !line.includes("OTHER")).toSorted();

      // Two of three chains that go are used by others, in the same sync in which s2 changes and s5 comes.
      const sizes = { "s2": 3, "s5-np": 1 };
      const report = await sync(sizes, full ? undefined : ["s1", "s2", "s3", "s4", "s5-np"]);
      assertEquals(report.failedDeletions, 2);
      assertEquals(found(), await left(sizes, stuck));
      assertEquals(told.length, 1);
      for (const chain of stuck) assertStringIncludes(told[0]!, chain);

      // It costs nothing until the next try, which is not logged.
      fake.runs.length = 0;
      assertEquals((await sync({ "s2": 2, "s5-np": 1 }, ["s2"])).failedDeletions, undefined);
      assertEquals(fake.runs.length, 1);
      assertEquals(await proxier.findDamage(), false);
      nowMs += 10_000;
      assertEquals(await proxier.findDamage(), false);
      assertEquals((await sync({ "s2": 1, "s5-np": 1 }, ["s2"])).failedDeletions, 2);
      nowMs += 10_000;
      assertEquals((await sync({ "s2": 1, "s5-np": 1 }, ["s2"])).failedDeletions, 2);
      assertEquals(told.length, 1);

      // One of them is needed again; the other goes once it is unused, without any change.
      const again = { "s1": 1, "s2": 1, "s5-np": 1 };
      await sync(again, ["s1"]);
      await run("-F", "OTHER");
      nowMs += 10_000;
      assertEquals(await proxier.findDamage(), false);
      assertEquals(found(), await left(again, []));
      assertEquals((await sync(again, [])).failedDeletions, undefined);
      assertEquals(found(), await left(again, []));
      assertEquals(await proxier.findDamage(), false);
    });
  }
}

Deno.test("deletions that fail for another reason, or with a program that does not say why, are tried again", async () => {
  let nowMs = 0;
  const { fake, sync } = await rig({ nowMs: () => nowMs });
  await sync({ "s1": 1, "s2": 1 });
  const chain = chainOf(fake, "s1:http cluster IP", "nft");
  await fake.run(["iptables", "-t", "nat", "-N", "OTHER"]);
  await fake.run(["iptables", "-t", "nat", "-A", "OTHER", "-j", chain]);
  assertEquals((await sync({ "s2": 1 }, ["s1"])).failedDeletions, 1);
  nowMs += 60_000;
  fake.holdLock(1000);
  assertEquals((await sync({ "s2": 1 }, [])).failedDeletions, 1);
  fake.holdLock(0);
  nowMs += 60_000;
  await fake.run(["iptables", "-t", "nat", "-F", "OTHER"]);
  assertEquals((await sync({ "s2": 1 }, [])).failedDeletions, undefined);
  assert(!fake.saved("IPv4", "nat").includes(chain));
});
