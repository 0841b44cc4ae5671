/** A Service that the kernel refuses keeps its former rules, and no other Service notices. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import {
  A,
  B,
  endState,
  freshState,
  nftablesRig as rig,
  service,
  STICKY,
} from "../../../../tests/support/nftables_rig.ts";
import { releaseBy, RELEASES } from "../../../../tests/support/quarantine_release.ts";
import { SyncError } from "../../../errors.ts";

const NONE = { permissions: "none" } as const;
const MANY = Array.from({ length: 100 }, (_, i) => service(`s${i + 10}`, ["10.244.1.1", "10.244.1.2"]))
  .flat();

/** The kernel refuses lines that contain these words. */
function refuse(fake: FakeNft, ...words: readonly string[]): void {
  fake.refuse = (line) =>
    line.startsWith("add ") && words.some((word) => line.includes(word)) ? "Invalid argument" : undefined;
}

for (const named of [true, false]) {
  Deno.test(
    `refused Services are found and all others go in, with an nft that ${
      named ? "names" : "does not name"
    } the lines`,
    NONE,
    async () => {
      const { fake, sync } = rig(new FakeNft(), 60);
      refuse(fake, "10.96.1.17 ", "10.96.1.64 ");
      if (!named) {
        // As a program that crashes does.
        const { refuse } = fake;
        fake.fail = (argv, stdin) =>
          argv.includes("-f") && stdin.split("\n").some((line) => refuse(line) !== undefined)
            ? { code: 139, stdout: "", stderr: "" }
            : undefined;
      }
      const report = await sync(MANY);
      assertEquals(report.quarantined?.map(({ service }) => service), ["shop/s17", "shop/s64"]);
      assertMatch(
        report.quarantined?.[0]?.problem ?? "",
        named ? /^Invalid argument: add .*10\.96\.1\.17/ : /SIGSEGV/,
      );
      fake.refuse = () => undefined;
      fake.fail = () => undefined;
      const without = MANY.filter(({ name }) => !/^s(17|64)(-1)?$/.test(name));
      assertEquals(endState(fake), await freshState(without));
      assert(fake.transactions.length < (named ? 20 : 40), `${fake.transactions.length} transactions`);
    },
  );
}

Deno.test(
  "a change that is refused is read back, only its Service is quarantined, and keeps what it had",
  NONE,
  async () => {
    const { fake, sync } = rig();
    const objects = [...A, ...B, ...STICKY];
    await sync(objects);
    const before = endState(fake);
    refuse(fake, "10.244.1.66");
    const bad = service("s1", ["10.244.1.66", "10.244.1.2"]);
    const first = await sync([...bad, ...B, ...STICKY], ["s1"]);
    assertEquals(first.quarantined?.map(({ service }) => service), ["shop/s1"]);
    assertEquals(endState(fake), before);
    const other = service("s2", ["10.244.1.4"]);
    const report = await sync([...bad, ...other, ...STICKY]);
    assertEquals(report.quarantined?.map(({ service }) => service), ["shop/s1"]);
    assertEquals(endState(fake), await freshState([...A, ...other, ...STICKY]));

    // Now that it is known, it costs the others nothing.
    fake.runs.length = 0;
    const worse = service("s1", ["10.244.1.66"]);
    const again = await sync([...worse, ...B, ...STICKY], ["s1", "s2"]);
    assertEquals(again.quarantined?.map(({ service }) => service), ["shop/s1"]);
    assertEquals(fake.lists, []);
    assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
    // Changes of others do not try it.
    fake.runs.length = 0;
    await sync([...worse, ...other, ...STICKY], ["s2"]);
    assertEquals(fake.transactions.length, 1);
  },
);

for (const release of RELEASES) {
  Deno.test(
    `a quarantined Service is released by ${release}, with nothing left of before`,
    NONE,
    async () => {
      const { fake, sync, clock } = rig();
      const sticky = service("s1", ["10.244.1.1", "10.244.1.2", "10.244.1.9"], {
        sessionAffinity: "ClientIP",
      });
      await sync([...sticky, ...B]);
      refuse(fake, "10.244.1.66");
      const bad = service("s1", ["10.244.1.66", "10.244.1.2"], { sessionAffinity: "ClientIP" });
      assertEquals((await sync([...bad, ...B])).quarantined?.length, 1);
      assertEquals(endState(fake), await freshState([...sticky, ...B]));
      // A change to what the kernel takes needs no other kernel.
      const isGood = release === "its change";
      if (!isGood) fake.refuse = () => undefined;
      const wanted = await releaseBy(release, {
        sync,
        clock,
        nextSync: rig(fake).sync,
        service: isGood ? service("s1", ["10.244.1.67"]) : bad,
        others: B,
      });
      await sync(wanted);
      assertEquals(endState(fake), await freshState(wanted));
    },
  );
}

Deno.test("what a quarantined Service leads to stays, even if no other Service uses it", NONE, async () => {
  const { fake, sync } = rig();
  const three = service("s1", ["10.244.1.1", "10.244.1.2", "10.244.1.3"], { externalIPs: ["198.51.100.1"] });
  await sync([...three, ...B]);
  refuse(fake, "10.244.1.66");
  const bad = service("s1", ["10.244.1.66"], { externalIPs: ["198.51.100.2"] });
  await sync([...bad, ...B]);
  const { elements, chains } = endState(fake);
  assertEquals(elements["service-ips"]?.["10.96.1.1 . tcp . 80"], "goto tcp-3");
  assertEquals(chains["tcp-3"]?.length, 1);
  assertEquals([0, 1, 2].map((slot) => elements["endpoints-tcp"]?.[`10.96.1.1 . 80 . ${slot}`]), [
    "10.244.1.1 . 8080",
    "10.244.1.2 . 8080",
    "10.244.1.3 . 8080",
  ]);
  assertEquals(elements["cluster-ips"]?.["10.96.1.1"], "");
});

Deno.test("no Service is quarantined for what is not its fault", NONE, async (t) => {
  const cases: readonly [name: string, break_: (fake: FakeNft) => void][] = [
    ["others delete the table meanwhile", (fake) => {
      let services = 0;
      fake.fail = (argv, stdin) => {
        if (
          argv.includes("-f") && stdin.includes("service-ips {") && !stdin.includes("map") && ++services === 3
        ) {
          void fake.others("delete table ip kproxy\n");
        }
        return undefined;
      };
    }],
    ["no memory", (fake) => {
      fake.fail = (argv, stdin) =>
        argv.includes("-f") && stdin.includes("10.96.1.50")
          ? {
            code: 1,
            stdout: "",
            stderr: "netlink: Error: Could not process rule: Cannot allocate memory\n",
          }
          : undefined;
    }],
    ["no rights", (fake) => {
      fake.fail = (argv) =>
        argv.includes("-f") && !argv.includes("-c")
          ? {
            code: 1,
            stdout: "",
            stderr: "/dev/stdin:1:1-9: Error: Could not process rule: Operation not permitted\n",
          }
          : undefined;
    }],
    ["what all of them need is refused", (fake) => refuse(fake, "chain ip kproxy services")],
  ];
  for (const [name, break_] of cases) {
    await t.step(name, async () => {
      const { fake, sync } = rig(new FakeNft(), 60);
      break_(fake);
      // A table that is gone is made again by the same sync.
      if (name === "others delete the table meanwhile") assertEquals((await sync(MANY)).quarantined, []);
      else await assertRejects(() => sync(MANY), SyncError);
      fake.fail = () => undefined;
      fake.refuse = () => undefined;
      const { quarantined } = await sync(MANY);
      assertEquals(quarantined, []);
      assertEquals(endState(fake), await freshState(MANY));
    });
  }
});
