/**
 * The benchmark task: `deno task bench [--services N] [--endpoints N] [--touches N] [--added N] [--rounds N]
 * [--rest-seconds N] [--idle-seconds N] [--spacing-ms N] [--mode iptables|nftables|ipvs] [--variant nft|legacy] [--program PATH] [--peer PATH]
 * [--one-transaction] [--json]`. Needs root; works in network namespaces of its own, those of mode ipvs in a user-mode Linux that it
 * boots. `--program` is `kproxy.js` of a bundle, instead of the source; `--peer` a kube-proxy, which is measured beside kproxy. `--mode userspace`
 * measures connections instead: `bench_forwarding`.
 *
 * @module
 */
import { Activity } from "../../lib/cli/terminal/activity.ts";
import { ProgressLine } from "../../lib/cli/terminal/progress_line.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { errorTerminal } from "../../tools/terminal.ts";
import { type BenchArgs, isUserspace, parseBenchArgs } from "./bench_args.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { benchForwarding } from "./bench_forwarding.ts";
import { isUserModeLinux, runInLab } from "./lab.ts";
import { type BenchOptions, type BenchResult, measure } from "./measure.ts";
import { findPeer } from "./peer_process.ts";
import { resultTable } from "./report.ts";

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

/** The arguments, and what stands at their paths; a mistake is a line, and ends the program with status 2. */
async function readArgs(): Promise<BenchArgs & { found: Pick<BenchOptions, "program" | "peer"> }> {
  try {
    const args = parseBenchArgs(Deno.args);
    const peer = args.peer === undefined ? null : await findPeer(args.peer);
    const program = args.program === undefined ? {} : { program: await Deno.realPath(args.program) };
    return { ...args, found: { peer, ...program } };
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof Deno.errors.NotFound)) throw error;
    writeErrorLine(error.message);
    Deno.exit(2);
  }
}

/** Measures a mode whose rules are in the kernel. */
async function benchRules(): Promise<void> {
  const { options, found, isJson } = await readArgs();
  if (options.mode.proxyMode === "ipvs" && !isUserModeLinux()) {
    writeErrorLine("In a user-mode Linux, which prints its output when it ends");
    Deno.exit(await runInLab(import.meta.filename ?? "", Deno.args));
  }
  await inBenchFolder(async (folder) => {
    const result = await measureShown({ ...options, ...found }, folder);
    for (const line of isJson ? [JSON.stringify(result, null, 2)] : resultTable(result)) writeLine(line);
  });
}

if (import.meta.main) {
  if (isUserspace(Deno.args)) await benchForwarding(Deno.args);
  else await benchRules();
}
