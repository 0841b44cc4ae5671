/** What the looks see of what others did, what they ask for, and when. */
import { assert, assertEquals } from "@std/assert";
import type { ExecOptions, ExecResult } from "../../../kernel/exec.ts";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import {
  chainOf,
  endState,
  freshEndState,
  type IptablesRig,
  iptablesRig as rig,
} from "../../../../tests/support/iptables_rig.ts";

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
async function looksUntilDamage({ fake, proxier }: IptablesRig, most: number): Promise<string[]> {
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
