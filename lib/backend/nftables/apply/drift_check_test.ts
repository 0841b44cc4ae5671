/** Which changes by others the checks find, and how often they list the whole table. */
import { assert, assertEquals, assertInstanceOf, assertRejects } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import {
  A,
  B,
  endState,
  nftablesProxier,
  nftablesRig as rig,
  service,
  STICKY,
  syncRequest,
  TABLE,
} from "../../../../tests/support/nftables_rig.ts";
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { testPort } from "../../../../tests/support/model_objects.ts";
import { parseTable } from "../../../netfilter/nft_listing.ts";
import { silentLogger } from "../../../observe/log.ts";

const NONE = { permissions: "none" } as const;

/** Everything that Services can have. */
const OBJECTS = [
  ...A,
  ...B,
  ...STICKY,
  ...service(
    "s4",
    ["10.244.1.8"],
    {
      type: "LoadBalancer",
      loadBalancerIngress: [{ ip: "203.0.113.5", ipMode: "VIP" }],
      loadBalancerSourceRanges: ["198.51.100.0/24"],
      externalTrafficPolicy: "Local",
      ports: [testPort({ nodePort: 30080 })],
    },
  ),
  ...service("s5", []),
];

/** Commands with which others delete or change objects. */
const TAKEN = [
  "delete table ip kproxy",
  "flush map ip kproxy service-ips",
  "flush map ip kproxy endpoints-tcp",
  "flush map ip kproxy firewall-ips",
  "flush map ip kproxy no-endpoint-services",
  "flush map ip kproxy service-nodeports",
  "flush set ip kproxy cluster-ips",
  "flush set ip kproxy nodeport-ips",
  "flush chain ip kproxy services",
  "flush chain ip kproxy masquerading",
  "flush chain ip kproxy nat-prerouting",
  "flush chain ip kproxy tcp-2",
  "delete chain ip kproxy filter-forward",
  "delete element ip kproxy endpoints-tcp { 10.96.1.1 . 80 . 1 }",
  "delete element ip kproxy endpoints-tcp { 10.96.1.1 . 80 . 1 }\n" +
  "add element ip kproxy endpoints-tcp { 10.96.1.1 . 80 . 1 : 10.9.9.9 . 1 }",
];

/** The name of the first chain of a Service that begins so. */
function chainOf(fake: FakeNft, prefix: string): string {
  const names = [...parseTable(fake.listed(TABLE)).chains.keys()];
  const found = names.find((name) => name.startsWith(prefix) && name.includes("/"));
  assert(found !== undefined, `no ${prefix}`);
  return found;
}

/** Further changes by others; of texts in more than one rule only one is changed. */
const CHANGED: readonly ((fake: FakeNft) => string)[] = [
  () => "add rule ip kproxy services drop",
  () => "add rule ip kproxy nat-prerouting return",
  (fake) => `add rule ip kproxy ${chainOf(fake, "endpoint-")} accept`,
  (fake) => withoutRule(fake, chainOf(fake, "firewall-"), 0),
  (fake) => withoutRule(fake, chainOf(fake, "service-"), 1),
  (fake) => withoutRule(fake, "masquerading", 0),
  () => "add element ip kproxy service-ips { 10.96.9.9 . tcp . 1 : drop }",
  () => "add element ip kproxy cluster-ips { 10.96.9.9 }",
  () => "delete element ip kproxy no-endpoint-services { 10.96.1.5 . tcp . 80 }",
  () =>
    "add chain ip kproxy theirs { type filter hook forward priority 0; policy accept; }\nadd rule ip kproxy theirs drop",
];

/** Text that takes one rule out of a chain. */
function withoutRule(fake: FakeNft, chain: string, index: number): string {
  const { rules } = parseTable(fake.listed(TABLE)).chains.get(chain)!;
  assert(rules[index] !== undefined, `${chain} has ${rules.length} rules`);
  return [
    `flush chain ip kproxy ${chain}`,
    ...rules.toSpliced(index, 1).map((text) => `add rule ip kproxy ${chain} ${text}`),
  ].join("\n");
}

Deno.test(
  "the next check sees what others took away, changed or added, and nothing else",
  NONE,
  async (t) => {
    for (const damage of [...TAKEN.map((text) => () => text), ...CHANGED]) {
      const { fake, proxier, sync } = rig();
      await sync(OBJECTS);
      const text = damage(fake);
      await t.step(text, async () => {
        const wanted = endState(fake);
        for (let i = 0; i < 2; i++) assertEquals(await proxier.findDamage(), false);
        await fake.others(text + "\n");
        const found = await proxier.findDamage();
        assert(found && found.length > 0, "not seen");
        await sync(OBJECTS);
        assertEquals(endState(fake), wanted);
        assertEquals(await proxier.findDamage(), false);
      });
    }
  },
);

/** Listing our table takes a second of the clock: then it is done rarely. */
function slowLists({ fake, clock }: ReturnType<typeof rig>): void {
  fake.fail = (argv) => {
    if (argv.join(" ") === LIST) clock.nowMs += 1_000;
    return undefined;
  };
}

const LIST = "nft -a list table ip kproxy";
const LIST_RULES = "nft -t -a list ruleset ip";

/** A proxier that has synced and lists its table no more, as long as all is well. */
async function rarelyListing(): Promise<ReturnType<typeof rig>> {
  const one = rig();
  await one.sync(OBJECTS);
  slowLists(one);
  assertEquals(await one.proxier.findDamage(), false);
  one.fake.runs.length = 0;
  return one;
}

Deno.test(
  "where a list of the table takes long, each check sees what packets cannot do without, and lists no element",
  NONE,
  async (t) => {
    for (const damage of [...TAKEN, "add rule ip kproxy services drop"]) {
      // That a single element is gone or another one is seen within the hour.
      if (damage.startsWith("delete element")) continue;
      await t.step(damage, async () => {
        const { fake, proxier, sync } = await rarelyListing();
        assertEquals(await proxier.findDamage(), false);
        await fake.others(damage + "\n");
        assert(await proxier.findDamage() !== false, "not seen");
        assertEquals(fake.lists, [LIST_RULES, LIST_RULES]);
        // The next check, which tells whether the repair helped, is of everything.
        await sync(OBJECTS);
        fake.runs.length = 0;
        assertEquals(await proxier.findDamage(), false);
        assertEquals(fake.lists, [LIST]);
      });
    }
  },
);

Deno.test("after an hour a table that takes long is listed again, and then all is seen", NONE, async () => {
  const { fake, proxier, clock } = await rarelyListing();
  await fake.others("delete element ip kproxy endpoints-tcp { 10.96.1.1 . 80 . 1 }\n");
  const said: boolean[] = [];
  for (let checks = 0; checks < 122; checks++) {
    clock.nowMs += 30_000;
    said.push(await proxier.findDamage() !== false);
  }
  assertEquals([said.indexOf(true), said.slice(119).every(Boolean)], [119, true]);
});

Deno.test("checks between add nothing, not even for a try: others may be listing rules", NONE, async () => {
  const { fake, proxier, clock } = await rarelyListing();
  fake.triedAdditions.length = 0;
  fake.fail = (argv) => {
    // From now on the rules of others take long, too.
    if (argv.join(" ") === LIST_RULES) clock.nowMs += 2_000;
    return undefined;
  };
  for (let checks = 0; checks < 20; checks++) {
    assertEquals(await proxier.findDamage(), false);
    clock.nowMs += 30_000;
  }
  assertEquals(fake.triedAdditions, []);
  // They take a hundredth of the time.
  assertEquals(fake.lists, [LIST_RULES, LIST_RULES, LIST_RULES]);
  // What is gone is seen by those that do not list them.
  await fake.others("delete chain ip kproxy filter-forward\n");
  const damage = await proxier.findDamage();
  assert(damage);
  assertEquals(damage, ["No such file or directory: flush chain ip kproxy filter-forward"]);
});

Deno.test("the more there should be, the more time a list is given", NONE, async () => {
  const entries: number[] = [];
  const fake = new FakeNft();
  const exec: Exec = {
    run: (argv, options) => {
      if (argv.includes("list")) entries.push(options?.entries ?? 0);
      return fake.run(argv, options);
    },
  };
  const proxier = nftablesProxier(exec);
  // There is nothing to list yet.
  await proxier.sync(syncRequest([]));
  const endpoints = Array.from({ length: 200 }, (_, index) => `10.244.1.${index}`);
  for (const objects of [A, service("s1", endpoints)]) {
    await proxier.sync(syncRequest(objects));
    await proxier.findDamage();
  }
  const [few = 0, lookedAtFew = 0, many = 0, lookedAtMany = 0] = entries;
  assert(few > 2 && lookedAtFew > 2, String(entries));
  assert(many > few + 190 && lookedAtMany > lookedAtFew + 190, String(entries));
});

Deno.test("a single list that fails hides nothing from the next look", NONE, async () => {
  const { fake, proxier, sync, clock } = rig();
  await sync(OBJECTS);
  fake.fail = (argv) => {
    if (argv.join(" ") !== LIST) return undefined;
    clock.nowMs += 400;
    return { code: 1, stdout: "", stderr: "" };
  };
  await assertRejects(() => proxier.findDamage(), ExecError);
  fake.fail = () => undefined;
  await fake.others("add rule ip kproxy services drop\n");
  clock.nowMs += 1_000;
  assert(await proxier.findDamage() !== false, "not seen");
});

Deno.test(
  "a list that does not come to its end is tried once more, then ever more rarely",
  NONE,
  async () => {
    const { fake, proxier, sync, clock } = rig();
    await sync(OBJECTS);
    fake.runs.length = 0;
    fake.fail = (argv) => {
      if (argv.join(" ") !== LIST) return undefined;
      clock.nowMs += 120_000;
      return { code: 137, stdout: "", stderr: "" };
    };
    const begins: number[] = [];
    for (let checks = 0; checks < 80; checks++) {
      const lists = fake.lists.length;
      const startMs = clock.nowMs;
      await proxier.findDamage().catch((error) => assertInstanceOf(error, ExecError));
      if (fake.lists.slice(lists).includes(LIST)) begins.push(startMs / 1000);
      clock.nowMs += 30_000;
    }
    const waits = begins.slice(1).map((begin, at) => begin - begins[at]!);
    assert(
      waits.length >= 3 && waits.every((wait, at) => at === 0 || wait >= 2 * waits[at - 1]!),
      String(waits),
    );
  },
);

Deno.test("a large table is listed once an hour, however fast that is", NONE, async () => {
  const { fake, proxier, sync, clock } = rig();
  const endpoints = Array.from({ length: 250 }, (_, index) => `10.244.1.${index}`);
  const objects = Array.from({ length: 21 }, (_, index) => service(`s${index + 1}`, endpoints)).flat();
  await sync(objects);
  fake.runs.length = 0;
  for (let checks = 0; checks < 122; checks++) {
    assertEquals(await proxier.findDamage(), false);
    clock.nowMs += 30_000;
  }
  assertEquals(fake.lists.filter((list) => list === LIST).length, 2);
  await fake.others("add rule ip kproxy services drop\n");
  assert(await proxier.findDamage() !== false, "not seen");
});

Deno.test(
  "rules that nft prints otherwise than they are written are reported and taken for its way",
  NONE,
  async () => {
    const warnings: string[] = [];
    const fake = new FakeNft();
    const proxier = nftablesProxier(fake, { nowMs: 0 }, undefined, {
      ...silentLogger,
      warn: (message) => void warnings.push(message),
    });
    const other = (text: string): string => text.replaceAll("masquerade", "masquerade fully-random");
    fake.print = other;
    await proxier.sync(syncRequest(OBJECTS));
    const first = await proxier.findDamage();
    assert(first && first.includes("masquerading"), JSON.stringify(first));
    await proxier.sync(syncRequest(OBJECTS));
    assertEquals([await proxier.findDamage(), await proxier.findDamage()], [false, false]);
    assertEquals(warnings, ["nft prints rules otherwise than they were written, taken for its way"]);
    // What is changed there is still seen.
    await fake.others("add rule ip kproxy masquerading accept\n");
    const damage = await proxier.findDamage();
    assert(damage);
    assertEquals(damage, ["masquerading"]);
  },
);

Deno.test("a check that a sync overtakes says nothing, one that cannot be made fails", NONE, async () => {
  const { fake, proxier, sync } = rig();
  await sync([...A, ...B]);
  const checking = proxier.findDamage();
  await sync(B, ["s1"]);
  assertEquals(await checking, false);
  fake.fail = () => ({ code: 1, stdout: "", stderr: "Operation not permitted (you must be root)\n" });
  await assertRejects(() => proxier.findDamage(), ExecError, "not permitted");
  fake.fail = () => ({ code: 139, stdout: "", stderr: "" });
  await assertRejects(() => proxier.findDamage(), ExecError, "SIGSEGV");
});
