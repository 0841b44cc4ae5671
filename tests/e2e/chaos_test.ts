/**
 * A minute of chaos in each of the modes that any kernel has, side by side (`deno task chaos` has all modes and as much of it as one
 * wants): changes and faults at random while clients connect, after which the rules are those of a fresh start and nothing is left.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { reportLines } from "../chaos/chaos.ts";
import type { ChaosModeName } from "../chaos/mode.ts";
import { runChaos } from "../chaos/run.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";

const MINUTES = 1;

async function chaos(mode: ChaosModeName, seed: number): Promise<void> {
  const lines: string[] = [];
  const report = await runChaos({ mode, minutes: MINUTES, seed, log: (line) => lines.push(line) });
  const again = `deno task chaos --mode ${mode} --minutes ${MINUTES} --seed ${seed}`;
  assertEquals(report.problems, [], [...reportLines(report), ...lines, again].join("\n"));
}

e2eTest(
  "a minute of chaos in modes iptables and nftables",
  [...WEB_NEEDS, ...["iptables-nft", "nft", "curl", "prlimit"].map(program)],
  async () => {
    await Promise.all([chaos("iptables", 84), chaos("nftables", 31)]);
  },
);
