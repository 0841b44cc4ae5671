import { FAMILIES, SelftestMachine } from "../../../tests/support/selftest_machine.ts";
import { ROOT } from "../../../tools/project_files.ts";
import { UnsupportedError } from "../../errors.ts";
import { ownProgram } from "./agent.ts";
import { apply } from "./apply.ts";
import { selftestObjects } from "./cases.ts";
import { leftNamespaces, namespaceNames } from "./network.ts";
import { isPassed, reportDocument, reportLines, type SelftestReport } from "./report.ts";
import { selftest, SelftestError, type SelftestOptions } from "./selftest.ts";
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";

const NOW_MS = Date.UTC(2026, 10, 22);

function run(machine: SelftestMachine, options: Partial<SelftestOptions> = {}): Promise<SelftestReport> {
  return selftest({
    mode: "iptables",
    families: FAMILIES,
    exec: machine,
    clock: { nowMs: () => 0 },
    nowMs: () => NOW_MS,
    random: "abcd1234",
    program: () => [SelftestMachine.program],
    limitMs: 60_000,
    signal: new AbortController().signal,
    say: () => {},
    ...options,
  });
}

const lines = (report: SelftestReport): string => reportLines(report).join("\n").replaceAll(/ {2,}/g, " ");

function assertNothingLeft(machine: SelftestMachine, what: string): void {
  assertEquals([[...machine.namespaces], [...machine.running]], [[], []], what);
}

Deno.test("a node that can run the mode passes every check in both families, and nothing is left", async () => {
  const machine = new SelftestMachine();
  const report = await run(machine);
  assertEquals(report.checks.filter(({ ok }) => !ok), []);
  assertEquals([isPassed(report), report.mode, report.families, report.notes], [
    true,
    "iptables",
    FAMILIES,
    [],
  ]);
  assertEquals(report.checks.length, 22);
  assertStringIncludes(
    lines(report),
    "ok IPv4 cluster IP, from a pod pod-a → 10.96.0.11:80/tcp: 10.244.0.2:8080 from 10.244.0.1 (14), " +
      "10.244.0.3:8080 from 10.244.0.2 (13)",
  );
  assertStringIncludes(lines(report), "All 22 checks passed in 0.0 s: this node can run mode iptables.");
  const document = reportDocument(report) as Record<string, unknown> & { checks: readonly unknown[] };
  assertEquals(
    [document.apiVersion, document.kind, document.passed, document.checks.length],
    ["kproxy/v1", "Selftest", true, 22],
  );
  assertNothingLeft(machine, "after a pass");
});

Deno.test("nothing but ip is started outside of the test's own namespaces", async () => {
  const machine = new SelftestMachine();
  await run(machine);
  const outside = machine.runs.filter((line) => line.startsWith("- "));
  const strange = outside.filter((line) =>
    !/^- ip (-6 )?(netns (list|add|del)|-n kproxy-selftest-|-6 -n kproxy-selftest-)/.test(line)
  );
  assertEquals(strange, []);
});

Deno.test("an old kernel without IPv6 is tested with IPv4 alone", async () => {
  const machine = new SelftestMachine();
  const report = await run(machine, { families: ["IPv4"] });
  assertEquals([isPassed(report), report.families, report.checks.length], [true, ["IPv4"], 11]);
  assert(!machine.runs.some((line) => line.includes("-batch") && line.includes("-6")));
});

Deno.test("packets that fare otherwise fail the checks, and the reason says how", async () => {
  const machine = new SelftestMachine();
  machine.fate = ({ id }, byRules) => id === "node port, from outsideIPv6" ? [{ kind: "silence" }] : byRules;
  const report = await run(machine);
  const failed = report.checks.filter(({ ok }) => !ok);
  assertEquals(failed.map(({ name, family }) => [name, family]), [["node port, from outside", "IPv6"]]);
  assertStringIncludes(
    lines(report),
    "failed IPv6 node port, from outside client → [fd00:192::10]:30086/tcp: wanted answers by each of " +
      "[fd00:10:244::2]:8081 (source of the node), [fd00:10:244::3]:8081 (source of the node), got no answer; the rules say",
  );
  assertStringIncludes(lines(report), "1 of 22 checks failed");
  assertEquals(isPassed(report), false);
  assertNothingLeft(machine, "after a failed check");
});

Deno.test("a mode that cannot run here is one failed check with its reason", async () => {
  const machine = new SelftestMachine();
  const report = await run(machine, { mode: "nftables" });
  assertEquals([report.mode, report.checks.length, isPassed(report)], [null, 1, false]);
  assertStringIncludes(lines(report), "failed rules of mode nftables");
  assertStringIncludes(report.checks[0]?.reason ?? "", "nft");
  assertNothingLeft(machine, "after a mode that cannot run");
});

Deno.test("whatever program fails, the namespaces go and the reason is reported", async () => {
  const machine = new SelftestMachine();
  await run(machine);
  const own = machine.runs.entries().filter(([, line]) => !line.includes("tables")).toArray();
  assert(own.length > 25);
  for (const [index, line] of own) {
    const broken = new SelftestMachine();
    broken.before = (_, at) => at === index ? { code: 1, stdout: "", stderr: "the disk is full" } : undefined;
    try {
      const report = await run(broken);
      // Of two removals, the second one succeeds.
      // A setting that cannot be read, or set, is noted.
      assert(/netns del/.test(line) || !isPassed(report) || report.notes.length > 0, line);
    } catch (error) {
      assert(error instanceof SelftestError, `${line}: ${error}`);
      assertStringIncludes(error.message, "the disk is full", line);
    }
    assertNothingLeft(broken, line);
  }
});

Deno.test("whenever it is ended, everything goes first", async () => {
  const machine = new SelftestMachine();
  await run(machine);
  for (let index = 0; index < machine.runs.length; index += 3) {
    const line = machine.runs[index] ?? "";
    if (line.includes("netns del")) break;
    const ended = new SelftestMachine();
    const end = new AbortController();
    ended.before = (_, at) => void (at === index && end.abort());
    const error = await assertRejects(() => run(ended, { signal: end.signal }), SelftestError);
    assertEquals([error.message, error.left], ["selftest was ended before it was done", []], line);
    assertNothingLeft(ended, line);
  }
});

Deno.test("a child that hangs ends with the time limit", async () => {
  const machine = new SelftestMachine();
  const signals: AbortSignal[] = [];
  const hanging = {
    run: (argv: readonly string[], options: Parameters<SelftestMachine["run"]>[1] = {}) => {
      const isApply = String(options.stdin ?? "").includes('"apply"');
      if (!isApply || options.signal === undefined) return machine.run(argv, options);
      signals.push(options.signal);
      const { promise, reject } = Promise.withResolvers<never>();
      options.signal.addEventListener("abort", () => reject(new Error("ended")), { once: true });
      return promise;
    },
  };
  const error = await assertRejects(() => run(machine, { exec: hanging, limitMs: 50 }), SelftestError);
  assertStringIncludes(error.message, "not done within 0.05 s");
  assertEquals(signals.length, 1);
  assertNothingLeft(machine, "after a hang");
});

Deno.test("without the right to make namespaces one line says so", async () => {
  const machine = new SelftestMachine();
  machine.before = (line) =>
    line.startsWith("- ip netns add")
      ? { code: 1, stdout: "", stderr: "mkdir /run/netns failed: Permission denied\n" }
      : undefined;
  const error = await assertRejects(() => run(machine), UnsupportedError);
  assertEquals(
    error.message,
    "selftest needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network namespaces: " +
      "mkdir /run/netns failed: Permission denied",
  );
});

Deno.test("a namespace that does not go is named", async () => {
  const machine = new SelftestMachine();
  machine.before = (line) =>
    line.startsWith("- ip netns del") && line.endsWith("-client")
      ? { code: 1, stdout: "", stderr: "Device or resource busy\n" }
      : undefined;
  const report = await run(machine);
  const failed = report.checks.filter(({ ok }) => !ok);
  assertEquals([failed.length, isPassed(report)], [1, false]);
  assertStringIncludes(failed[0]?.reason ?? "", "-abcd1234-client is left: ");
});

Deno.test("two tests at once share no name, and what a killed one has left goes with the next", async () => {
  const machine = new SelftestMachine();
  const old = namespaceNames(NOW_MS - 300_000, "00000000");
  const young = namespaceNames(NOW_MS + 30_000, "11111111");
  for (const name of [...Object.values(old), ...Object.values(young), "cni-1", "kproxy-selftest-mine"]) {
    machine.namespaces.add(name);
  }
  const report = await run(machine);
  assertEquals(isPassed(report), true);
  assertEquals(report.notes, ["removed 5 namespaces that a killed selftest had left"]);
  assertEquals([...machine.namespaces], [...Object.values(young), "cni-1", "kproxy-selftest-mine"]);
});

Deno.test("names tell by when a test is over", { permissions: "none" }, () => {
  const names = Object.values(namespaceNames(NOW_MS, "0a1b2c3d"));
  assertEquals(leftNamespaces(names, NOW_MS + 59_000), []);
  assertEquals(leftNamespaces(names, NOW_MS + 61_000), names);
  assertEquals(leftNamespaces(["kproxy-selftest-x", "kproxy-selftest--1-pod-a", "kp1-2-3"], NOW_MS), []);
});

Deno.test("rules of the test are written nowhere but on its own node", async () => {
  const machine = new SelftestMachine();
  const job = {
    job: "apply",
    mode: "iptables",
    families: FAMILIES,
    objects: selftestObjects(FAMILIES),
  } as const;
  for (const ownIps of [["127.0.0.1", "10.0.0.7"], ["127.0.0.1", "192.0.2.10"], []]) {
    await assertRejects(() => apply(job, machine, ownIps), UnsupportedError, "another machine");
  }
  assertEquals(machine.runs, []);
});

/** Exit status and output of a program that may only use the network. */
async function version(main: string): Promise<readonly [code: number, told: string]> {
  const [program = "", ...args] = (await ownProgram(main))("network");
  const { code, stdout, stderr } = await new Deno.Command(program, { args: [...args, "--version"] }).output();
  return [code, new TextDecoder().decode(code === 0 ? stdout : stderr).slice(0, 7)];
}

Deno.test("a child with the network alone starts, by whichever of the doors its parent did", async () => {
  for (const door of ["main.ts", "start.ts"]) {
    assertEquals(await version(`file://${ROOT}/${door}`), [0, "kproxy "], door);
  }
});
