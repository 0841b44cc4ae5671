/**
 * A minute of chaos in each mode (`deno task chaos` has as much of it as one wants): changes and faults at random while clients connect,
 * after which the rules are those of a fresh start and nothing is left. The two modes that any kernel has run side by side.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { reportLines } from "../chaos/chaos.ts";
import type { ChaosModeName } from "../chaos/mode.ts";
import { runChaos } from "../chaos/run.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

const MINUTES = 1;
const UML_LIMIT_MS = 900_000;

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

e2eTest(
  "a minute of chaos in mode ipvs, in a user-mode Linux",
  [...UML_NEEDS, program("curl"), program("prlimit")],
  () => testInUml(["tests/lab/chaos_in_uml.ts"], "1 passed | 0 failed", UML_LIMIT_MS),
);
