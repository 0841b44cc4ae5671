import { assertEquals, assertStringIncludes } from "@std/assert";
import { kubeProxyMarkdown, type RecordedRun } from "../../tools/kube_proxy_record.ts";
import { ROOT } from "../../tools/project_files.ts";

async function tryKubeProxy(args: readonly string[], KUBE_PROXY: string): Promise<[number, string]> {
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", "tests/kube_proxy/try_kube_proxy.ts", ...args],
    cwd: ROOT,
    env: { KUBE_PROXY },
    stdin: "null",
  }).output();
  return [code, new TextDecoder().decode(stderr)];
}

Deno.test("without a kube-proxy the task says what it needs and ends with 2", async () => {
  const [code, said] = await tryKubeProxy([], "");
  assertEquals(code, 2);
  assertStringIncludes(said, "KUBE_PROXY must be the path of a kube-proxy");
  for (
    const [args, path, words] of [
      [[], "/nowhere/kube-proxy", "KUBE_PROXY /nowhere/kube-proxy: there is no such file"],
      [["rule"], "/bin/true", "there is no part rule"],
      [["--mode=userspace"], "/bin/true", "--mode must be one of iptables, nftables, ipvs"],
    ] as const
  ) {
    const [code, said] = await tryKubeProxy(args, path);
    assertEquals(code, 2);
    assertStringIncludes(said, words);
  }
});

Deno.test(
  "the table has a row for each part and mode, and says what was wrong",
  { permissions: "none" },
  () => {
    const run = (part: RecordedRun["part"], mode: string, problems: readonly string[]): RecordedRun => ({
      part,
      mode,
      problems,
      command: "",
      date: "2026-11-25T23:00:00Z",
      commit: "0123456789abcdef+",
      machine: {},
      versions: { kubeProxy: "kube-proxy 1.36.2" },
      words: "a\n  b",
      figures: null,
    });
    const table = kubeProxyMarkdown([run("takeover", "nftables", ["x"]), run("rules", "ipvs", [])]);
    assertEquals(table.split("\n").slice(2), [
      "| the rules of random worlds, line by line | ipvs | a<br>b | 0 | kube-proxy 1.36.2 | 2026-11-25, 01234567+ |",
      "| takeover under connect loops | nftables | a<br>b | 1 | kube-proxy 1.36.2 | 2026-11-25, 01234567+ |",
    ]);
  },
);
