/**
 * `deno run -A tests/bench/start_times.ts [--mode nftables|iptables] [--services N] [--starts N] PROGRAM...`: starts each PROGRAM
 * (`kproxy.js` of a bundle) so often, in turns, in fresh network namespaces, and prints in milliseconds when the first and when all sample
 * Services had answered since the start of the process. Where several builds are compared, work beside it slows all of them alike.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { parseMode } from "./bench_modes.ts";
import { removeOpenNetns } from "./bench_netns.ts";
import { quantile } from "./figures.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { withRunningProxy } from "./running_proxy.ts";

const TIMEOUT_MS = 120_000;

/** Sizes and programs of one comparison. */
interface StartTimes {
  readonly mode: ReturnType<typeof parseMode>;
  readonly services: number;
  readonly starts: number;
  readonly programs: readonly string[];
}

/** Milliseconds until all sample Services answered, by program. */
async function measureStarts(
  { mode, services, starts, programs }: StartTimes,
  folder: string,
): Promise<ReadonlyMap<string, readonly number[]>> {
  const times = new Map<string, number[]>(programs.map((program) => [program, []]));
  for (let round = 0; round < starts; round++) {
    // Nobody is always the one who comes after the other.
    for (const program of round % 2 === 0 ? programs : programs.toReversed()) {
      const answeredMs = await withRunningProxy({
        mode,
        size: { services, endpoints: 10 },
        socket: `${folder}/${round}-${programs.indexOf(program)}.sock`,
        isWatched: false,
        timeoutMs: TIMEOUT_MS,
        start: (netns, master) => new KproxyProcess(netns, { master, mode: mode.proxyMode, program }),
      }, ({ answeredMs }) => Promise.resolve(answeredMs));
      if (answeredMs === null) throw new RangeError(`Services of mode ${mode.title} cannot be asked`);
      times.get(program)?.push(answeredMs);
    }
  }
  return times;
}

function line(program: string, ms: readonly number[]): string {
  const sorted = ms.toSorted((a, b) => a - b);
  const at = (part: number): string => quantile(sorted, part).toFixed(0);
  return `${program}: best ${at(0)}, quarter ${at(0.25)}, median ${at(0.5)} ms of ${ms.length}`;
}

if (import.meta.main) {
  const { mode, services, starts, _: programs } = parseArgs(Deno.args, {
    string: ["mode", "services", "starts", "_"],
    default: { mode: "nftables", services: "100", starts: "20" },
  });
  const folder = await Deno.makeTempDir({ prefix: "kproxy-starts-" });
  Deno.addSignalListener("SIGINT", async () => {
    await removeOpenNetns();
    Deno.exit(130);
  });
  try {
    const before = Deno.loadavg()[0];
    const times = await measureStarts({
      mode: parseMode(mode, "nft"),
      services: Number(services),
      starts: Number(starts),
      programs: await Promise.all(programs.map((program) => Deno.realPath(String(program)))),
    }, folder);
    writeErrorLine(
      `${mode}, ${services} × 10, load ${before?.toFixed(1)} to ${Deno.loadavg()[0]?.toFixed(1)}`,
    );
    for (const [program, ms] of times) writeLine(line(program, ms));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
