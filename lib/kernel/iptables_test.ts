import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { ExecError, UnsupportedError } from "../errors.ts";
import { FakeIptables } from "../../tests/support/fake_iptables.ts";
import type { Clock } from "./clock.ts";
import type { Exec, ExecResult } from "./exec.ts";
import { unreadableTables } from "../netfilter/iptables_save.ts";
import { Iptables, type IptablesOptions, isAtLeast, parseIptablesVersion } from "./iptables.ts";
import { describeRestoreFailure, isLockBusy } from "./tool_errors.ts";
import { iptablesPrograms } from "./iptables_variant.ts";

/** A clock that jumps to the end of every sleep. */
class JumpingClock implements Clock {
  now = 0;
  readonly sleeps: number[] = [];
  onSleep: (() => void | Promise<void>) | undefined;
  nowMs(): number {
    return this.now;
  }
  async sleep(ms: number): Promise<void> {
    this.sleeps.push(ms);
    this.now += ms;
    await this.onSleep?.();
  }
}

function iptables(exec: Exec, options: Partial<IptablesOptions> = {}): Iptables {
  return new Iptables(exec, {
    family: "IPv4",
    variant: "nft",
    version: "1.8.9",
    programs: iptablesPrograms("IPv4"),
    clock: new JumpingClock(),
    random: () => 0.5,
    ...options,
  });
}

Deno.test("versions are read and compared", { permissions: "none" }, () => {
  const texts: readonly (readonly [string, ReturnType<typeof parseIptablesVersion>])[] = [
    ["iptables v1.8.9 (nf_tables)\n", { version: "1.8.9", variant: "nft" }],
    ["ip6tables v1.8.4 (legacy)\n", { version: "1.8.4", variant: "legacy" }],
    ["iptables v1.6.1\n", { version: "1.6.1", variant: "legacy" }],
    ["sh: iptables: not found", null],
  ];
  for (const [text, expected] of texts) assertEquals(parseIptablesVersion(text), expected, text);
  const older: readonly (readonly [string, string, boolean])[] = [
    ["1.6.2", "1.6.2", true],
    ["1.10.0", "1.8.8", true],
    ["1.6.1", "1.6.2", false],
    ["1.8", "1.8.0", true],
    ["2.0", "1.8.8", true],
  ];
  for (const [version, minimum, expected] of older) {
    assertEquals(isAtLeast(version, minimum), expected, version);
  }
});

Deno.test("versions older than 1.6.2 are refused with what is needed", { permissions: "none" }, () => {
  const error = assertThrows(() => iptables(new FakeIptables(), { version: "1.6.1" }), UnsupportedError);
  assertEquals([error.needs, error.found], ["iptables 1.6.2", "1.6.1"]);
  iptables(new FakeIptables(), { version: "1.6.2" });
});

Deno.test(
  "old versions get the interval at which to look for the lock",
  { permissions: "none" },
  async () => {
    for (const [version, wait] of [["1.8.7", ["-w", "5", "-W", "100000"]], ["1.8.9", ["-w", "5"]]] as const) {
      const fake = new FakeIptables({ version });
      assertEquals(await iptables(fake, { version }).absence(), null);
      assertEquals(fake.runs[0]?.argv, ["iptables", ...wait, "-S", "POSTROUTING", "-t", "nat"]);
    }
  },
);

Deno.test("a family whose programs are missing or fail is not present", { permissions: "none" }, async () => {
  assert(await iptables(new FakeIptables({ missing: ["iptables"] })).absence() !== null);
  const failing = { run: () => Promise.resolve({ code: 3, stdout: "", stderr: "Table does not exist" }) };
  assert((await iptables(failing).absence())?.endsWith("failed with status 3: Table does not exist"));
});

Deno.test("a lock held all the time does not make a family absent", { permissions: "none" }, async () => {
  const fake = new FakeIptables();
  fake.holdLock(1000);
  const ipt = iptables(fake, { clock: new JumpingClock(), lockDeadlineMs: 10_000 });
  await assertRejects(() => ipt.absence(), ExecError, "xtables lock");
});

Deno.test("a lock file that cannot be opened is reported at once", { permissions: "none" }, async () => {
  const stderr = "Fatal: can't open lock file /run/xtables.lock: Read-only file system\n";
  const clock = new JumpingClock();
  const ipt = iptables({ run: () => Promise.resolve({ code: 4, stdout: "", stderr }) }, { clock });
  assert((await ipt.absence())?.includes("can't open lock file"));
  assertEquals(clock.sleeps, []);
});

Deno.test("a held lock is waited for with jittered, growing pauses", { permissions: "none" }, async () => {
  const fake = new FakeIptables();
  const clock = new JumpingClock();
  const ipt = iptables(fake, { clock });
  fake.holdLock(4);
  await ipt.restore("*nat\n:KUBE-A - [0:0]\nCOMMIT\n");
  assertEquals(clock.sleeps, [75, 150, 300, 600]);
  assertEquals(await ipt.list("nat", "KUBE-A"), "-N KUBE-A\n");
});

Deno.test("a lock that is never let go is reported after the deadline", { permissions: "none" }, async () => {
  const fake = new FakeIptables();
  const clock = new JumpingClock();
  const ipt = iptables(fake, { clock, lockDeadlineMs: 10_000 });
  fake.holdLock(1000);
  const error = await assertRejects(() => ipt.restore("*nat\nCOMMIT\n"), ExecError, "xtables lock");
  assert(isLockBusy(error));
  assert(clock.now <= 10_000 && clock.now > 5_000, `${clock.now}`);
});

Deno.test(
  "what iptables-nft refuses with the lock's status is not tried again",
  { permissions: "none" },
  async () => {
    const fake = new FakeIptables();
    const clock = new JumpingClock();
    const ipt = iptables(fake, { clock });
    await ipt.restore("*nat\n:KUBE-A - [0:0]\n-A POSTROUTING -j KUBE-A\nCOMMIT\n");
    const deletion = "*nat\n-X KUBE-A\nCOMMIT\n";
    const error = await assertRejects(() => ipt.restore(deletion), ExecError, "CHAIN_DEL failed");
    assertEquals([error.code, clock.sleeps.length], [4, 0]);
  },
);

Deno.test("the notice about the interval does not hide the failure", { permissions: "none" }, async () => {
  const stderr =
    "Ignoring deprecated --wait-interval option.\niptables: No chain/target/match by that name.\n";
  const ipt = iptables({ run: () => Promise.resolve({ code: 1, stdout: "", stderr }) });
  const error = await assertRejects(() => ipt.list("nat", "KUBE-A"), ExecError, "No chain/target");
  assert(error.isNotFound());
});

Deno.test("a refused restore shows the lines around the failing one", { permissions: "none" }, () => {
  const input = ["*nat", ":A - [0:0]", "-A A -j B1", "-A A -j B2", "-A A -j B3", "-A A -j B4", "COMMIT", ""]
    .join("\n");
  const cases: readonly (readonly [string, string])[] = [
    [
      "iptables-restore: line 6 failed\n",
      "iptables-restore: line 6 failed\n  3: -A A -j B1\n  4: -A A -j B2\n  5: -A A -j B3\n> 6: -A A -j B4\n  7: COMMIT",
    ],
    [
      "iptables-restore v1.8.9 (nf_tables): \nline 1: TABLE_ADD failed (No such file or directory): table nat\n",
      "iptables-restore v1.8.9 (nf_tables): line 1: TABLE_ADD failed (No such file or directory): table nat\n" +
      "> 1: *nat\n  2: :A - [0:0]\n  3: -A A -j B1\n  4: -A A -j B2",
    ],
    ["iptables-restore: COMMIT expected at line 99\n", "iptables-restore: COMMIT expected at line 99"],
    [
      "iptables-restore v1.8.9: no memory\nTry `iptables-restore -h' or '--help' for more\n",
      "iptables-restore v1.8.9: no memory",
    ],
  ];
  for (const [stderr, expected] of cases) assertEquals(describeRestoreFailure(stderr, input), expected);
});

Deno.test("commands of one family run one after the other", { permissions: "none" }, async () => {
  let running = 0;
  const order: string[] = [];
  const exec: Exec = {
    async run(argv) {
      assertEquals(++running, 1);
      for (let i = 0; i < 5; i++) await Promise.resolve();
      running--;
      order.push(argv.find((word) => word.startsWith("KUBE-")) ?? argv[0] ?? "");
      return { code: order.length === 2 ? 1 : 0, stdout: "", stderr: "" };
    },
  };
  const ipt = iptables(exec);
  const results = await Promise.allSettled([
    ipt.list("nat", "KUBE-A"),
    ipt.list("nat", "KUBE-B"),
    ipt.save(),
    ipt.restore("*nat\nCOMMIT\n"),
  ]);
  assertEquals(order, ["KUBE-A", "KUBE-B", "iptables-save", "iptables-restore"]);
  assertEquals(results.map(({ status }) => status), ["fulfilled", "rejected", "fulfilled", "fulfilled"]);
});

const SAVED = "# Generated\n*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n# Completed\n";

Deno.test.each([
  ["nothing, where there is no table", "", true],
  ["only a comment", "# Table `foo' is incompatible\n", true],
  ["a table", SAVED, true],
  ["two tables", SAVED + SAVED.replace("nat", "filter"), true],
  ["a table without its end", "*nat\n:KUBE-SERVICES - [0:0]\n", false],
  ["a second table without its end", `${SAVED}*filter\n`, false],
  ["half a line", "*nat\nCOM", false],
  ["something else", "Segmentation fault\n", false],
])("iptables-save prints %s", { permissions: "none" }, async (_what, stdout, isWhole) => {
  const ipt = iptables({ run: () => Promise.resolve({ code: 0, stdout, stderr: "" }) });
  if (isWhole) assertEquals(await ipt.save(), stdout);
  else await assertRejects(() => ipt.save(), ExecError, "whole ruleset");
  if (isWhole) assertEquals(await ipt.saveReadable(), stdout);
  else await assertRejects(() => ipt.saveReadable(), ExecError, "whole ruleset");
});

const BROKEN_OFF = {
  code: 1,
  stdout: `${SAVED}*filter\n:INPUT - [0:0]\n`,
  stderr: "Parsing nftables rule failed\n",
};

Deno.test("tables that cannot be read are named, other failures fail", { permissions: "none" }, async () => {
  const save = async (result: ExecResult) =>
    unreadableTables(await iptables({ run: () => Promise.resolve(result) }).saveReadable());
  const named = "# Table `filter' is incompatible, use 'nft' tool.\n";
  assertEquals(await save({ code: 0, stdout: SAVED, stderr: "" }), new Set());
  assertEquals(await save({ code: 0, stdout: SAVED + named, stderr: "" }), new Set(["filter"]));
  assertEquals(await save(BROKEN_OFF), new Set(["filter", "mangle"]));
  await assertRejects(() => save({ code: 1, stdout: SAVED, stderr: "no memory\n" }), ExecError, "no memory");
});
