/**
 * `kproxy selftest` with real packets: the modes pass on this machine, a tool that loses a rule is found out, and nothing is left, however
 * ends it.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { findProgram } from "../../tools/setup.ts";
import { kproxy, kproxyArgv } from "../cli/kproxy.ts";
import { IPTABLES, NFTABLES, nftTables } from "../support/lab_mode.ts";
import { saveAll } from "../support/lab_rules.ts";
import { type Netns, withNamespaces, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";

const NEEDS = [ROOT_NAMESPACES, ...["ip", "sysctl", "iptables", "ip6tables", "nft"].map(program)];
const HOSTS = 5;

interface Result {
  readonly passed: boolean;
  readonly mode: string;
  readonly families: readonly string[];
  readonly notes: readonly string[];
  readonly checks: readonly { readonly result: string; readonly name: string; readonly reason: string }[];
}

/** Those of tests that are running, or were not taken away. */
async function selftestNamespaces(netns: Netns): Promise<readonly string[]> {
  const text = await netns.run(["ip", "netns", "list"]);
  return text.split("\n").filter((line) => line.startsWith("kproxy-selftest-"));
}

e2eTest("two at once, in different modes, both pass and leave nothing", NEEDS, async () => {
  await withNamespaces(2, async (namespaces) => {
    const modes = [IPTABLES, NFTABLES];
    await Promise.all(namespaces.map(async (netns, index) => {
      const { name } = modes[index]!;
      const options = { netns: netns.name };
      const { code, out, err } = await kproxy(["selftest", `--proxy-mode=${name}`, "-o", "json"], options);
      const { passed, mode, families, checks, notes } = JSON.parse(out) as Result;
      assertEquals(checks.filter(({ result }) => result !== "ok"), []);
      assertEquals([code, err, passed, mode, notes], [0, "", true, name, []], out);
      assertEquals(families, ["IPv4", "IPv6"]);
      assertEquals(checks.length, 22);
      // Where it was started, no rule has come to be.
      assertEquals((await saveAll(netns)).match(/KUBE-|^-A/gm), null);
      assertEquals(await nftTables(netns, "kproxy"), []);
      assertEquals((await netns.run(["sysctl", "-n", "net.ipv4.conf.all.route_localnet"])).trim(), "0");
    }));
    assertEquals(await selftestNamespaces(namespaces[0]!), []);
  });
});

e2eTest("a tool that loses a rule without a word is found out by the packets", NEEDS, async () => {
  const real = findProgram("nft");
  const losing = `sed 's/ masquerade fully-random/ counter/' | exec ${real} "$@"`;
  await using nft = await StubProgram.create("nft", "*-f -*", losing);
  await withNetns(async (netns) => {
    const argv = ["selftest", "--proxy-mode=nftables"];
    const path = `${nft.folder}:${Deno.env.get("PATH")}`;
    const { code, stdout } = await new Deno.Command("ip", {
      args: ["netns", "exec", netns.name, Deno.execPath(), ...kproxyArgv(), ...argv],
      env: { PATH: path },
      stdin: "null",
    }).output();
    const out = new TextDecoder().decode(stdout);
    assertEquals(code, 1, out);
    assertStringIncludes(out, "mode nftables does not work here as it should");
    assert(/^failed +IPv4 +a pod that is its own endpoint/m.test(out), out);
    assert(/^ok +IPv4 +no endpoints, from a pod/m.test(out), out);
    assertEquals(await selftestNamespaces(netns), []);
  });
});

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  e2eTest(`${signal} half way takes everything away`, NEEDS, async () => {
    await withNetns(async (netns) => {
      const args = ["netns", "exec", netns.name, Deno.execPath(), ...kproxyArgv(), "selftest"];
      const child = new Deno.Command("ip", { args, stdin: "null", stdout: "piped", stderr: "piped" }).spawn();
      const output = child.output();
      // Once the last namespace is there, children are started in them.
      while ((await selftestNamespaces(netns)).length < HOSTS) await new Promise((go) => setTimeout(go, 20));
      child.kill(signal);
      const { code, stdout, stderr } = await output;
      const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
      assertEquals([code, out, err], [1, "", "Error: selftest was ended before it was done\n"]);
      assertEquals(await selftestNamespaces(netns), []);
    });
  });
}
