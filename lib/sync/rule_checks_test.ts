import { assertEquals } from "@std/assert";
import type { Damage } from "../backend/backend.ts";
import type { Logger } from "../observe/log.ts";
import { RuleChecks } from "./family_runner.ts";

const DAMAGE: Damage = ["nat KUBE-SVC-WEB"];
const EVERYTHING: Damage = [];

/** Checks of rules that are damaged while `damaged()` says so. */
function rig(damaged: () => false | null | Damage) {
  const repairs: "all"[] = [];
  const told: string[] = [];
  const drift: string[] = [];
  let looks = 0;
  const log: Logger = {
    enabled: () => true,
    info: (message) => void told.push(`I ${message}`),
    warn: (message) => void told.push(`W ${message.split(",")[0]}`),
    error: (message) => void told.push(`E ${message.split(";")[0]}`),
  };
  const checks = new RuleChecks({
    family: "IPv4",
    check: () => {
      looks++;
      return Promise.resolve().then(damaged);
    },
    repair: () => void repairs.push("all"),
    log,
    observer: {
      found: (family, damaged) => void drift.push(`${family} ${damaged.join()}`),
      repaired: (family, lasts) => void drift.push(`${family} ${lasts ? "lasts" : "repaired"}`),
    },
  });
  return {
    checks,
    drift,
    repairs,
    told,
    looks: () => looks,
    /** A period, and the sync that it asks for. */
    async period(): Promise<void> {
      const before = repairs.length;
      await checks.periodic();
      if (repairs.length === before) return;
      checks.syncBegins();
      await checks.synced();
    },
  };
}

const WRITTEN = "W Rules were changed or removed by something else";
const UNHELPED = "E Rules differ from what was written right after they were written";

Deno.test("whoever keeps the record of damage hears of each, and whether its repair helped", async () => {
  let damage: false | Damage = false;
  const { checks, drift, period } = rig(() => damage);
  await period();
  assertEquals(drift, []);
  damage = DAMAGE;
  await checks.periodic();
  assertEquals(drift, ["IPv4 nat KUBE-SVC-WEB"]);
  damage = false;
  checks.syncBegins();
  await checks.synced();
  damage = DAMAGE;
  await period();
  assertEquals(drift.slice(1), ["IPv4 repaired", "IPv4 nat KUBE-SVC-WEB", "IPv4 lasts"]);
});

Deno.test("damage is repaired, looked at again at once, and repaired each time it comes", async () => {
  let damage: false | Damage = false;
  const { checks, repairs, told, looks, period } = rig(() => damage);
  await period();
  assertEquals([repairs, looks()], [[], 1]);
  for (const once of [DAMAGE, EVERYTHING]) {
    damage = once;
    await checks.periodic();
    damage = false;
    checks.syncBegins();
    await checks.synced();
  }
  assertEquals(repairs, ["all", "all"]);
  assertEquals(told, [WRITTEN, WRITTEN]);
  assertEquals(looks(), 5);
});

Deno.test("a repair that does not help is reported once and made ever more rarely", async () => {
  let damage: false | Damage = DAMAGE;
  const { repairs, told, period } = rig(() => damage);
  const periods: number[] = [];
  for (let i = 0; i < 70; i++) {
    const before = repairs.length;
    await period();
    if (repairs.length > before) periods.push(i);
  }
  assertEquals(periods, [0, 1, 3, 7, 15, 31, 63]);
  assertEquals(repairs.length, 7);
  assertEquals(told, [WRITTEN, UNHELPED]);
  damage = false;
  for (let i = 0; i < 64; i++) await period();
  assertEquals(told.splice(0), [WRITTEN, UNHELPED, "I Rules stay as they were written again"]);
  damage = DAMAGE;
  await period();
  assertEquals(told, [WRITTEN, UNHELPED]);
});

Deno.test("a check that cannot tell is no sign that a repair helped", async () => {
  let damage: false | null | Damage = DAMAGE;
  const { told, looks, period } = rig(() => damage);
  for (let i = 0; i < 4; i++) await period();
  damage = null;
  for (let i = 0; i < 20; i++) await period();
  assertEquals([told.splice(0), looks() > 10], [[WRITTEN, UNHELPED], true]);
  damage = DAMAGE;
  for (let i = 0; i < 4; i++) await period();
  assertEquals(told, []);
  damage = false;
  for (let i = 0; i < 20; i++) await period();
  assertEquals(told, ["I Rules stay as they were written again"]);
});

Deno.test("other damage that comes right after a repair is no repair that did not help", async () => {
  let damage: false | Damage = DAMAGE;
  const { checks, repairs, told, period } = rig(() => damage);
  await checks.periodic();
  damage = ["nat KUBE-SERVICES", "nat OUTPUT"];
  checks.syncBegins();
  await checks.synced();
  assertEquals(told, [WRITTEN]);
  // It has its own turn, and some of it stays.
  await checks.periodic();
  damage = ["nat OUTPUT"];
  checks.syncBegins();
  await checks.synced();
  assertEquals(told, [WRITTEN, WRITTEN, UNHELPED]);
  damage = false;
  await period();
  assertEquals(repairs, ["all", "all"]);
});

Deno.test("an hour is the longest wait", async () => {
  const { repairs, period } = rig(() => EVERYTHING);
  for (let i = 0; i < 1000; i++) await period();
  const before = repairs.length;
  for (let i = 0; i < 121; i++) await period();
  assertEquals(repairs.length - before, 1);
});

Deno.test("a sync that began before the repair was asked for says nothing about it", async () => {
  let damage: false | Damage = DAMAGE;
  const { checks, told, looks } = rig(() => damage);
  checks.syncBegins();
  await checks.periodic();
  await checks.synced();
  assertEquals([told, looks()], [[WRITTEN], 1]);
  // Until the repair is done nothing is looked at: the sync may fail several times.
  await checks.periodic();
  checks.syncBegins();
  checks.syncBegins();
  assertEquals(looks(), 1);
  damage = false;
  await checks.synced();
  assertEquals([told, looks()], [[WRITTEN], 2]);
});

Deno.test("a check that fails is reported once, and one that hangs is not started twice", async () => {
  let answer = (): false => {
    throw new Error("iptables is missing");
  };
  const { told, looks, period } = rig(() => answer());
  await period();
  await period();
  assertEquals(told.splice(0), ["E Cannot check whether the rules are still there"]);
  answer = () => false;
  await period();
  answer = () => {
    throw new Error("iptables is missing");
  };
  await period();
  assertEquals([told.length, looks()], [1, 4]);
  let hangs = 0;
  const hanging = new RuleChecks({
    family: "IPv4",
    check: () => {
      hangs++;
      return new Promise(() => {});
    },
    repair: () => {},
    log: { enabled: () => true, info: () => {}, warn: () => {}, error: () => {} },
  });
  void hanging.periodic();
  void hanging.periodic();
  await Promise.resolve();
  assertEquals(hangs, 1);
});

Deno.test("what fails because of the end is no problem", async () => {
  const { checks, told, looks } = rig(() => {
    throw new DOMException("ending", "AbortError");
  });
  const looking = checks.periodic();
  checks.end();
  await looking;
  await checks.periodic();
  assertEquals([told, looks()], [[], 1]);
});
