import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { FakeIptables } from "../../../tests/support/fake_iptables.ts";
import { FakeTerminal } from "../../../tests/support/fake_terminal.ts";
import { UsageError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { cleanUp, cleanupCommand } from "./cleanup.ts";
import { systemIo } from "../io.ts";
import { parseArgs } from "../flags/parse_args.ts";

const RULES = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`;

async function nodeWithRules(): Promise<FakeIptables> {
  const exec = new FakeIptables();
  const { code, stderr } = await exec.run(["iptables-restore", "--noflush"], { stdin: RULES });
  assertEquals([code, stderr], [0, ""]);
  return exec;
}

async function collect(
  work: (io: { out(text: string): Promise<void>; err(text: string): void }) => Promise<number>,
): Promise<{ code: number; out: string; err: string }> {
  const collected = { out: "", err: "" };
  const code = await work({
    out: (text) => Promise.resolve(void (collected.out += text)),
    err: (text) => void (collected.err += text),
  });
  return { code, ...collected };
}

Deno.test("a dry run lists what would go and removes nothing", { permissions: "none" }, async () => {
  const exec = await nodeWithRules();
  const before = exec.saved("IPv4");
  const { code, out, err } = await collect((io) => cleanUp({ dryRun: true }, io, exec));
  assertEquals([code, err], [0, ""]);
  assertEquals(out.trim().split("\n").length, 3);
  assertMatch(out, /^IPv4 nft nat: -D PREROUTING .*-j KUBE-SERVICES$/m);
  assertStringIncludes(out, "IPv4 nft nat: -X KUBE-SVC-AAAAAAAAAAAAAAAA\n");
  assertEquals(exec.saved("IPv4"), before);
});

Deno.test("a terminal shows that a long cleanup goes on; elsewhere nothing is drawn", async () => {
  using time = new FakeTime();
  for (const terminal of [new FakeTerminal(), null]) {
    const exec = await nodeWithRules();
    const seen: (readonly string[])[] = [];
    const slow: Exec = {
      run: async (argv, options) => {
        await new Promise((resolve) => setTimeout(resolve, 300));
        seen.push(terminal?.screen ?? []);
        return await exec.run(argv, options);
      },
    };
    let ended = false;
    const cleaning = collect((io) => cleanUp({ dryRun: false }, { ...io, terminal }, slow))
      .finally(() => ended = true);
    while (!ended) await time.tickAsync(100);
    const { code, err } = await cleaning;
    assertEquals([code, err], [0, ""]);
    const words = seen.map(([line = ""]) => line.slice(2).replace(/ \(\d+ s\)$/, ""));
    assertEquals([...new Set(words)], [terminal === null ? "" : "Removing what proxies left"]);
    assertEquals(terminal?.screen ?? [""], [""]);
    assertEquals(exec.saved("IPv4").includes("KUBE-"), false);
  }
});

Deno.test(
  "a cleanup says how much went, and a second one that nothing is left",
  { permissions: "none" },
  async () => {
    const exec = await nodeWithRules();
    const first = await collect((io) => cleanUp({ dryRun: false }, io, exec));
    assertEquals(first, { code: 0, out: "Removed 3 chains and jumps of IPv4 nft\n", err: "" });
    assert(!exec.saved("IPv4").includes("KUBE-"));
    const second = await collect((io) => cleanUp({ dryRun: false }, io, exec));
    assertEquals(second, { code: 0, out: "Nothing to remove\n", err: "" });
  },
);

Deno.test("what cannot be removed is reported and ends with 1", { permissions: "none" }, async () => {
  const exec = await nodeWithRules();
  exec.failRestores(10);
  const { code, out, err } = await collect((io) => cleanUp({ dryRun: false }, io, exec));
  assertEquals([code, out], [1, ""]);
  assertMatch(err, /^Error: Cannot clean up IPv4 nft nat: Command "iptables.*failed with status 1/m);
});

Deno.test("a node without iptables has nothing to remove", { permissions: "none" }, async () => {
  const missing = ["iptables", "ip6tables"].flatMap((tool) =>
    ["", "-nft", "-legacy"].flatMap((variant) =>
      ["", "-save", "-restore"].map((action) => `${tool}${variant}${action}`)
    )
  );
  const exec = new FakeIptables({ missing });
  assertEquals(await collect((io) => cleanUp({ dryRun: false }, io, exec)), {
    code: 0,
    out: "Nothing to remove\n",
    err: "",
  });
});

// Without any permission: nothing of this machine is looked at, whatever goes on.
for (
  const [flag, problem] of [
    ["--of=", 'Invalid value "" for --of: want kproxy or kube-proxy; without --of everything goes'],
    ["--only=", 'Invalid value "" for --only: want iptables, '],
  ] as const
) {
  Deno.test(`a blank ${flag} removes nothing`, { permissions: "none" }, async () => {
    const io = { ...systemIo, out: (text: string) => Promise.reject(new Error(text)) };
    await assertRejects(
      async () => await cleanupCommand(parseArgs(["cleanup", flag]), io),
      UsageError,
      problem,
    );
  });
}
