/**
 * `kproxy selftest`: real packets show whether this node can run a proxy mode.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { ownProgram, runAgent } from "../../inspect/selftest/agent.ts";
import { isPassed, reportDocument, reportLines } from "../../inspect/selftest/report.ts";
import { selftest, SelftestError } from "../../inspect/selftest/selftest.ts";
import { systemClock, wallClockMs } from "../../kernel/clock.ts";
import { type Exec, systemExec } from "../../kernel/exec.ts";
import { interfaceIps } from "../../kernel/machine.ts";
import { nodeSysctls } from "../../kernel/sysctl.ts";
import type { IpFamily } from "../../model/objects.ts";
import { silentLogger } from "../../observe/log.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { EndedBySignals, type Io } from "../io.ts";
import { Activity } from "../terminal/drawing.ts";
import { escaped } from "../../text/quote.ts";
import { configurationWithWarnings, printFound } from "./output.ts";

const USUAL_LIMIT_MS = 60_000;
const LEAST_LIMIT_MS = 1_000;

/** Tests and reports; 0 if all went well, 1 if not. */
export async function selftestCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const [operand] = flags.operands;
  if (operand === "agent") return await runAgent(Deno.stdin.readable, (text) => io.out(text));
  if (operand !== undefined) {
    throw new UsageError(`"kproxy selftest" does not take any arguments, got ["${operand}"]`);
  }
  const form = flags.outputForm("text");
  const limitMs = flags.get("time-limit") ?? USUAL_LIMIT_MS;
  if (limitMs < LEAST_LIMIT_MS) throw new UsageError("--time-limit is too short: 1s is the least");
  const { config: { mode } } = await configurationWithWarnings(flags, io);
  if (mode === "userspace") throw new UsageError("kproxy selftest tests iptables, ipvs and nftables only");
  using end = new EndedBySignals();
  try {
    const activity = new Activity(io.terminal ?? null);
    const report = await selftest({
      mode,
      families: await familiesOf(systemExec),
      exec: systemExec,
      clock: systemClock,
      nowMs: wallClockMs,
      random: crypto.randomUUID().slice(0, 8),
      program: await ownProgram(),
      limitMs,
      signal: end.signal,
      say: (text) => activity.say(text),
    }).finally(() => activity[Symbol.dispose]());
    await printFound(form, {
      document: () => reportDocument(report),
      lines: () => reportLines(report),
    }, io);
    return isPassed(report) ? 0 : 1;
  } catch (error) {
    if (!(error instanceof SelftestError)) throw error;
    for (const line of [error.message, ...error.left]) io.err(`Error: ${escaped(line)}\n`);
    return 1;
  }
}

/** IP families that the machine supports. */
async function familiesOf(exec: Exec): Promise<readonly IpFamily[]> {
  const { known, ipv6Disabled } = await nodeSysctls(exec, silentLogger);
  const hasSix = known ? ipv6Disabled === "0" : interfaceIps().some((ip) => ip.includes(":"));
  return hasSix ? ["IPv4", "IPv6"] : ["IPv4"];
}
