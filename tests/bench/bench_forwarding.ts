/**
 * `deno task bench --mode userspace [--rounds N] [--seconds N] [--requests N] [--idle N] [--program dist/kproxy-js/kproxy.js]
 * [--json]`: what forwards connections, measured in turns. Needs root; works in a network namespace of its own.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { Activity } from "../../lib/cli/terminal/activity.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { BENCH_PACKAGES, installPackages } from "../../tools/setup.ts";
import { errorTerminal } from "../../tools/terminal.ts";
import { type Netns, removeNetns } from "../support/netns.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { FORWARDERS, present } from "./forwarders.ts";
import { type ForwardingResult, measureForwarding } from "./forwarding.ts";
import { forwardingTable } from "./forwarding_report.ts";

function atLeast(least: number, name: string, text: string | undefined): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < least) {
    throw new RangeError(`--${name} must be a number of ${least} or more: got ${text}`);
  }
  return value;
}

/** Measures and prints; resolves when everything is removed again. */
export async function benchForwarding(words: readonly string[]): Promise<void> {
  const args = parseArgs([...words], {
    boolean: ["json"],
    string: ["mode", "rounds", "seconds", "requests", "idle", "program"],
    default: { rounds: "3", seconds: "3", requests: "3000", idle: "10000" },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const options = {
    program: args.program === undefined ? null : await Deno.realPath(args.program),
    rounds: atLeast(1, "rounds", args.rounds),
    streamMs: 1000 * atLeast(1, "seconds", args.seconds),
    requests: atLeast(1, "requests", args.requests),
    idle: atLeast(0, "idle", args.idle),
  };
  await installPackages(BENCH_PACKAGES);
  const { here, missing } = present(FORWARDERS);
  let open: Netns | undefined;
  const removeOpen = async (): Promise<void> => {
    if (open !== undefined) await removeNetns(open);
  };
  await inBenchFolder(async (folder) => {
    using phase = new Activity(errorTerminal());
    const onProgress = (message: string): void => {
      phase.say("");
      writeErrorLine(message);
      phase.say(message);
    };
    const measured = await measureForwarding({ ...options, kinds: here, onProgress }, folder, (netns) => {
      open = netns;
    });
    phase.say("");
    const result: ForwardingResult = { ...measured, missing };
    for (const line of args.json ? [JSON.stringify(result, null, 2)] : forwardingTable(result)) {
      writeLine(line);
    }
  }, removeOpen);
}
