/**
 * What happens in a cluster that is far too large: `deno run -A tests/bench/large_times.ts [--mode nftables|iptables] [--variant nft]
 * [--services N] [--endpoints N] [--touches N] [--idle-seconds N] [--program PATH]`. Needs root and memory; works in a network namespace of
 * its own. Each figure is told as soon as it is known.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeLine } from "../../tools/output.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { parseMode } from "./bench_modes.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { distribution } from "./figures.ts";
import { kernelMb } from "./kernel_memory.ts";
import { isFirstSync, KproxyProcess } from "./kproxy_process.ts";
import { assertProgrammed, type BenchMode } from "./mode.ts";

const TIMEOUT_MS = 1_800_000;
/** More than the default minimum sync period. */
const SPACING_MS = 1_300;

interface LargeOptions {
  readonly size: ClusterSize;
  readonly mode: BenchMode;
  readonly touches: number;
  readonly idleMs: number;
  /** `kproxy.js` of a bundle; the source if undefined. */
  readonly program: string | undefined;
}

const startMs = performance.now();

function tell(text: string): void {
  writeLine(`${((performance.now() - startMs) / 1000).toFixed(1).padStart(7)} s: ${text}`);
}

function megabytes(mb: number): string {
  return `${mb.toFixed(0)} MB`;
}

async function tellMemory(kproxy: KproxyProcess): Promise<void> {
  const { nowMb, peakMb, anonymousMb } = await kproxy.memory();
  tell(
    `memory ${megabytes(nowMb)} resident, ${megabytes(anonymousMb)} of it anonymous, ${
      megabytes(peakMb)
    } at most`,
  );
}

async function tellFirstSync(kproxy: KproxyProcess, what: string): Promise<void> {
  const { ts, ...line } = await kproxy.line((each) => isFirstSync(each), 0, TIMEOUT_MS);
  const said = ["took", "read", "plan", "apply", "commands", "bytes", "rulesWritten"]
    .map((key) => `${key} ${line[key]}`).join(", ");
  tell(`${what} after ${((ts - kproxy.startedMs) / 1000).toFixed(2)} s: ${said}`);
  await kproxy.allServed(TIMEOUT_MS);
}

async function measureLarge(
  { size, mode, touches, idleMs, program }: LargeOptions,
  folder: string,
): Promise<void> {
  await inBenchNetns(mode, async (netns) => {
    await using api = await FakeApi.start(netns, size, `${folder}/large.sock`);
    tell(`the API server has ${size.services} × ${size.endpoints}`);
    const flags = { master: api.url, mode: mode.proxyMode, ...program === undefined ? {} : { program } };
    const before = await kernelMb();
    {
      await using watch = await mode.openWatch?.(netns);
      await using kproxy = new KproxyProcess(netns, flags);
      await tellFirstSync(kproxy, "first sync");
      await tellMemory(kproxy);
      tell(`the kernel holds ${megabytes(await kernelMb() - before)} more than before`);
      await kproxy.settled(TIMEOUT_MS);
      tell(`CPU time of the start ${((await kproxy.cpuMs()) / 1000).toFixed(1)} s, programs included`);
      const times: number[] = [];
      for (let touch = 0; touch < touches; touch++) {
        const position = watch?.position ?? 0;
        const { atMs, ip } = await api.change("/touch", touch * 37 % size.services);
        const commit = await watch?.commit({ kind: "added", ip }, position, TIMEOUT_MS);
        if (commit !== undefined) times.push(commit.atMs - atMs);
        await new Promise((resolve) => setTimeout(resolve, SPACING_MS));
      }
      if (times.length > 0) {
        const { p50, max, count } = distribution(times);
        tell(`endpoint replaced, p50 / max of ${count}: ${p50.toFixed(1)} / ${max.toFixed(1)} ms`);
      }
      const from = await kproxy.cpuParts();
      await new Promise((resolve) => setTimeout(resolve, idleMs));
      const to = await kproxy.cpuParts();
      const percent = (ms: number): string => `${(100 * ms / idleMs).toFixed(2)} %`;
      tell(
        `at rest ${percent(to.ownMs - from.ownMs)} of a core, programs ${
          percent(to.programsMs - from.programsMs)
        }`,
      );
      await tellMemory(kproxy);
    }
    await assertProgrammed(mode, netns, size);
    tell("every Service and endpoint is in the kernel");
    {
      await using kproxy = new KproxyProcess(netns, flags);
      await tellFirstSync(kproxy, "restart over these rules: first sync");
      await kproxy.settled(TIMEOUT_MS);
      await tellMemory(kproxy);
      // What is only told has a verbosity.
      const problems = kproxy.lines.filter((line) => "err" in line && !("v" in line));
      for (const line of problems) tell(JSON.stringify(line));
    }
  });
  tell("done");
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    string: ["services", "endpoints", "touches", "idle-seconds", "mode", "variant", "program"],
    default: {
      services: "100000",
      endpoints: "10",
      touches: "20",
      "idle-seconds": "60",
      mode: "nftables",
      variant: "nft",
    },
    unknown: (arg) => {
      throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  await inBenchFolder(async (folder) => {
    await measureLarge({
      size: { services: Number(args.services), endpoints: Number(args.endpoints) },
      mode: parseMode(args.mode, args.variant),
      touches: Number(args.touches),
      idleMs: 1000 * Number(args["idle-seconds"]),
      program: args.program === undefined ? undefined : await Deno.realPath(args.program),
    }, folder);
  });
}
