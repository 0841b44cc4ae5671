import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { ExecError, SyncError } from "../../../errors.ts";
import type { ExecOptions, ExecResult } from "../../../kernel/exec.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import { probeIptables } from "../../../kernel/iptables_variant.ts";
import type { IptablesVariant } from "../../../kernel/iptables_version.ts";
import { nodePortAddresses } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Logger } from "../../../observe/log.ts";
import { canonicalRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import { parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import {
  defaultSettings,
  type ServiceSizes,
  stateOf,
} from "../../../../tests/support/fake_iptables_state.ts";
import type { CheckLimits } from "../diff/observe_turns.ts";
import { IptablesProxier, type IptablesSettings } from "./apply.ts";

const SILENT: Logger = { enabled: () => false, info: () => {}, warn: () => {}, error: () => {} };

interface Rig {
  readonly fake: FakeIptables;
  readonly proxier: IptablesProxier;
  /** Sync the Services named (all without names). */
  sync(sizes: ServiceSizes, changed?: readonly string[]): ReturnType<IptablesProxier["sync"]>;
}

/** An iptables whose iptables-save does not end once it was told so. */
class SlowSave extends FakeIptables {
  #hold: { readonly told: () => void; readonly goOn: Promise<void> } | undefined;
  #goOn: () => void = () => {};

  /** The next save waits; resolves when it does. */
  held(): Promise<void> {
    const goOn = new Promise<void>((resolve) => this.#goOn = resolve);
    return new Promise((resolve) => this.#hold = { told: resolve, goOn });
  }

  goOn(): void {
    this.#goOn();
  }

  override async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const hold = this.#hold;
    if (hold !== undefined && argv[0]?.endsWith("-save")) {
      this.#hold = undefined;
      const ended = new Promise((_, reject) => {
        options.signal?.addEventListener("abort", () => reject(options.signal?.reason));
      });
      hold.told();
      await Promise.race([hold.goOn, ended]);
    }
    return await super.run(argv, options);
  }
}

async function rig(
  options: {
    fake?: FakeIptables;
    family?: IpFamily;
    variant?: IptablesVariant;
    settings?: Partial<IptablesSettings>;
    interfaceIps?: () => readonly string[];
    checkLimits?: CheckLimits;
    nowMs?: () => number;
    logger?: Logger;
  } = {},
): Promise<Rig> {
  const { fake = new FakeIptables(), family = "IPv4", variant = "nft" } = options;
  const clock = { nowMs: () => 0, sleep: () => Promise.resolve() };
  const found = await probeIptables(fake, family, variant);
  const iptables = new Iptables(fake, { ...found, clock, random: () => 0.5, lockDeadlineMs: 50 });
  const proxier = new IptablesProxier({
    iptables,
    settings: { ...defaultSettings(family), ...options.settings },
    interfaceIps: options.interfaceIps ?? (() => []),
    logger: options.logger ?? SILENT,
    nowMs: options.nowMs ?? (() => 0),
    ...(options.checkLimits === undefined ? {} : { checkLimits: options.checkLimits }),
  });
  fake.runs.length = 0;
  return {
    fake,
    proxier,
    sync: (sizes, changed) =>
      proxier.sync({
        state: stateOf(family, sizes),
        changed: changed === undefined ? "all" : new Set(changed.map((name) => `shop/${name}`)),
      }),
  };
}

/** Chains and rules, free of the order of the shared chains (which depends on history, and means nothing). */
function endState(fake: FakeIptables, variant: IptablesVariant = "nft", family: IpFamily = "IPv4"): unknown {
  const lines: string[] = [];
  for (const [table, chains] of parseIptablesSave(fake.saved(family, undefined, variant))) {
    for (const [name, { rules }] of chains) {
      lines.push(`${table} ${name}`);
      const texts = rules.map((rule) => `${table} ${name} ${canonicalRuleText(rule)}`);
      const tail = name === "KUBE-SERVICES" && table === "nat" ? texts.splice(-1) : [];
      lines.push(...(/^KUBE-(SERVICES|NODEPORTS|EXTERNAL)/.test(name) ? texts.sort() : texts), ...tail);
    }
  }
  return lines;
}

async function freshEndState(sizes: ServiceSizes, variant: IptablesVariant = "nft"): Promise<unknown> {
  const other = await rig({ variant });
  await other.sync(sizes);
  return endState(other.fake, variant);
}

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
  assertEquals(fake.runs.map(({ argv }) => argv[0]), ["iptables-save", "iptables-restore"]);
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

Deno.test("a refused restore is told with the lines around it, and the next sync reads the tables again", async () => {
  const { fake, sync } = await rig();
  await sync({ s1: 2 });
  // Somebody empties the chain that the next change deletes from.
  await fake.run(["iptables", "-F", "KUBE-SERVICES", "-t", "nat"]);
  const error = await assertRejects(() => sync({}, ["s1"]), SyncError, "IPv4: Command");
  assert(error.cause instanceof ExecError);
  assertEquals([error.mode, error.phase, error.retryable], ["iptables", "apply", true]);
  assertStringIncludes(error.message, "> ");
  fake.runs.length = 0;
  await sync({}, []);
  assertEquals(fake.runs[0]?.argv[0], "iptables-save");
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
    const other = await rig({ fake, variant });
    const after = { ...before, "s3": 4, "s200-np": 2 };
    delete (after as Record<string, number>)["s5"];
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
    assertEquals(endState(fake, variant), await freshEndState(after, variant));
  });
}

Deno.test("node ports move with the addresses of the node", async () => {
  const settings = { nodePortAddresses: nodePortAddresses("IPv4", ["192.0.2.0/24"]) };
  let interfaceIps = ["127.0.0.1", "192.0.2.10"];
  const { fake, sync } = await rig({ settings, interfaceIps: () => interfaceIps });
  const tail = () =>
    parseIptablesSave(fake.saved("IPv4")).get("nat")?.get("KUBE-SERVICES")?.rules
      .filter((rule) => rule.endsWith("-j KUBE-NODEPORTS")).map((rule) => /-d (\S+)/.exec(rule)?.[1]);
  await sync({ "s1-np": 1 });
  assertEquals(tail(), ["192.0.2.10"]);
  interfaceIps = ["192.0.2.11", "192.0.2.10"];
  await sync({ "s1-np": 1 }, []);
  assertEquals(tail(), ["192.0.2.10", "192.0.2.11"]);
});

/** A chain of the fake, found by what a rule that leads to it says. */
function chainOf(fake: FakeIptables, words: string, variant: IptablesVariant): string {
  const line = fake.saved("IPv4", "nat", variant).split("\n").find((line) => line.includes(words));
  return line?.split(" ").at(-1) ?? `nothing leads to ${words}`;
}

type Commands = (chain: (words: string) => string) => readonly (readonly string[])[];
/** What somebody does, and which Services a sync must write again: all, those named, or none because it is no damage. */
const DAMAGES: readonly (readonly [name: string, commands: Commands, repair: "all" | string[] | null])[] = [
  ["nothing", () => [], null],
  ["a foreign rule comes", () => [["-A", "FORWARD", "-t", "filter", "-j", "ACCEPT"]], null],
  [
    "a foreign chain comes",
    () => [["-N", "CNI", "-t", "nat"], ["-I", "OUTPUT", "-t", "nat", "-j", "CNI"]],
    null,
  ],
  ["the canary of mangle", () => [["-X", "KUBE-PROXY-CANARY", "-t", "mangle"]], "all"],
  ["the canary of nat", () => [["-X", "KUBE-PROXY-CANARY", "-t", "nat"]], "all"],
  ["the canary of filter", () => [["-X", "KUBE-PROXY-CANARY", "-t", "filter"]], "all"],
  ["the rules of PREROUTING", () => [["-F", "PREROUTING", "-t", "nat"]], "all"],
  ["the rules of FORWARD", () => [["-F", "FORWARD", "-t", "filter"]], "all"],
  ["the rules of KUBE-FORWARD", () => [["-F", "KUBE-FORWARD", "-t", "filter"]], "all"],
  ["one rule of KUBE-POSTROUTING", () => [["-D", "KUBE-POSTROUTING", "1", "-t", "nat"]], "all"],
  ["kubelet's own rule in KUBE-MARK-MASQ", () => [
    ["-A", "KUBE-MARK-MASQ", "-t", "nat", "-j", "MARK", "--or-mark", "0x8000"],
  ], null],
  [
    "the rule of KUBE-FIREWALL, which kubelet may have, too",
    () => [["-F", "KUBE-FIREWALL", "-t", "filter"]],
    "all",
  ],
  ["the jump to KUBE-FIREWALL", () => [["-D", "INPUT", "-t", "filter", "-j", "KUBE-FIREWALL"]], "all"],
  ["kubelet's own rule in KUBE-FIREWALL", () => [
    ["-A", "KUBE-FIREWALL", "-t", "filter", "-m", "mark", "--mark", "0x8000/0x8000", "-j", "DROP"],
  ], null],
  ["the rules of KUBE-SERVICES", () => [["-F", "KUBE-SERVICES", "-t", "nat"]], []],
  ["one rule of KUBE-SERVICES", () => [["-D", "KUBE-SERVICES", "1", "-t", "nat"]], []],
  ["one rule more in KUBE-SERVICES", () => [["-I", "KUBE-SERVICES", "-t", "nat", "-j", "RETURN"]], []],
  ["the rules of KUBE-NODEPORTS", () => [["-F", "KUBE-NODEPORTS", "-t", "nat"]], []],
  ["the rejections", () => [["-F", "KUBE-SERVICES", "-t", "filter"]], []],
  ["the rules of a Service", (chain) => [["-F", chain("s1:http cluster IP"), "-t", "nat"]], ["s1"]],
  ["one rule of a Service", (chain) => [["-D", chain("s1:http cluster IP"), "2", "-t", "nat"]], ["s1"]],
  ["the rules of an endpoint", (chain) => [["-F", chain("s2-np:http -> "), "-t", "nat"]], ["s2-np"]],
  ["another rule in place of an endpoint's", (chain) => [
    [
      "-R",
      chain("s1:http -> "),
      "2",
      "-t",
      "nat",
      "-p",
      "tcp",
      "-j",
      "DNAT",
      "--to-destination",
      "10.9.9.9:1",
    ],
  ], ["s1"]],
  ["a Service's chain itself", (chain) => [
    ["-F", "KUBE-SERVICES", "-t", "nat"],
    ["-F", chain("s1:http cluster IP"), "-t", "nat"],
    ["-X", chain("s1:http cluster IP"), "-t", "nat"],
  ], ["s1"]],
];

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: a look notices what others did, and no more than that is written again`, async (t) => {
    const sizes = { "s1": 2, "s2-np": 1, "s3": 0 };
    const wanted = await freshEndState(sizes, variant);
    for (const [name, commands, repair] of DAMAGES) {
      await t.step(name, async () => {
        const { fake, proxier, sync } = await rig({ variant });
        await sync(sizes);
        assertEquals(await proxier.checkCanary(), false);
        const all = commands((words) => chainOf(fake, words, variant));
        for (const args of all) {
          const { code, stderr } = await fake.run([`iptables-${variant}`, ...args]);
          assertEquals(code, 0, stderr);
        }
        fake.runs.length = 0;
        const damage = await proxier.checkCanary();
        assert(fake.runs.length <= 2, "a look is one program, two if a chain is not there");
        if (repair === null) {
          assertEquals(damage, false);
          return;
        }
        assert(damage, "no damage found");
        assert(damage.found.length > 0);
        const names = damage.services === "all"
          ? undefined
          : [...damage.services].map((name) => name.slice(5));
        assertEquals(names ?? "all", repair);
        await sync(sizes, names);
        assertEquals(await proxier.checkCanary(), false);
        // KUBE-FIREWALL and KUBE-MARK-MASQ are not ours alone.
        assertEquals(endState(fake, variant), wanted);
      });
    }
  });
}

Deno.test("of a Service that nobody has seen whole since it was written, every chain is written again", async () => {
  const { fake, proxier, sync } = await rig();
  await sync({ "s1": 2 });
  const [service, endpoint] = ["s1:http cluster IP", "s1:http -> "].map((words) =>
    chainOf(fake, words, "nft")
  );
  await fake.run(["iptables", "-t", "nat", "-D", service!, "2"]);
  // As many rules as it should have.
  const other = ["-p", "tcp", "-j", "DNAT", "--to-destination", "10.9.9.9:1"];
  await fake.run(["iptables", "-t", "nat", "-R", endpoint!, "2", ...other]);
  assert(await proxier.checkCanary());
  await sync({ "s1": 2 }, ["s1"]);
  assertEquals(await proxier.checkCanary(), false);
  assertEquals(endState(fake), await freshEndState({ "s1": 2 }));
});

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: chains that a program did not delete, and said that all is well, go with a look at everything`, async () => {
    const told: string[] = [];
    const logger: Logger = { ...SILENT, info: (message) => void told.push(message) };
    const { fake, proxier, sync } = await rig({ variant, logger });
    await sync({ "s1": 3, "s2": 2 });
    assertEquals(await proxier.checkCanary(), false);
    fake.failRestores(1, 0, 0, "");
    await sync({ "s1": 1 }, ["s1", "s2"]);
    assert(await proxier.checkCanary());
    await sync({ "s1": 1 }, ["s1"]);
    assertEquals(endState(fake, variant), await freshEndState({ "s1": 1 }, variant));
    assertEquals(told.filter((line) => line.includes("are still there")).length, 1);

    // Where nothing else is wrong, too, and no more often than a deletion that fails is tried.
    await fake.run([`iptables-${variant}`, "-t", "nat", "-N", "KUBE-SEP-AAAAAAAAAAAAAAAA"]);
    assertEquals(await proxier.checkCanary(), false);
    assertEquals(endState(fake, variant), await freshEndState({ "s1": 1 }, variant));
    fake.runs.length = 0;
    assertEquals(await proxier.checkCanary(), false);
    assertEquals(fake.runs.length, 1);
  });
}

Deno.test("changes and repairs at the same time lose nothing", async () => {
  const { fake, proxier, sync } = await rig();
  await sync({ "s1": 2, "s2": 2, "s3": 1 });
  await fake.run(["iptables", "-F", "KUBE-SERVICES", "-t", "nat"]);
  const damage = await proxier.checkCanary();
  assert(damage);
  assertEquals(damage.services, new Set());
  // One Service comes, one goes, one changes, in the sync that also repairs.
  await sync({ "s1": 3, "s3": 1, "s4-np": 1 }, ["s1", "s2", "s4-np"]);
  assertEquals(endState(fake), await freshEndState({ "s1": 3, "s3": 1, "s4-np": 1 }));
  assertEquals(await proxier.checkCanary(), false);
});

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: in a large cluster the Services take turns, and the chains they share are always looked at`, async () => {
    const sizes = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`s${i + 10}`, 2]));
    const listing = variant === "nft"
      ? { mostSavedChains: 0, listedChains: 30 }
      : { mostSavedChains: Infinity, listedChains: 0 };
    const checkLimits = { savedChains: 30, sharedRules: Infinity, ...listing };
    const { fake, proxier, sync } = await rig({ variant, checkLimits });
    await sync(sizes);
    // 90 chains, 30 at a time.
    for (let i = 0; i < 3; i++) assertEquals(await proxier.checkCanary(), false);
    for (const name of ["s10", "s25", "s39"]) {
      await fake.run([
        `iptables-${variant}`,
        "-F",
        chainOf(fake, `${name}:http cluster`, variant),
        "-t",
        "nat",
      ]);
      let looks = 0;
      for (;;) {
        looks++;
        assert(looks <= 3, `${name} had no turn`);
        const damage = await proxier.checkCanary();
        if (!damage) continue;
        assert(damage);
        assertEquals(damage.services, new Set([`shop/${name}`]));
        break;
      }
      await sync(sizes, [name]);
      fake.runs.length = 0;
      assertEquals(await proxier.checkCanary(), false);
    }
    await fake.run([`iptables-${variant}`, "-F", "KUBE-SERVICES", "-t", "nat"]);
    assert(await proxier.checkCanary(), "a shared chain waits for no turn");
    await sync(sizes, []);
    assertEquals(endState(fake, variant), await freshEndState(sizes, variant));
  });
}

/** What the looks from now on ask for, until one of them finds something: `save`, or the chains that are listed. */
async function looksUntilDamage({ fake, proxier }: Rig, most: number): Promise<string[]> {
  const asked: string[] = [];
  while (asked.length < most) {
    fake.runs.length = 0;
    const damage = await proxier.checkCanary();
    const [run] = fake.runs;
    const shared = run?.stdin.includes("-S KUBE-NODEPORTS") ? "shared" : "static";
    asked.push(run?.argv[0] === "iptables-save" ? "save" : shared);
    if (damage) return asked;
  }
  throw new Error(`not seen: ${asked.join(" ")}`);
}

Deno.test("with more chains a look at everything, and one at shared chains, is rarer; the rest is always looked at", async () => {
  const sizes = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`s${i + 10}`, 2]));
  // 90 chains of Services, 30 rules in shared ones.
  const checkLimits = { savedChains: 20, mostSavedChains: 90, listedChains: 0, sharedRules: 15 };
  const one = await rig({ checkLimits });
  const { fake, proxier, sync } = one;
  const nat = (...args: readonly string[]) => fake.run(["iptables", "-t", "nat", ...args]);
  await sync(sizes);
  assertEquals(await proxier.checkCanary(), false);
  const chain = chainOf(fake, "s25:http cluster", "nft");
  await nat("-D", chain, "1");
  assertEquals(await looksUntilDamage(one, 5), ["static", "shared", "static", "shared", "save"]);
  await sync(sizes, ["s25"]);
  // The look that tells whether the repair helped is about the same.
  fake.runs.length = 0;
  assertEquals(await proxier.checkCanary(), false);
  assert(fake.runs[0]?.stdin.includes(`-S ${chain}`));
  await nat("-D", "KUBE-SERVICES", "3");
  assertEquals(await looksUntilDamage(one, 2), ["shared"]);
  await sync(sizes, []);
  await nat("-D", "KUBE-SERVICES", "3");
  assertEquals(await looksUntilDamage(one, 1), ["shared"], "after damage as well");
  await sync(sizes, []);
  assertEquals(await proxier.checkCanary(), false);
  await nat("-F", "KUBE-POSTROUTING");
  assertEquals((await looksUntilDamage(one, 1)).length, 1);
  await sync(sizes);
  await nat("-D", chain, "1");
  assertEquals(await looksUntilDamage(one, 1), ["save"], "after a full sync");
  await sync(sizes, ["s25"]);
  assertEquals(endState(fake), await freshEndState(sizes));
});

Deno.test("a look at everything gives way to changes, some times, and comes again", async () => {
  const sizes = { "s1": 2, "s2": 1 };
  const fake = new SlowSave();
  const { proxier, sync } = await rig({ fake });
  await sync(sizes);
  const damage = () => fake.run(["iptables", "-t", "nat", "-F", "KUBE-SERVICES"]);
  await damage();
  for (let changes = 1; changes <= 3; changes++) {
    const started = fake.held();
    const look = proxier.checkCanary();
    await started;
    // It would never end by itself.
    await sync({ ...sizes, s2: changes + 1 }, ["s2"]);
    assertEquals(await look, null, "nobody can tell");
  }
  const started = fake.held();
  const look = proxier.checkCanary();
  await started;
  const change = sync({ ...sizes, s2: 5 }, ["s2"]);
  fake.goOn();
  const found = await look;
  assert(found);
  assertEquals(found.found, ["nat KUBE-SERVICES"]);
  await change;
  await sync({ ...sizes, s2: 5 }, []);
  assertEquals(endState(fake), await freshEndState({ ...sizes, s2: 5 }));
});

for (const variant of ["nft", "legacy"] as const) {
  for (const full of [false, true]) {
    const way = full ? "a full sync" : "a change";
    Deno.test(`${variant}: a Service's chain that others jump to does not keep ${way} out, and goes when they are gone`, async () => {
      const told: string[] = [];
      let nowMs = 0;
      const logger: Logger = {
        ...SILENT,
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
        return (endState(other.fake, variant) as string[]).toSorted();
      };
      const found = () =>
        (endState(fake, variant) as string[]).filter((line) => !line.includes("OTHER")).toSorted();

      // Two of three chains that go are used by others, in the same sync in which s2 changes and s5 comes.
      const sizes = { "s2": 3, "s5-np": 1 };
      const report = await sync(sizes, full ? undefined : ["s1", "s2", "s3", "s4", "s5-np"]);
      assertEquals(report.failedDeletions, 2);
      assertEquals(found(), await left(sizes, stuck));
      assertEquals(told.length, 1);
      for (const chain of stuck) assertStringIncludes(told[0]!, chain);

      // It costs nothing until the next try, which is told to nobody.
      fake.runs.length = 0;
      assertEquals((await sync({ "s2": 2, "s5-np": 1 }, ["s2"])).failedDeletions, undefined);
      assertEquals(fake.runs.length, 1);
      assertEquals(await proxier.checkCanary(), false);
      nowMs += 10_000;
      assertEquals(await proxier.checkCanary(), false);
      assertEquals((await sync({ "s2": 1, "s5-np": 1 }, ["s2"])).failedDeletions, 2);
      nowMs += 10_000;
      assertEquals((await sync({ "s2": 1, "s5-np": 1 }, ["s2"])).failedDeletions, 2);
      assertEquals(told.length, 1);

      // One of them is needed again; the other goes once nobody uses it, without any change.
      const again = { "s1": 1, "s2": 1, "s5-np": 1 };
      await sync(again, ["s1"]);
      await run("-F", "OTHER");
      nowMs += 10_000;
      assertEquals(await proxier.checkCanary(), false);
      assertEquals(found(), await left(again, []));
      assertEquals((await sync(again, [])).failedDeletions, undefined);
      assertEquals(found(), await left(again, []));
      assertEquals(await proxier.checkCanary(), false);
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

Deno.test("a canary that cannot be looked at says nothing", async () => {
  const checkLimits = { savedChains: 0, mostSavedChains: 0, listedChains: 9, sharedRules: 9 };
  const { fake, proxier, sync } = await rig({ checkLimits });
  assertEquals(await proxier.checkCanary(), false, "before the first sync");
  await sync({ s1: 1 });
  fake.holdLock(100);
  assertEquals(await proxier.checkCanary(), null, "while the lock is held");
});

Deno.test("a look that is refused with the status of a held lock does not hide damage", async () => {
  const { fake, proxier, sync } = await rig({
    checkLimits: { savedChains: 1, mostSavedChains: 0, listedChains: 1_000, sharedRules: Infinity },
  });
  await sync({ s1: 1 });
  assertEquals(await proxier.checkCanary(), false);
  const chain = chainOf(fake, "s1:http cluster IP", "nft");
  await fake.run(["iptables", "-t", "nat", "-F", chain]);
  fake.failRestores(1, 0, 4, "iptables-restore: line 2: RULE_LIST failed (No such file or directory)\n");
  assertEquals(await proxier.checkCanary(), {
    services: new Set(["shop/s1"]),
    found: [`nat ${chain}`],
  });
});
