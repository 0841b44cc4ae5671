import { assertEquals } from "@std/assert";
import { flagLines, flagTexts } from "./flag_lines.ts";
import { FLAGS } from "./flags.ts";
import { parseArgs } from "./parse_args.ts";

Deno.test("every flag of the command has its value, given or default, and no flag of another one is there", {
  permissions: "none",
}, () => {
  const flags = parseArgs([
    "run",
    "--proxy-mode=nftables",
    "-v=4",
    "--iptables-sync-period=1m",
    "--manifests=a,b",
  ]);
  const texts = new Map(flagTexts(flags));
  assertEquals([...texts.keys()], [...texts.keys()].sort());
  const ofRun = FLAGS.filter(({ commands }) => commands.includes("run")).map(({ name }) => name);
  assertEquals([...texts.keys()], ofRun.sort());
  assertEquals(ofRun.length < FLAGS.length, true, "no flag belongs to other commands alone");
  for (
    const [name, text] of [
      ["proxy-mode", "nftables"],
      ["v", "4"],
      ["iptables-sync-period", "1m0s"],
      ["manifests", "[a,b]"],
      ["ipvs-sync-period", "30s"],
      ["cleanup", "false"],
      ["nodeport-addresses", "[]"],
      ["cluster-cidr", ""],
    ] as const
  ) assertEquals(texts.get(name), text, name);
  assertEquals(flagLines(flags).includes('FLAG: --v="4"'), true);
});
