/** The fuzz task: a target is fuzzed in a separate process, which reports. */
import { assertEquals, assertMatch } from "@std/assert";
import { ROOT } from "./project_files.ts";

async function fuzz(...args: readonly string[]): Promise<{ code: number; said: string }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", "tools/fuzz.ts", ...args],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
  }).output();
  return { code, said: new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr) };
}

Deno.test("a target is fuzzed as long as asked, by the code that its inputs run", async () => {
  const { code, said } = await fuzz("iptables-list", "--minutes=0.05", "--seed=1");
  assertMatch(
    said,
    /^1 targets, 0.05 minutes each, seed 1\niptables-list: \d+ inputs in \d+ s \(\d+\/s\), \d\d+ blocks, /,
  );
  assertEquals(code, 0, said);
});

Deno.test("what is no target is reported with those that are", async () => {
  const { code, said } = await fuzz("iptable-list");
  assertMatch(said, /^No target is called "iptable-list": configuration, kubeconfig, /);
  assertEquals(code, 2);
});
