/**
 * Which memory a Pod needs: `deno run -A tests/bench/pod_memory.ts [--mode nftables|iptables]... [--services N]... [--endpoints N]
 * [PROGRAM]`. PROGRAM is `kproxy.js` of the bundle (default `dist/kproxy-js/kproxy.js`, which `deno task bundle` makes).
 *
 * For each mode and size it starts kproxy as the image does, in a network namespace and a control group for memory of its own, and
 * prints what that group is charged with: kept, 10 s after the first sync of all families; of that the kernel's, for the rules
 * themselves; and at most until then, with the programs that write the rules. What the runtime finds out at a first start is found out
 * before, as by the Pod's first container; the runtime's file has been read before, too. Needs root.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { parseMode } from "./bench_modes.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { type ChargedMemory, MemoryCgroup } from "./memory_cgroup.ts";
import { assertProgrammed, type BenchMode } from "./mode.ts";

const TIMEOUT_MS = 900_000;
const REST_MS = 10_000;
const START_TIMEOUT_MS = 120_000;

/** What is measured. */
interface PodMemoryOptions {
  readonly modes: readonly BenchMode[];
  readonly sizes: readonly ClusterSize[];
  /** Path of `kproxy.js`. */
  readonly program: string;
}

/** @throws {RangeError} that says which argument does not fit */
export function parsePodMemoryArgs(words: readonly string[]): PodMemoryOptions {
  const args = parseArgs([...words], {
    string: ["mode", "services", "endpoints", "_"],
    collect: ["mode", "services"],
    unknown: (arg, key) => {
      if (key !== undefined) throw new RangeError(`Unknown argument ${arg}`);
    },
  });
  const number = (flag: string, text: string): number => {
    if (!/^[1-9]\d*$/.test(text)) throw new RangeError(`${flag} must be a number of 1 or more: got ${text}`);
    return Number(text);
  };
  const [modes, services] = [args.mode, args.services].map((given) => given as string[]);
  const endpoints = number("--endpoints", args.endpoints ?? "10");
  const [program = "dist/kproxy-js/kproxy.js", ...more] = args._.map(String);
  if (more.length > 0) throw new RangeError(`One program can be measured: got ${args._.join(" ")}`);
  return {
    modes: (modes!.length > 0 ? modes! : ["nftables", "iptables"]).map((mode) => parseMode(mode, "nft")),
    sizes: (services!.length > 0 ? services! : ["100", "1000", "5000"]).map((text) => ({
      services: number("--services", text),
      endpoints,
    })),
    program,
  };
}

async function measure(
  mode: BenchMode,
  size: ClusterSize,
  program: string,
  folder: string,
): Promise<ChargedMemory> {
  return await inBenchNetns(mode, async (netns) => {
    await using api = await FakeApi.start(netns, size, `${folder}/${mode.proxyMode}-${size.services}.sock`);
    await using cgroup = await MemoryCgroup.create();
    const { starter } = cgroup;
    await using kproxy = new KproxyProcess(netns, {
      ...{ master: api.url, mode: mode.proxyMode, program, starter },
    });
    await kproxy.allServed(TIMEOUT_MS);
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    const memory = await cgroup.memory();
    // After the figures, because what asks is not in the group, but what it reads may be.
    await assertProgrammed(mode, netns, size);
    return memory;
  });
}

if (import.meta.main) {
  const { modes, sizes, program: path } = parsePodMemoryArgs(Deno.args);
  const program = await Deno.realPath(path);
  await inBenchFolder(async (folder) => {
    // The Pod's second container finds what the first one has found out.
    Deno.env.set("DENO_DIR", `${folder}/deno`);
    const argv = [Deno.execPath(), "run", "-q", "--no-config", "--cached-only", ...runtimeFlags(), program];
    writeErrorLine((await runOk(systemExec, [...argv, "version"], { timeoutMs: START_TIMEOUT_MS })).trim());
    for (const mode of modes) {
      for (const size of sizes) {
        const { nowMb, kernelMb, peakMb } = await measure(mode, size, program, folder);
        writeLine(
          `${mode.proxyMode}, ${size.services} × ${size.endpoints}: kept ${nowMb.toFixed(0)} MB, ` +
            `of it the kernel's ${kernelMb.toFixed(0)}; at most ${peakMb.toFixed(0)} MB`,
        );
      }
    }
  });
}
