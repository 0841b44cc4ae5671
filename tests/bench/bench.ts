/**
 * The benchmark task: `deno task bench [--services N] [--endpoints N] [--touches N] [--added N] [--rounds N]
 * [--rest-seconds N] [--idle-seconds N] [--spacing-ms N] [--mode iptables|nftables|ipvs] [--variant nft|legacy] [--one-transaction] [--json]`. Needs root; works in network namespaces of its own,
 * those of mode ipvs in a user-mode Linux that it boots. `--mode userspace` measures connections instead: `bench_forwarding`.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { Activity } from "../../lib/cli/terminal/activity.ts";
import { ProgressLine } from "../../lib/cli/terminal/progress_line.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { errorTerminal } from "../../tools/terminal.ts";
import { benchForwarding } from "./bench_forwarding.ts";
import { parseMode } from "./bench_modes.ts";
import { removeOpenNetns } from "./bench_netns.ts";
import { isUserModeLinux, LAB_FOLDER, runInLab } from "./lab.ts";
import { type BenchOptions, type BenchResult, measure } from "./measure.ts";
import { resultTable } from "./report.ts";

function positive(name: string, text: string | undefined): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new RangeError(`--${name} must be a number of 1 or more: got ${text}`);
  }
  return value;
}

/** Measures; each phase is a line, and a terminal also shows that it goes on and how many changes are done. */
async function measureShown(
  options: Omit<BenchOptions, "onProgress" | "onChange">,
  folder: string,
): Promise<BenchResult> {
  const { size: { services, endpoints } } = options;
  const terminal = errorTerminal();
  using phase = new Activity(terminal);
  await using lines = new AsyncDisposableStack();
  let changes: ProgressLine | undefined;
  return await measure({
    ...options,
    onProgress: (message) => {
      phase.say("");
      writeErrorLine(`${services} × ${endpoints}: ${message}`);
      phase.say(message);
    },
    onChange: (done, of) => {
      // One line at the bottom at a time.
      phase.say("");
      changes ??= lines.use(new ProgressLine(terminal, of));
      changes.reach(done, `${done} of ${of} changes`);
    },
  }, folder);
}

async function stop(folder: string): Promise<void> {
  await removeOpenNetns();
  await Deno.remove(folder, { recursive: true });
  Deno.exit(130);
}

/** The mode alone, of which the other arguments depend. */
function isUserspace(): boolean {
  return parseArgs(Deno.args, { string: ["mode"] }).mode === "userspace";
}

if (import.meta.main) {
  if (isUserspace()) {
    await benchForwarding(Deno.args);
    // The listeners would keep the process alive.
    Deno.exit(0);
  }
  const args = parseArgs(Deno.args, {
    boolean: ["json", "one-transaction"],
    string: [
      "services",
      "endpoints",
      "touches",
      "added",
      "rounds",
      "mode",
      "variant",
      "program",
      "idle-seconds",
      "rest-seconds",
      "spacing-ms",
    ],
    default: {
      services: "1000",
      endpoints: "10",
      touches: "100",
      added: "10",
      rounds: "3",
      mode: "iptables",
      variant: "nft",
      "idle-seconds": "40",
      "rest-seconds": "0",
      "spacing-ms": "1300",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const size = {
    services: positive("services", args.services),
    endpoints: positive("endpoints", args.endpoints),
  };
  const options: Omit<BenchOptions, "onProgress" | "onChange"> = {
    size,
    mode: parseMode(args.mode, args.variant),
    touches: positive("touches", args.touches),
    added: positive("added", args.added),
    rounds: positive("rounds", args.rounds),
    spacingMs: positive("spacing-ms", args["spacing-ms"]),
    restMs: 1000 * Number(args["rest-seconds"]),
    idleMs: 1000 * positive("idle-seconds", args["idle-seconds"]),
    oneTransaction: args["one-transaction"],
    ...(args.program === undefined ? {} : { program: await Deno.realPath(args.program) }),
  };
  if (args.mode === "ipvs" && !isUserModeLinux()) {
    writeErrorLine("In a user-mode Linux, which prints its output when it ends");
    Deno.exit(await runInLab(import.meta.filename ?? "", Deno.args));
  }
  const folder = await Deno.makeTempDir({
    prefix: "kproxy-bench-",
    ...(isUserModeLinux() ? { dir: LAB_FOLDER } : {}),
  });
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => void stop(folder));
  }
  try {
    const result = await measureShown(options, folder);
    for (const line of args.json ? [JSON.stringify(result, null, 2)] : resultTable(result)) writeLine(line);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  // The listeners would keep the process alive.
  Deno.exit(0);
}
