/**
 * `deno run -A tests/bench/start_times.ts [--mode nftables|iptables] [--services N] [--starts N] PROGRAM...`: starts each PROGRAM
 * (`kproxy.js` of a bundle) so often, in turns, in fresh network namespaces, and prints in milliseconds, since the start of the process:
 *
 * - _first commit_: when the kernel said that it had taken the first transaction, with chains or with rules;
 * - _first rule_: likewise the first one with a Service's address in it;
 * - _answered_: when all sample Services had answered a connection.
 *
 * Where several builds are compared, work beside it slows all of them alike. Who reads the kernel's messages is a process of its own, and
 * looks at the first addresses of each transaction only.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { parseMode } from "./bench_modes.ts";
import { removeOpenNetns } from "./bench_netns.ts";
import { quantile } from "./figures.ts";
import { KernelWatch, showsChange } from "./kernel_watch.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { withRunningProxy } from "./running_proxy.ts";

const TIMEOUT_MS = 120_000;
/** Of each transaction so many addresses are looked at; those of Services are not the last ones. */
const ENTRIES = 100;

/** Sizes and programs of one comparison. */
interface StartTimes {
  readonly mode: ReturnType<typeof parseMode>;
  readonly services: number;
  readonly starts: number;
  readonly programs: readonly string[];
}

/** Milliseconds since the start of the process. */
interface StartTime {
  readonly firstCommit: number;
  readonly firstRule: number;
  readonly answered: number;
}

const TITLES: Readonly<Record<keyof StartTime, string>> = {
  firstCommit: "first commit",
  firstRule: "first rule",
  answered: "answered",
};

/** The starts of each program. */
async function measureStarts(
  { mode, services, starts, programs }: StartTimes,
  folder: string,
): Promise<ReadonlyMap<string, readonly StartTime[]>> {
  const times = new Map<string, StartTime[]>(programs.map((program) => [program, []]));
  for (let round = 0; round < starts; round++) {
    // Nobody is always the one who comes after the other.
    for (const program of round % 2 === 0 ? programs : programs.toReversed()) {
      const socket = `${folder}/${round}-${programs.indexOf(program)}.sock`;
      times.get(program)?.push(await measureStart({ mode, services, program, socket }));
    }
  }
  return times;
}

async function measureStart(
  { mode, services, program, socket }: Pick<StartTimes, "mode" | "services"> & {
    readonly program: string;
    readonly socket: string;
  },
): Promise<StartTime> {
  await using stack = new AsyncDisposableStack();
  const { promise: watching, resolve: onWatch } = Promise.withResolvers<KernelWatch>();
  return await withRunningProxy({
    mode,
    size: { services, endpoints: 10 },
    socket,
    isWatched: false,
    timeoutMs: TIMEOUT_MS,
    start: async (netns, master) => {
      onWatch(stack.use(await KernelWatch.open(netns, showsChange, ENTRIES)));
      return new KproxyProcess(netns, { master, mode: mode.proxyMode, program });
    },
  }, async ({ process: { startedMs }, answeredMs }) => {
    if (answeredMs === null) throw new RangeError(`Services of mode ${mode.title} cannot be asked`);
    const watch = await watching;
    const [commit, rule] = [await watch.commit(null, 0, TIMEOUT_MS), await watch.firstService(TIMEOUT_MS)];
    return {
      firstCommit: commit.atMs - startedMs,
      firstRule: rule.atMs - startedMs,
      answered: answeredMs,
    };
  });
}

function* lines(program: string, times: readonly StartTime[]): Generator<string> {
  yield `${program}, ${times.length} starts, ms:`;
  for (const key of Object.keys(TITLES) as (keyof StartTime)[]) {
    const sorted = times.map((time) => time[key]).sort((a, b) => a - b);
    const at = (part: number): string => quantile(sorted, part).toFixed(0);
    yield `  ${TITLES[key]}: best ${at(0)}, quarter ${at(0.25)}, median ${at(0.5)}`;
  }
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
    for (const [program, ofProgram] of times) for (const line of lines(program, ofProgram)) writeLine(line);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
