import { assertEquals, assertRejects } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { wholeText } from "../../../kernel/exec.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import type { SetDefinition } from "../../../netfilter/ipset.ts";
import { setNames } from "../plan/sets.ts";
import { type ProbeOptions, requireSetsAndMatches } from "./preflight_probe.ts";

const NONE = { permissions: "none" } as const;

/** `ipset` has done what stands before the line that it cannot do. */
async function ranUpTo(
  fake: FakeIpvs,
  argv: readonly string[],
  lines: readonly string[],
): Promise<ExecResult> {
  const isSets = argv[0] === "ipset";
  if (isSets) await fake.run(argv, { stdin: lines.map((line) => `${line}\n`).join("") });
  const place = isSets ? `ipset v7.17: Error in line ${lines.length + 1}: ` : "";
  return { code: 2, stdout: "", stderr: `${place}no such thing\n` };
}

/** A kernel without those things of which one of the words tells. */
function kernelWithout(words: readonly string[]): { readonly fake: FakeIpvs; readonly exec: Exec } {
  const fake = new FakeIpvs();
  return {
    fake,
    exec: {
      run: (argv, options) => {
        const text = wholeText(options?.stdin ?? "");
        const lines = text.split("\n");
        const missing = lines.findIndex((line) => words.some((word) => `${line} `.includes(word)));
        if (missing < 0) return fake.run(argv, options);
        return ranUpTo(fake, argv, lines.slice(0, missing));
      },
    },
  };
}

function probe(exec: Exec, options: ProbeOptions = {}): Promise<readonly SetDefinition[]> {
  const programs = { command: "iptables", save: "iptables-save", restore: "iptables-restore" };
  const iptables = new Iptables(exec, { family: "IPv4", variant: "nft", version: "1.8.9", programs });
  return requireSetsAndMatches(exec, [iptables], options);
}

Deno.test("where everything is there, nothing is left behind", NONE, async () => {
  const { fake, exec } = kernelWithout([]);
  const before = JSON.stringify(fake.kernel.snapshot());
  await probe(exec);
  assertEquals(JSON.stringify(fake.kernel.snapshot()), before);
});

Deno.test("on a fresh node the mode's own sets are tried, and stay", NONE, async () => {
  const { fake, exec } = kernelWithout([]);
  const sets = await probe(exec, { isFresh: true });
  assertEquals(sets.map(({ name }) => name), setNames("IPv4"));
  assertEquals([...fake.kernel.sets.keys()].toSorted(), setNames("IPv4").toSorted());
  assertEquals(fake.runs, ["ipset restore", "iptables-restore -w"]);
});

Deno.test("where a set is there already, it stays as it is and nothing else does", NONE, async () => {
  const { fake, exec } = kernelWithout([]);
  await exec.run(["ipset", "restore"], {
    stdin:
      "create KUBE-IPVS-IPS hash:ip family inet hashsize 1024 maxelem 65536\nadd KUBE-IPVS-IPS 10.96.0.1\n",
  });
  const before = JSON.stringify(fake.kernel.snapshot());
  assertEquals(await probe(exec, { isFresh: true }), []);
  assertEquals(JSON.stringify(fake.kernel.snapshot()), before);
});

for (
  const [words, message] of [
    [[" hash:ip,port,net "], "the kernel module ip_set_hash_ipportnet"],
    [[" bitmap:port "], "the kernel module ip_set_bitmap_port"],
    [[" hash:ip ", " hash:ip,port,ip "], "the kernel modules ip_set_hash_ip, ip_set_hash_ipportip"],
    [["-m ipvs "], "the kernel module xt_ipvs"],
    [["-m set "], "the kernel module xt_set"],
    [["-m physdev ", "-m comment "], "the kernel modules xt_physdev, xt_comment"],
  ] satisfies [string[], string][]
) {
  Deno.test(`missing: ${message}`, NONE, async () => {
    const { fake, exec } = kernelWithout(words);
    const error = await assertRejects(() => probe(exec), UnsupportedError);
    assertEquals([error.needs, error.found.replace(/^ipset .*: /, "")], [message, "no such thing"]);
    assertEquals(fake.kernel.sets.size, 0);
  });

  Deno.test(`missing on a fresh node: ${message}`, NONE, async () => {
    const { fake, exec } = kernelWithout(words);
    await assertRejects(() => probe(exec, { searches: false, isFresh: true }), ExecError, "no such thing");
    assertEquals(fake.kernel.sets.size, 0);
  });
}
