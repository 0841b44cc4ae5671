/** A table of another layout is replaced without a moment in which no table serves, and a crash at any step does no harm. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import {
  A,
  B,
  endState,
  freshState,
  nftablesRig,
  service,
  SETTINGS,
  STICKY,
  TABLE,
} from "../../../../tests/support/nftables_rig.ts";
import { SyncError } from "../../../errors.ts";
import { parseTable } from "../../../netfilter/nft_listing.ts";

const NONE = { permissions: "none" } as const;
const NEXT = "ip kproxy-next";
const MANY = [
  ...A,
  ...B,
  ...Array.from({ length: 20 }, (_, i) => service(`s${i + 10}`, ["10.244.1.1", "10.244.1.2"])).flat(),
];

/** What an older release may have left: names, types and chains of its own. */
const OLD = `add table ip kproxy { comment "kproxy layout 0" ; }
add map ip kproxy service-ips { type ipv4_addr . inet_service : verdict ; }
add chain ip kproxy web
add rule ip kproxy web meta l4proto tcp dnat to 10.244.1.1:8080
add element ip kproxy service-ips { 10.96.1.1 . 80 : goto web }
add chain ip kproxy nat-prerouting { type nat hook prerouting priority dstnat; policy accept; }
add rule ip kproxy nat-prerouting ip daddr . tcp dport vmap @service-ips
`;

function comments(fake: FakeNft): string[] {
  return [TABLE, NEXT].map((table) => parseTable(fake.listed(table)).comment);
}

/** True if one of the tables that packets reach leads them to the first Service, old layout or new. */
function serves(fake: FakeNft): boolean {
  return [TABLE, NEXT].some((table) => {
    const { hooks, chains, elements } = endState(fake, table);
    const dispatch = elements["service-ips"];
    const isLed = chains["nat-prerouting"] !== undefined;
    const verdict = dispatch?.["10.96.1.1 . tcp . 80"] ?? dispatch?.["10.96.1.1 . 80"];
    const target = verdict?.replace("goto ", "") ?? "";
    return hooks["nat-prerouting"] !== undefined && isLed && chains[target] !== undefined;
  });
}

async function withOldTable(): Promise<FakeNft> {
  const fake = new FakeNft();
  await fake.others(OLD);
  assert(serves(fake));
  return fake;
}

/** Syncs while transactions from number `from` on are killed. @returns the error; undefined if it did not get so far */
async function crashing(fake: FakeNft, from: number, sync: () => Promise<unknown>): Promise<unknown> {
  let left = from;
  fake.fail = (argv) =>
    argv.includes("-f") && !argv.includes("-c") && left-- <= 0
      ? { code: 137, stdout: "", stderr: "" }
      : undefined;
  const error = await sync().then(() => undefined, (error: unknown) => error);
  fake.fail = () => undefined;
  return error;
}

Deno.test("at every moment one complete table serves while another layout is replaced", NONE, async () => {
  const fake = await withOldTable();
  let commits = 0;
  fake.onCommit = () => {
    commits++;
    assert(serves(fake), `transaction ${commits}`);
  };
  const { sync } = nftablesRig(fake, 20);
  const report = await sync(MANY);
  assert(commits > 10, `${commits}`);
  assertEquals(comments(fake), ["kproxy layout 1", ""]);
  assertEquals(endState(fake), await freshState(MANY));
  assertEquals(report.commands, fake.runs.length);
  // Nothing of it is done again.
  assertEquals((await nftablesRig(fake, 20).sync(MANY)).written, { chains: 0, elements: 0, sets: 0 });
});

Deno.test(
  "a crash at any step of it leaves a table that serves, and the next start ends what was begun",
  NONE,
  async () => {
    const whole = await withOldTable();
    await nftablesRig(whole, 20).sync(MANY);
    const steps = whole.transactions.length;
    for (let crash = 0; crash < steps; crash++) {
      const fake = await withOldTable();
      const error = await crashing(fake, crash, () => nftablesRig(fake, 20).sync(MANY));
      assert(error === undefined || error instanceof SyncError, String(error));
      assert(serves(fake), `crash at ${crash} of ${steps}`);
      fake.onCommit = () => assert(serves(fake), `restart after a crash at ${crash}`);
      await nftablesRig(fake, 20).sync(MANY);
      assertEquals(comments(fake), ["kproxy layout 1", ""], `crash at ${crash}`);
      assertEquals(endState(fake), await freshState(MANY), `crash at ${crash}`);
    }
  },
);

Deno.test("a set tells the layout, also where comments are refused or forgotten", NONE, async () => {
  const without = nftablesRig();
  await without.fake.others(OLD.replace("kproxy layout 0", "kproxy layout 1"));
  await without.sync(A);
  assertEquals(endState(without.fake), await freshState(A), "another layout, whatever its comment says");
  for (const kernel of ["forgets", "refuses"] as const) {
    const fake = new FakeNft();
    fake.forgetsTableComments = kernel === "forgets";
    for (const start of ["first", "second"] as const) {
      const { proxier, sync } = nftablesRig(fake);
      if (kernel === "refuses") proxier.configure({ ...SETTINGS, objectComments: false });
      const { written } = await sync(A);
      if (start === "second") assertEquals(written, { chains: 0, elements: 0, sets: 0 }, kernel);
    }
    assertEquals(comments(fake), ["", ""], kernel);
    assert(!fake.transactions.some(({ stdin }) => stdin.includes("kproxy-next")), kernel);
  }
});

Deno.test("clients stay with their endpoints, whatever step a crash comes after", NONE, async () => {
  const objects = [...STICKY, ...service("s4", ["10.244.1.9"], { sessionAffinity: "ClientIP" })];
  const withClients = async (): Promise<FakeNft> => {
    const fake = await withOldTable();
    const sets = Object.entries((await freshState(objects)).affinitySets);
    assertEquals(sets.length, 3);
    // Of the last one the timeout was changed without an event.
    await fake.others(
      sets.map(([name, seconds], index) =>
        `add set ip kproxy ${name} { type ipv4_addr ; flags dynamic,timeout ; timeout ${
          index === 2 ? seconds + 1 : seconds
        }s ; }\nadd element ip kproxy ${name} { 10.0.0.${index} expires 2h, 10.0.1.${index} expires 4s972ms }\n`
      ).join(""),
    );
    return fake;
  };
  const carried = (fake: FakeNft) =>
    parseTable(fake.listed(TABLE)).containers.values().map(({ expiring }) => expiring.join())
      .filter((clients) => clients !== "").toArray().sort();
  const wanted = [
    "10.0.0.0 expires 2h,10.0.1.0 expires 4s972ms",
    "10.0.0.1 expires 2h,10.0.1.1 expires 4s972ms",
  ];
  const whole = await withClients();
  const report = await nftablesRig(whole).sync(objects);
  assertEquals([carried(whole), report.commands], [wanted, whole.runs.length]);
  for (let crash = 0; crash < whole.transactions.length; crash++) {
    const fake = await withClients();
    const error = await crashing(fake, crash, () => nftablesRig(fake).sync(objects));
    assert(error instanceof SyncError, `crash at ${crash}: ${error}`);
    // The table that packets reach first knows all clients at that moment.
    fake.onCommit = () => {
      if (
        endState(fake).elements["layout-1"] !== undefined &&
        Object.keys(endState(fake).hooks).length > 0
      ) {
        assertEquals(carried(fake), wanted, `restart after a crash at ${crash}`);
      }
    };
    await nftablesRig(fake).sync(objects);
    assertEquals(carried(fake), wanted, `crash at ${crash}`);
  }
});

Deno.test("clients that cannot be carried over stop nothing", NONE, async () => {
  const fake = await withOldTable();
  const [name = ""] = Object.keys((await freshState(STICKY)).affinitySets);
  await fake.others(
    `add set ip kproxy ${name} { type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }\n` +
      `add element ip kproxy ${name} { 10.0.0.1 expires 2h }\n`,
  );
  fake.refuse = (line) => line.includes("expires") ? "Numerical result out of range" : undefined;
  await nftablesRig(fake).sync(STICKY);
  assertEquals(endState(fake), await freshState(STICKY));
  assertEquals(comments(fake), ["kproxy layout 1", ""]);
});

Deno.test(
  "a table that another process owns is reported, and Services are served beside it",
  NONE,
  async () => {
    const fake = new FakeNft();
    await fake.others("add table ip kproxy { flags owner ; }\n");
    const { sync } = nftablesRig(fake, 20);
    const problem = "IPv4: table ip kproxy belongs to another process (nft) (flags owner)";
    await assertRejects(() => sync(MANY), SyncError, problem);
    const wanted = await freshState(MANY);
    assertEquals(endState(fake, NEXT), wanted);
    // Changes, too, whether or not only they are asked for.
    const fewer = [...A, ...STICKY];
    await assertRejects(() => sync(fewer, ["s2"]), SyncError, problem);
    assertEquals(endState(fake, NEXT), await freshState(fewer));
    assert(fake.listed(TABLE).includes("flags owner"), "it stays as it is");

    // The table goes with its owner.
    await fake.others("delete table ip kproxy\n");
    await sync(fewer);
    assertEquals([endState(fake), fake.listed(NEXT)], [await freshState(fewer), ""]);
  },
);
