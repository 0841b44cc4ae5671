import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import {
  A,
  B,
  endState,
  freshState,
  nftablesRig as rig,
  service,
  SETTINGS,
  STICKY,
  syncRequest,
  TABLE,
} from "../../../../tests/support/nftables_rig.ts";
import { nodePortAddresses } from "../../../model/node.ts";
import { ExecError, SyncError } from "../../../errors.ts";
import { Nft } from "../../../kernel/nft.ts";
import { silentLogger } from "../../../observe/log.ts";
import { NftablesProxier } from "./proxier.ts";

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
  "a first sync of few Services is one transaction; of many the first go in with their table",
  NONE,
  async () => {
    for (const [elements, transactions] of [[undefined, 1], [1, 2]] as const) {
      const { fake, sync } = rig(new FakeNft(), elements);
      const report = await sync([...A, ...B]);
      assertEquals(fake.transactions.length, transactions);
      assertStringIncludes(
        fake.transactions[0]?.stdin ?? "",
        "add element ip kproxy service-ips { 10.96.1.1 ",
      );
      assertEquals([report.commands, report.bytes], [
        fake.runs.length,
        fake.transactions.map(({ stdin }) => stdin).join("").length,
      ]);
      assertEquals(endState(fake), await freshState([...A, ...B]));
    }
  },
);

Deno.test(
  "of a first sync that is refused as a whole, all goes in but what is refused alone",
  NONE,
  async () => {
    const { fake, sync } = rig();
    fake.refuse = (line) => line.includes("10.96.1.2 ") ? "Invalid argument" : undefined;
    const report = await sync([...A, ...service("s2", ["10.244.1.7", "10.244.1.8"]), ...STICKY]);
    assertEquals(report.quarantined?.map(({ service }) => service), ["shop/s2"]);
    assertEquals(report.commands, fake.runs.length);
    fake.refuse = () => undefined;
    assertEquals(endState(fake), await freshState([...A, ...STICKY]));
  },
);

Deno.test("what makes a table is refused by itself: no Service is to blame", NONE, async () => {
  const { fake, sync } = rig();
  fake.refuse = (line) => line.startsWith("add table ip kproxy") ? "Operation not permitted" : undefined;
  await assertRejects(() => sync([...A, ...B]), SyncError, "Operation not permitted");
  assertEquals(fake.listed(TABLE), "");
});

Deno.test("one dry run shows that there is no table; one that is there is listed", NONE, async () => {
  const { fake, sync } = rig();
  const reads = async (): Promise<number> => {
    fake.runs.length = 0;
    const report = await sync([...A, ...B]);
    assertEquals(report.commands, fake.runs.length);
    assertEquals(endState(fake), await freshState([...A, ...B]));
    return fake.runs.length;
  };
  // The first one writes, too.
  assertEquals([await reads(), fake.lists], [2, []]);
  assertEquals([await reads(), fake.lists.length], [3, 1]);
});

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
      assertEquals(await proxier.findDamage(), false);
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
  "an unknown set or map is deleted by a full sync, unless a rule holds it",
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
    const { elements, chains } = endState(fake);
    for (let i = 0; i < 40; i++) {
      const verdict = elements["service-ips"]?.[`10.96.1.${i} . tcp . 80`];
      const slots = [0, 1, 2].filter((slot) =>
        elements["endpoints-tcp"]?.[`10.96.1.${i} . 80 . ${slot}`] !== undefined
      );
      const hasIp = elements["cluster-ips"]?.[`10.96.1.${i}`] !== undefined;
      assertEquals(
        [verdict, slots, hasIp],
        verdict === undefined ? [undefined, [], false] : ["goto tcp-2", [0, 1], true],
      );
      if (verdict !== undefined) assertEquals(chains["tcp-2"]?.length, 1);
    }
  };
  await sync(objects);
  assert(commits >= 8, `${commits} transactions`);
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
    assertEquals(await proxier.findDamage(), false);
    fake.runs.length = 0;
    await fake.others("delete element ip kproxy cluster-ips { 10.96.1.1 }\n");
    const report = await sync([...C, ...B], ["s1"]);
    assertEquals(fake.lists.length, 1);
    assertEquals(report.quarantined, []);
    assertEquals(endState(fake), await freshState([...C, ...B]));
  },
);

Deno.test("new settings make the next sync a full one, also when they come during a sync", NONE, async () => {
  const { fake, proxier, sync } = rig();
  await sync(A);
  assertEquals(proxier.configure(SETTINGS), false);
  const syncing = sync([...A, ...B], ["s2"]);
  await Promise.resolve();
  assertEquals(proxier.configure({ ...SETTINGS, masqueradeAll: true }), true);
  await syncing;
  fake.runs.length = 0;
  await sync([...A, ...B], ["s2"]);
  assertEquals(fake.lists.length, 1);
  assertMatch(fake.listed(TABLE), /masquerade all clusterIP traffic/);
});

Deno.test(
  "an address that the node gains or loses makes the rules outdated until the next sync",
  NONE,
  async () => {
    const fake = new FakeNft();
    let interfaceIps = ["127.0.0.1", "192.0.2.10"];
    const proxier = new NftablesProxier({
      family: "IPv4",
      nft: new Nft(fake),
      settings: { ...SETTINGS, nodePortAddresses: nodePortAddresses("IPv4", ["192.0.2.0/24"]) },
      interfaceIps: () => interfaceIps,
      logger: silentLogger,
      nowMs: () => 0,
    });
    const serving = (): string[] => Object.keys(endState(fake).elements["nodeport-ips"] ?? {});
    assertEquals(proxier.isOutdated(), false);
    await proxier.sync(syncRequest(A));
    assertEquals([serving(), proxier.isOutdated()], [["192.0.2.10"], false]);
    for (const ips of [[], ["192.0.2.11", "192.0.2.10"]]) {
      interfaceIps = ips;
      assertEquals(proxier.isOutdated(), true);
      await proxier.sync(syncRequest(A, []));
      assertEquals([serving(), proxier.isOutdated()], [ips.toSorted(), false]);
    }
  },
);
