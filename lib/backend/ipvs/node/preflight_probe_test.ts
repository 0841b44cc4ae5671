import { assertEquals, assertRejects } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { UnsupportedError } from "../../../errors.ts";
import { type Exec, type ExecResult, wholeText } from "../../../kernel/exec.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import { requireSetsAndMatches } from "./preflight.ts";

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

function probe(exec: Exec): Promise<void> {
  const programs = { command: "iptables", save: "iptables-save", restore: "iptables-restore" };
  const iptables = new Iptables(exec, { family: "IPv4", variant: "nft", version: "1.8.9", programs });
  return requireSetsAndMatches(exec, [iptables]);
}

Deno.test("where everything is there, nothing is left behind", NONE, async () => {
  const { fake, exec } = kernelWithout([]);
  const before = JSON.stringify(fake.kernel.snapshot());
  await probe(exec);
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
}
