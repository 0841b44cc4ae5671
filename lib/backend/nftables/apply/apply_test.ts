import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import {
  A,
  B,
  endState,
  freshState,
  nftablesProxier,
  nftablesRig as rig,
  service,
  SETTINGS,
  STICKY,
  syncRequest,
  TABLE,
} from "../../../../tests/support/nftables_rig.ts";
import { ExecError, SyncError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { testPort } from "../../../../tests/support/model_objects.ts";
import { silentLogger } from "../../../observe/log.ts";
import { parseTable } from "../diff/parse.ts";

const NONE = { permissions: "none" } as const;

Deno.test(
  "a change is one transaction of a few elements, no change none, and nothing is ever listed",
  NONE,
  async () => {
    const { fake, sync } = rig();
    await sync([...A, ...B]);
    fake.runs.length = 0;
    const none = await sync([...A, ...B], ["s1", "s2"]);
    assertEquals([none.commands, fake.runs.length], [0, 0]);
    const replaced = service("s1", ["10.244.1.1", "10.244.1.9"]);
    const report = await sync([...replaced, ...B], ["s1"]);
    assertEquals(fake.runs.map(({ argv, stdin }) => [argv.join(" "), stdin]), [[
      "nft -f -",
      "delete element ip kproxy endpoints-tcp { 10.96.1.1 . 80 . 1 }\n" +
      "add element ip kproxy endpoints-tcp { 10.96.1.1 . 80 . 1 : 10.244.1.9 . 8080 }\n",
    ]]);
    assertEquals([report.commands, report.written], [1, { chains: 0, elements: 2, sets: 0 }]);
    assertEquals(endState(fake), await freshState([...replaced, ...B]));
  },
);

Deno.test(
  "other ServiceCIDRs are one chain, written with the next change, and nothing is listed",
  NONE,
  async () => {
    const { fake, proxier, sync } = rig();
    const droppedIn = (): string[] =>
      [...fake.listed(TABLE).matchAll(/daddr (\S+) drop/g)].map(([, network]) => network ?? "");
    await sync([...A, ...B]);
    assertEquals(droppedIn(), []);
    fake.runs.length = 0;
    assertEquals(proxier.setServiceCidrs(["10.96.0.0/16", "10.98.0.0/24"]), true);
    assertEquals(proxier.setServiceCidrs(["10.96.0.0/16", "10.98.0.0/24"]), false);
    const report = await sync([...A, ...B], []);
    assertEquals([report.commands, report.written], [1, { chains: 1, elements: 0, sets: 0 }]);
    assertEquals(droppedIn(), ["10.96.0.0/16", "10.98.0.0/24"]);
    assertEquals(proxier.setServiceCidrs([]), true);
    await sync([...A, ...B], ["s1"]);
    assertEquals([droppedIn(), fake.lists], [[], []]);
    assertEquals(endState(fake), await freshState([...A, ...B]));
  },
);

Deno.test(
  "ServiceCIDRs that come while a full sync is under way are written by the next one",
  NONE,
  async () => {
    const { fake, proxier, sync } = rig();
    fake.onCommit = () => {
      fake.onCommit = () => {};
      proxier.setServiceCidrs(["10.96.0.0/16"]);
    };
    await sync([...A]);
    fake.runs.length = 0;
    await sync([...A], []);
    assertEquals(fake.lists, []);
    assertMatch(fake.listed(TABLE), /ip daddr 10\.96\.0\.0\/16 drop/);
  },
);

Deno.test(
  "no sync of a change lists anything, whatever the changes are, and no check minds them",
  NONE,
  async () => {
    const { fake, proxier, sync, clock } = rig();
    await sync([]);
    fake.runs.length = 0;
    const states = [[...A], [...A, ...STICKY], [...STICKY, ...B], [...service("s1", []), ...B], []];
    for (const objects of states) {
      clock.nowMs += 5_000;
      await sync(objects, ["s1", "s2", "s3"]);
      assertEquals(await proxier.checkCanary(), false);
    }
    assert(fake.runs.length >= 9, `${fake.runs.length}`);
    assertEquals(fake.lists, states.map(() => "nft -a list table ip kproxy"), "one of each check");
    // Chains that Services share stay until then.
    await sync([]);
    assertEquals(endState(fake), await freshState([]));
  },
);

Deno.test(
  "a new start finds everything in place and writes nothing; a foreign or stale thing goes",
  NONE,
  async () => {
    const { fake, sync } = rig();
    const objects = [...A, ...B, ...STICKY];
    await sync(objects);
    const second = rig(fake);
    const report = await second.sync(objects);
    assertEquals(report.written, { chains: 0, elements: 0, sets: 0 });
    assertEquals(fake.transactions, []);
    assertEquals(fake.lists, ["nft -a list table ip kproxy"]);
    await fake.others(
      "add element ip kproxy cluster-ips { 10.96.9.9 }\n" +
        "add chain ip kproxy odd\nadd rule ip kproxy odd accept\n" +
        "delete element ip kproxy endpoints-tcp { 10.96.1.2 . 80 . 0 }\n" +
        "flush chain ip kproxy services\n",
    );
    await rig(fake).sync(objects);
    assertEquals(endState(fake), await freshState(objects));
  },
);

Deno.test(
  "a set or map that nobody knows is deleted by a full sync, unless a rule holds it",
  NONE,
  async () => {
    const { fake, sync } = rig();
    await sync([...A]);
    await fake.others(
      "add set ip kproxy older { type ipv4_addr ; }\nadd element ip kproxy older { 10.9.9.9 }\n" +
        "add map ip kproxy older-map { type ipv4_addr : verdict ; }\n" +
        "add chain ip kproxy odd\nadd rule ip kproxy odd ip saddr 10.9.9.8 goto tcp-2\n" +
        "add element ip kproxy older-map { 10.9.9.9 : goto odd }\n",
    );
    await rig(fake).sync([...A]);
    assertEquals(endState(fake), await freshState([...A]));
    await fake.others(
      "add set ip kproxy held { type ipv4_addr ; }\nadd element ip kproxy held { 10.9.9.9 }\n",
    );
    fake.refuse = (line) => line === "delete set ip kproxy held" ? "Device or resource busy" : undefined;
    const report = await rig(fake).sync([...A]);
    assertEquals([report.quarantined, endState(fake).elements["held"]], [[], {}]);
  },
);

Deno.test("every transaction of a full sync leaves each Service complete or away", NONE, async () => {
  const objects = Array.from({ length: 40 }, (_, i) => service(`s${i}`, ["10.244.1.1", "10.244.1.2"])).flat();
  const { fake, sync } = rig(new FakeNft(), 20);
  let commits = 0;
  fake.onCommit = () => {
    commits++;
    const { elements, chains } = parseTable(fake.listed(TABLE));
    for (let i = 0; i < 40; i++) {
      const verdict = elements.get("service-ips")?.get(`10.96.1.${i} . tcp . 80`);
      const slots = [0, 1, 2].filter((slot) =>
        elements.get("endpoints-tcp")?.has(`10.96.1.${i} . 80 . ${slot}`)
      );
      const hasIp = elements.get("cluster-ips")?.has(`10.96.1.${i}`) ?? false;
      assertEquals(
        [verdict, slots, hasIp],
        verdict === undefined ? [undefined, [], false] : ["goto tcp-2", [0, 1], true],
      );
      if (verdict !== undefined) assertEquals(chains.get("tcp-2")?.length, 1);
    }
  };
  await sync(objects);
  assert(commits > 8, `${commits} transactions`);
  // And the same on the way to other endpoints, by a new process.
  const changed = Array.from({ length: 40 }, (_, i) => service(`s${i}`, ["10.244.1.3", "10.244.1.4"])).flat();
  const before = commits;
  await rig(fake, 20).sync(changed);
  assert(commits - before > 5, `${commits - before} transactions`);
});

Deno.test(
  "after a failure the next sync reads everything back and repairs what is not right",
  NONE,
  async () => {
    const { fake, sync, proxier } = rig();
    await sync([...A, ...B]);
    let fails = 1;
    fake.fail = (argv) =>
      argv.includes("-f") && fails-- > 0
        ? {
          code: 1,
          stdout: "",
          stderr: "netlink: Error: Could not process rule: No buffer space available\n",
        }
        : undefined;
    const C = service("s1", ["10.244.1.7"]);
    const error = await assertRejects(() => sync([...C, ...B], ["s1"]), SyncError);
    assert(error.cause instanceof ExecError);
    assertMatch(error.message, /^nftables apply: IPv4: /);
    assertEquals(await proxier.checkCanary(), false);
    fake.runs.length = 0;
    await fake.others("delete table ip kproxy\n");
    const report = await sync([...C, ...B], ["s1"]);
    assertEquals(fake.lists.length, 1);
    assertEquals(report.quarantined, []);
    assertEquals(endState(fake), await freshState([...C, ...B]));
  },
);

Deno.test(
  "stale chains are deleted a second later, alone, and a failure of that harms nothing",
  NONE,
  async () => {
    const { fake, sync, clock } = rig();
    await sync([...A, ...STICKY]);
    const count = () =>
      [...parseTable(fake.listed(TABLE)).chains.keys()].filter((name) => name.includes("/")).length;
    assertEquals(count(), 3);
    await sync(A, ["s3"]);
    assertEquals(count(), 3, "flushed, not deleted");
    fake.runs.length = 0;
    clock.nowMs = 999;
    await sync(A, ["s1"]);
    assertEquals(fake.runs, []);
    clock.nowMs = 1_000;
    // The kernel does not let one of them go.
    fake.refuse = (line) =>
      line.startsWith("delete chain ip kproxy service-") ? "Device or resource busy" : undefined;
    const report = await sync([...B, ...A], ["s2"]);
    assertEquals([report.failedDeletions, report.quarantined], [1, []]);
    assertEquals(count(), 1);
    assert(
      fake.transactions.every(({ stdin }) => !stdin.includes("delete chain") || !stdin.includes("element")),
    );
    fake.refuse = () => undefined;
    clock.nowMs = 2_000;
    assertEquals((await sync([...B, ...A], ["s2"])).failedDeletions, undefined);
    assertEquals(count(), 0);
    // One that comes back is not deleted.
    await sync([...A, ...B, ...STICKY], ["s3"]);
    await sync([...A, ...B], ["s3"]);
    await sync([...A, ...B, ...STICKY], ["s3"]);
    clock.nowMs = 9_000;
    await sync([...A, ...B, ...STICKY], ["s1"]);
    assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
  },
);

Deno.test("stale chains go with the next check, if no sync comes; none under a sync", NONE, async () => {
  const { fake, sync, clock, proxier } = rig();
  await sync([...A, ...STICKY]);
  await sync(A, ["s3"]);
  const chains = () => [...parseTable(fake.listed(TABLE)).chains.keys()].filter((name) => name.includes("/"));
  assertEquals([await proxier.checkCanary(), chains().length], [false, 3]);
  clock.nowMs = 1_000;
  fake.refuse = (line) =>
    line.startsWith("delete chain ip kproxy service-") ? "Device or resource busy" : undefined;
  assertEquals([await proxier.checkCanary(), chains().length], [false, 1]);
  fake.refuse = () => undefined;
  assertEquals((await sync([...A, ...B], ["s2"])).failedDeletions, 1);
  clock.nowMs = 2_000;
  // A sync that fills the chain again comes in the middle of the deletion.
  const checking = proxier.checkCanary();
  await sync([...A, ...B, ...STICKY], ["s3"]);
  assertEquals(await checking, false);
  assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
  assertEquals(await proxier.checkCanary(), false);
  assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
});

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

/** What others may take away or change. */
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

/** What others may do beside that; of what is in more than one rule only one. */
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
  const rules = parseTable(fake.listed(TABLE)).chains.get(chain)!;
  assert(rules[index] !== undefined, `${chain} has ${rules.length} rules`);
  return [
    `flush chain ip kproxy ${chain}`,
    ...rules.toSpliced(index, 1).map(({ text }) => `add rule ip kproxy ${chain} ${text}`),
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
        for (let i = 0; i < 2; i++) assertEquals(await proxier.checkCanary(), false);
        await fake.others(text + "\n");
        const found = await proxier.checkCanary();
        assert(found !== false && found.found.length > 0, "not seen");
        await sync(OBJECTS);
        assertEquals(endState(fake), wanted);
        assertEquals(await proxier.checkCanary(), false);
      });
    }
  },
);

/** Listing takes three seconds of the clock. */
function slowLists({ fake, clock }: ReturnType<typeof rig>): void {
  fake.fail = (argv) => {
    if (argv.includes("list")) clock.nowMs += 3_000;
    return undefined;
  };
}

Deno.test(
  "where a list takes long, checks between see what is taken away, too, and list nothing",
  NONE,
  async (t) => {
    for (const damage of TAKEN) {
      await t.step(damage, async () => {
        const one = rig();
        const { fake, proxier, sync } = one;
        await sync(OBJECTS);
        slowLists(one);
        for (let i = 0; i < 8; i++) assertEquals(await proxier.checkCanary(), false);
        fake.runs.length = 0;
        await fake.others(damage + "\n");
        // What one check does not look at, the next one does.
        const seen = [await proxier.checkCanary(), await proxier.checkCanary()];
        assert(seen.some((found) => found !== false), "not seen");
        await sync(OBJECTS);
        assertEquals(await proxier.checkCanary(), false);
      });
    }
  },
);

Deno.test(
  "some lists that take long, as on a busy machine, keep no damage from being seen",
  NONE,
  async () => {
    const { fake, proxier, sync, clock } = rig();
    await sync(OBJECTS);
    let slow = 4;
    fake.fail = (argv) => {
      if (argv.includes("list")) clock.nowMs += slow-- > 0 ? 60_000 : 10;
      return undefined;
    };
    for (let checks = 0; checks < 8; checks++) {
      assertEquals(await proxier.checkCanary(), false);
      clock.nowMs += 1_000;
      // Now and then one more.
      if (checks === 5) slow = 1;
    }
    await fake.others("add rule ip kproxy services drop\n");
    assert(await proxier.checkCanary() !== false, "not seen");
  },
);

Deno.test("where a list takes long it takes 0.15 % of the time, and then sees everything", NONE, async () => {
  const one = rig();
  const { fake, proxier, sync, clock } = one;
  await sync(OBJECTS);
  slowLists(one);
  // A few say nothing yet.
  for (let checks = 0; checks < 4; checks++) assertEquals(await proxier.checkCanary(), false);
  fake.runs.length = 0;
  const said: boolean[] = [];
  for (let checks = 0; checks < 80; checks++) {
    said.push(await proxier.checkCanary() !== false);
    clock.nowMs += 30_000;
    if (checks === 2) await fake.others("add rule ip kproxy services drop\n");
  }
  // 3 s of 2,000 s, the checks 30 s after each other; as long as there is damage, each one.
  assertEquals([said.indexOf(true), said.slice(67).every(Boolean)], [67, true]);
  assertEquals(fake.lists.length, 14);
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
  const endpoints = Array.from({ length: 200 }, (_, index) => `10.244.1.${index}`);
  for (const objects of [A, service("s1", endpoints)]) {
    await proxier.sync(syncRequest(objects));
    await proxier.checkCanary();
  }
  const [few = 0, lookedAtFew = 0, many = 0, lookedAtMany = 0] = entries;
  assert(few > 2 && lookedAtFew > 2, String(entries));
  assert(many > few + 190 && lookedAtMany > lookedAtFew + 190, String(entries));
});

Deno.test("a list that does not come to its end is tried again as rarely as a long one", NONE, async () => {
  const { fake, proxier, sync, clock } = rig();
  await sync(OBJECTS);
  fake.runs.length = 0;
  fake.fail = (argv) => {
    if (!argv.includes("list")) return undefined;
    clock.nowMs += 120_000;
    return { code: 137, stdout: "", stderr: "" };
  };
  await assertRejects(() => proxier.checkCanary(), ExecError);
  for (let checks = 0; checks < 80; checks++) {
    clock.nowMs += 30_000;
    assertEquals(await proxier.checkCanary(), false);
  }
  assertEquals(fake.lists.length, 1);
});

Deno.test(
  "a large table is listed so rarely that it takes 0.15 % of the time, however fast that is",
  NONE,
  async () => {
    const { fake, proxier, sync, clock } = rig();
    const endpoints = Array.from({ length: 250 }, (_, index) => `10.244.1.${index}`);
    const objects = Array.from({ length: 40 }, (_, index) => service(`s${index + 1}`, endpoints)).flat();
    await sync(objects);
    assert(fake.listed(TABLE).length > 300_000);
    fake.runs.length = 0;
    fake.fail = (argv) => {
      if (argv.includes("list")) clock.nowMs += 90;
      return undefined;
    };
    for (let checks = 0; checks < 9; checks++) {
      assertEquals(await proxier.checkCanary(), false);
      clock.nowMs += 30_000;
    }
    // 60 s after each other.
    assertEquals(fake.lists.length, 5);
    await fake.others("add rule ip kproxy services drop\n");
    const between = await proxier.checkCanary();
    clock.nowMs += 30_000;
    assertEquals([between, Boolean(await proxier.checkCanary())], [false, true]);
  },
);

Deno.test(
  "rules that nft prints otherwise than they are written are told and taken for its way",
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
    const first = await proxier.checkCanary();
    assert(first !== false && first.found.includes("masquerading"), JSON.stringify(first));
    await proxier.sync(syncRequest(OBJECTS));
    assertEquals([await proxier.checkCanary(), await proxier.checkCanary()], [false, false]);
    assertEquals(warnings, ["nft prints rules otherwise than they were written, taken for its way"]);
    // What is changed there is still seen.
    await fake.others("add rule ip kproxy masquerading accept\n");
    const damage = await proxier.checkCanary();
    assert(damage !== false);
    assertEquals(damage.found, ["masquerading"]);
  },
);

Deno.test("a check that a sync overtakes says nothing, one that cannot be made fails", NONE, async () => {
  const { fake, proxier, sync } = rig();
  await sync([...A, ...B]);
  const checking = proxier.checkCanary();
  await sync(B, ["s1"]);
  assertEquals(await checking, false);
  fake.fail = () => ({ code: 1, stdout: "", stderr: "Operation not permitted (you must be root)\n" });
  await assertRejects(() => proxier.checkCanary(), ExecError, "not permitted");
  fake.fail = () => ({ code: 139, stdout: "", stderr: "" });
  await assertRejects(() => proxier.checkCanary(), ExecError, "SIGSEGV");
});

Deno.test("new settings make the next sync a full one, also when they come during a sync", NONE, async () => {
  const { fake, proxier, sync } = rig();
  await sync(A);
  assertEquals(proxier.configure(SETTINGS), false);
  const syncing = sync([...A, ...B], ["s2"]);
  assertEquals(proxier.configure({ ...SETTINGS, masqueradeAll: true }), true);
  await syncing;
  fake.runs.length = 0;
  await sync([...A, ...B], ["s2"]);
  assertEquals(fake.lists.length, 1);
  assertMatch(fake.listed(TABLE), /masquerade all clusterIP traffic/);
});

Deno.test("where nft takes long to read the rules of others, it is asked to do so rarely", NONE, async () => {
  const { fake, proxier, sync, clock } = rig();
  await sync(A);
  fake.runs.length = 0;
  fake.fail = (argv, stdin) => {
    clock.nowMs += argv.includes("list") ? 1e9 : stdin.includes(" index ") ? 2_000 : 10;
    return undefined;
  };
  for (let checks = 0; checks < 4; checks++) assertEquals(await proxier.checkCanary(), false);
  fake.runs.length = 0;
  // The first one lists the table, once in a long time.
  for (let checks = 0; checks < 21; checks++) {
    assertEquals(await proxier.checkCanary(), false);
    clock.nowMs += 30_000;
  }
  const deep = fake.runs.slice(1).map(({ stdin }) => stdin.includes(" index "));
  assertEquals([deep[0], deep[1], deep.filter(Boolean).length], [true, false, 3]);
  // The others still see what is gone.
  await fake.others("flush map ip kproxy service-ips\n");
  assert(await proxier.checkCanary() !== false);
});
