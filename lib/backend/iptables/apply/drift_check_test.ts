/** What drift checks find of changes by others, which programs they start, and when. */
import { assert, assertEquals } from "@std/assert";
import type { ExecOptions, ExecResult } from "../../../kernel/exec.ts";
import type { IptablesVariant } from "../../../kernel/iptables.ts";
import { parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import {
  chainOf,
  endState,
  freshEndState,
  iptablesRig as rig,
} from "../../../../tests/support/iptables_rig.ts";

/** An iptables whose iptables-save does not end once a test has asked for that. */
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

/** Chain → its rules, of both tables. */
function chainsIn(saved: string): Map<string, string> {
  const chains = [...parseIptablesSave(saved)].flatMap(([table, found]) =>
    [...found].map(([name, { rules }]) => [`${table} ${name}`, rules.join("\n")] as const)
  );
  return new Map(chains);
}

const chainsOf = (fake: FakeIptables, variant: IptablesVariant): Map<string, string> =>
  chainsIn(fake.saved("IPv4", undefined, variant));

type Commands = (chain: (words: string) => string) => readonly (readonly string[])[];

/** Commands of others, and whether they do damage. */
const DAMAGES: readonly (readonly [name: string, commands: Commands, isDamage: boolean])[] = [
  ["nothing", () => [], false],
  ["a foreign rule comes", () => [["-A", "FORWARD", "-t", "filter", "-j", "ACCEPT"]], false],
  [
    "a foreign chain comes",
    () => [["-N", "CNI", "-t", "nat"], ["-I", "OUTPUT", "-t", "nat", "-j", "CNI"]],
    false,
  ],
  ["the canary of mangle", () => [["-X", "KUBE-PROXY-CANARY", "-t", "mangle"]], true],
  ["the canary of nat", () => [["-X", "KUBE-PROXY-CANARY", "-t", "nat"]], true],
  ["the canary of filter", () => [["-X", "KUBE-PROXY-CANARY", "-t", "filter"]], true],
  ["the rules of PREROUTING", () => [["-F", "PREROUTING", "-t", "nat"]], true],
  ["the rules of FORWARD", () => [["-F", "FORWARD", "-t", "filter"]], true],
  ["the rules of KUBE-FORWARD", () => [["-F", "KUBE-FORWARD", "-t", "filter"]], true],
  ["one rule of KUBE-POSTROUTING", () => [["-D", "KUBE-POSTROUTING", "1", "-t", "nat"]], true],
  ["kubelet's own rule in KUBE-MARK-MASQ", () => [
    ["-A", "KUBE-MARK-MASQ", "-t", "nat", "-j", "MARK", "--or-mark", "0x8000"],
  ], false],
  [
    "the rule of KUBE-FIREWALL, which kubelet may have, too",
    () => [["-F", "KUBE-FIREWALL", "-t", "filter"]],
    true,
  ],
  ["the jump to KUBE-FIREWALL", () => [["-D", "INPUT", "-t", "filter", "-j", "KUBE-FIREWALL"]], true],
  ["kubelet's own rule in KUBE-FIREWALL", () => [
    ["-A", "KUBE-FIREWALL", "-t", "filter", "-m", "mark", "--mark", "0x8000/0x8000", "-j", "DROP"],
  ], false],
  ["the rules of KUBE-SERVICES", () => [["-F", "KUBE-SERVICES", "-t", "nat"]], true],
  ["one rule of KUBE-SERVICES", () => [["-D", "KUBE-SERVICES", "1", "-t", "nat"]], true],
  ["one rule more in KUBE-SERVICES", () => [["-I", "KUBE-SERVICES", "-t", "nat", "-j", "RETURN"]], true],
  ["the rules of KUBE-NODEPORTS", () => [["-F", "KUBE-NODEPORTS", "-t", "nat"]], true],
  ["the rejections", () => [["-F", "KUBE-SERVICES", "-t", "filter"]], true],
  ["the rules of a Service", (chain) => [["-F", chain("s1:http cluster IP"), "-t", "nat"]], true],
  ["one rule of a Service", (chain) => [["-D", chain("s1:http cluster IP"), "2", "-t", "nat"]], true],
  ["the rules of an endpoint", (chain) => [["-F", chain("s2-np:http -> "), "-t", "nat"]], true],
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
  ], true],
  ["a Service's chain itself", (chain) => [
    ["-F", "KUBE-SERVICES", "-t", "nat"],
    ["-F", chain("s1:http cluster IP"), "-t", "nat"],
    ["-X", chain("s1:http cluster IP"), "-t", "nat"],
  ], true],
];

for (const variant of ["nft", "legacy"] as const) {
  Deno.test(`${variant}: a look notices what others did, and no more than that is written again`, async (t) => {
    const sizes = { "s1": 2, "s2-np": 1, "s3": 0 };
    const wanted = await freshEndState(sizes, variant);
    for (const [name, commands, isDamage] of DAMAGES) {
      await t.step(name, async () => {
        const { fake, proxier, sync } = await rig({ variant });
        await sync(sizes);
        assertEquals(await proxier.findDamage(), false);
        const all = commands((words) => chainOf(fake, words, variant));
        for (const args of all) {
          const { code, stderr } = await fake.run([`iptables-${variant}`, ...args]);
          assertEquals(code, 0, stderr);
        }
        fake.runs.length = 0;
        const damage = await proxier.findDamage();
        assert(fake.runs.length <= 2, "a look is one program, two if a chain is not there");
        if (!isDamage) {
          assertEquals(damage, false);
          return;
        }
        assert(damage, "no damage found");
        assertEquals(await proxier.findDamage(), damage, "a second look sees the same, until it is repaired");
        assert(damage.length > 0);
        const before = chainsOf(fake, variant);
        const written = new Set<string>();
        fake.onCommit = (_, save) => {
          for (const [chain, rules] of chainsIn(save())) if (before.get(chain) !== rules) written.add(chain);
        };
        await sync(sizes);
        fake.onCommit = undefined;
        for (const chain of written) assert(damage.includes(chain), `${chain} is written for nothing`);
        assertEquals(await proxier.findDamage(), false);
        // KUBE-FIREWALL and KUBE-MARK-MASQ are not ours alone.
        assertEquals(endState(fake, variant), wanted);
      });
    }
  });
}

Deno.test("two rules in the place of others, of which as many are there as should be, are found and written again", async () => {
  const { fake, proxier, sync } = await rig();
  await sync({ "s1": 2 });
  const [service, endpoint] = ["s1:http cluster IP", "s1:http -> "].map((words) =>
    chainOf(fake, words, "nft")
  );
  await fake.run(["iptables", "-t", "nat", "-D", service!, "2"]);
  // As many rules as it should have.
  const other = ["-p", "tcp", "-j", "DNAT", "--to-destination", "10.9.9.9:1"];
  await fake.run(["iptables", "-t", "nat", "-R", endpoint!, "2", ...other]);
  assert(await proxier.findDamage());
  await sync({ "s1": 2 });
  assertEquals(await proxier.findDamage(), false);
  assertEquals(endState(fake), await freshEndState({ "s1": 2 }));
});

Deno.test("changes and repairs at the same time lose nothing", async () => {
  const { fake, proxier, sync } = await rig();
  await sync({ "s1": 2, "s2": 2, "s3": 1 });
  await fake.run(["iptables", "-F", "KUBE-SERVICES", "-t", "nat"]);
  const damage = await proxier.findDamage();
  assert(damage);
  // One Service comes, one goes, one changes, in the sync that also repairs.
  await sync({ "s1": 3, "s3": 1, "s4-np": 1 });
  assertEquals(endState(fake), await freshEndState({ "s1": 3, "s3": 1, "s4-np": 1 }));
  assertEquals(await proxier.findDamage(), false);
});

Deno.test("with many chains everything is looked at once an hour, and what packets cannot do without each time", async () => {
  let nowMs = 0;
  const { fake, proxier, sync } = await rig({ largeChains: 5, nowMs: () => nowMs });
  const nat = (...args: readonly string[]) => fake.run(["iptables", "-t", "nat", ...args]);
  const sizes = { "s1": 2, "s2": 2 };
  await sync(sizes);
  /** The program that the next check starts, and what it finds. */
  const look = async (): Promise<[program: string, found: readonly string[]]> => {
    fake.runs.length = 0;
    const damage = await proxier.findDamage();
    return [fake.runs.map(({ argv }) => argv[0]).join(), damage ? damage : []];
  };
  assertEquals(await look(), ["iptables-save", []], "the first one");
  const chain = chainOf(fake, "s2:http cluster", "nft");
  await nat("-D", chain, "1");
  assertEquals(await look(), ["iptables-restore", []]);
  await nat("-D", "KUBE-SERVICES", "1");
  assertEquals(await look(), ["iptables-restore", ["nat KUBE-SERVICES"]]);
  // The repair writes everything that differs, and the check after it is of everything.
  await sync(sizes);
  assertEquals(endState(fake), await freshEndState(sizes));
  assertEquals(await look(), ["iptables-save", []]);
  await nat("-F", "KUBE-POSTROUTING");
  assertEquals(await look(), ["iptables-restore", ["nat KUBE-POSTROUTING"]]);
  await sync(sizes);
  assertEquals(await look(), ["iptables-save", []]);
  await nat("-F", chain);
  assertEquals(await look(), ["iptables-restore", []]);
  nowMs += 3_600_000;
  assertEquals(await look(), ["iptables-save", [`nat ${chain}`]]);
  // A chain that is gone cannot be listed by its name.
  await sync(sizes);
  await look();
  await nat("-X", "KUBE-PROXY-CANARY");
  assertEquals(await look(), ["iptables-restore,iptables-save", ["nat KUBE-PROXY-CANARY"]]);
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
    const look = proxier.findDamage();
    await started;
    // It would never end by itself.
    await sync({ ...sizes, s2: changes + 1 }, ["s2"]);
    assertEquals(await look, null, "nobody can tell");
  }
  const started = fake.held();
  const look = proxier.findDamage();
  await started;
  const change = sync({ ...sizes, s2: 5 }, ["s2"]);
  fake.goOn();
  const found = await look;
  assert(found);
  assertEquals(found, ["nat KUBE-SERVICES"]);
  await change;
  await sync({ ...sizes, s2: 5 });
  assertEquals(endState(fake), await freshEndState({ ...sizes, s2: 5 }));
});

Deno.test("a canary that cannot be looked at says nothing", async () => {
  const { fake, proxier, sync } = await rig({ largeChains: 0, nowMs: () => 1 });
  assertEquals(await proxier.findDamage(), false, "before the first sync");
  await sync({ s1: 1 });
  assertEquals(await proxier.findDamage(), false);
  fake.holdLock(100);
  assertEquals(await proxier.findDamage(), null, "while the lock is held");
});

Deno.test("a look that is refused with the status of a held lock does not hide damage", async () => {
  const { fake, proxier, sync } = await rig({ largeChains: 0 });
  await sync({ s1: 1 });
  assertEquals(await proxier.findDamage(), false);
  const chain = chainOf(fake, "s1:http cluster IP", "nft");
  await fake.run(["iptables", "-t", "nat", "-F", chain]);
  fake.failRestores(1, 0, 4, "iptables-restore: line 2: RULE_LIST failed (No such file or directory)\n");
  assertEquals(await proxier.findDamage(), [`nat ${chain}`]);
});
