/**
 * Brings up a Kubernetes cluster on this machine, runs kproxy there as its own DaemonSet, and Kubernetes' own tests against it:
 *
 * deno task try-cluster --binaries DIR [--proxy kproxy|kube-proxy] [--mode M] [--focus REGEX] [--skip REGEX] [--steps all|NAME,…]
 *   [--families IPv4,IPv6] [--nodes N] [--procs N] [--limit SECONDS] [--folder DIR] [--keep] [--record]
 *
 * Exit status: 0 if no test failed, 1 if some did, 2 for wrong use. README.md says what `DIR` holds.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import type { ProxyMode } from "../../lib/config/types.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { Cluster } from "./cluster.ts";
import { makeImages } from "./image.ts";
import { checkBinaries } from "./plan.ts";
import { type ProxyName, runProxy } from "./proxies.ts";
import { type ConformanceRecord, keepRecord } from "./record.ts";
import { runSteps, stepsNamed } from "./steps.ts";
import { circumstances, FOCUS, runUpstream } from "./upstream.ts";

const RECORDS = new URL("../../docs/records/cluster", import.meta.url).pathname;
const FLAGS = {
  string: [
    ...[
      "binaries",
      "proxy",
      "mode",
      "focus",
      "skip",
      "steps",
      "families",
      "nodes",
      "procs",
      "limit",
      "folder",
    ],
  ],
  boolean: ["keep", "record", "down"],
  default: {
    proxy: "kproxy",
    mode: "nftables",
    families: "IPv4,IPv6",
    nodes: "3",
    procs: "3",
    limit: "1500",
  },
} as const;
const FAMILY_ORDERS = ["IPv4,IPv6", "IPv6,IPv4", "IPv4", "IPv6"];

/** The command line, read. */
interface Options {
  readonly binaries: string;
  readonly proxy: ProxyName;
  readonly mode: ProxyMode;
  readonly focus: string;
  readonly skip: string | undefined;
  readonly steps: string;
  readonly families: readonly IpFamily[];
  readonly nodes: number;
  readonly procs: number;
  readonly limitSeconds: number;
  /** `""`: one that is removed at the end. */
  readonly folder: string;
  readonly keep: boolean;
  readonly record: boolean;
  readonly down: boolean;
}

/** @throws {TypeError} that says what is wrong */
function parse(args: readonly string[]): Options {
  const unknown: string[] = [];
  const flags = parseArgs([...args], { ...FLAGS, unknown: (arg) => (unknown.push(arg), false) });
  if (unknown.length > 0) throw new TypeError(`what is ${unknown.join(" ")}?`);
  const { binaries = "", focus = FOCUS, skip, steps = "", folder = "", keep, record, down } = flags;
  const { families: order = "" } = flags;
  if (binaries === "") throw new TypeError("--binaries DIR is needed: README.md says what it holds");
  const proxy = (["kproxy", "kube-proxy"] as const).find((name) => name === flags.proxy);
  if (proxy === undefined) throw new TypeError("--proxy must be kproxy or kube-proxy");
  const mode = (["nftables", "iptables", "ipvs", "userspace"] as const).find((name) => name === flags.mode);
  if (mode === undefined) throw new TypeError("--mode must be nftables, iptables, ipvs or userspace");
  if (!FAMILY_ORDERS.includes(order)) {
    throw new TypeError(`--families must be one of ${FAMILY_ORDERS.join(" ")}`);
  }
  if (keep && folder === "") {
    throw new TypeError("--keep needs a --folder, by which the cluster is found again");
  }
  const [nodes, procs, limitSeconds] = [flags.nodes, flags.procs, flags.limit].map(Number);
  if (!(nodes! >= 1 && nodes! <= 9)) throw new TypeError("--nodes must be 1 to 9");
  stepsNamed(steps);
  const families = order.split(",") as IpFamily[];
  const numbers = { nodes: nodes!, procs: procs!, limitSeconds: limitSeconds! };
  return { binaries, proxy, mode, focus, skip, steps, families, folder, keep, record, down, ...numbers };
}

/** Resolves to the exit status. */
async function tryCluster(options: Options): Promise<number> {
  const { binaries, proxy, mode, nodes } = options;
  await checkBinaries(binaries, proxy === "kube-proxy" || options.steps !== "" ? ["kube-proxy"] : []);
  if (options.steps === "") await checkBinaries(binaries, ["e2e.test", "ginkgo"]);
  const folder = options.folder === ""
    ? await Deno.makeTempDir({ prefix: "kproxy-cluster-" })
    : await Deno.mkdir(options.folder, { recursive: true }).then(() => Deno.realPath(options.folder));
  const plan = { binaries: await Deno.realPath(binaries), folder, families: options.families };
  const cluster = new Cluster(plan);
  try {
    if (options.down) return 0;
    if (!await cluster.isUp()) {
      writeLine("Making images");
      await makeImages(folder, plan.binaries);
      writeLine(`Starting ${nodes} nodes`);
      await cluster.up(nodes);
    }
    writeLine(`Starting ${proxy}, mode ${mode}`);
    await runProxy(cluster, proxy, mode);
    const keep = (outcome: Outcome): Promise<void> => keepOutcome(cluster, options, outcome);
    const outcome = options.steps === "" ? await runTests(cluster, options) : {
      ...NOTHING,
      steps: await runSteps(cluster, {
        mode,
        names: stepsNamed(options.steps),
        onOutcome: (steps) => keep({ ...NOTHING, steps }),
      }),
    };
    if (options.steps === "") await keep(outcome);
    const ends = [...Object.values(outcome.tests), ...Object.values(outcome.steps)];
    return ends.some(({ outcome: ended }) => ended === "failed") ? 1 : 0;
  } finally {
    if (!options.keep) {
      await cluster.down();
      if (options.folder === "") await Deno.remove(folder, { recursive: true });
    }
  }
}

type Outcome = Pick<ConformanceRecord, "tests" | "notRun" | "steps">;
const NOTHING: Outcome = { tests: {}, notRun: [], steps: {} };

/** Keeps it if it is to be recorded. */
async function keepOutcome(cluster: Cluster, options: Options, outcome: Outcome): Promise<void> {
  const { proxy, mode, families, steps, record } = options;
  if (!record) return;
  // Steps are tried with another build than tests more often than not.
  const path = `${RECORDS}/${proxy}-${mode}-${families.join("-")}${steps === "" ? "" : "-steps"}.json`;
  const version = await versionOf(cluster, proxy);
  await keepRecord(path, { ...await circumstances(cluster, { proxy, mode, version }), ...outcome });
  writeLine(`Kept in ${path}`);
}

async function runTests(cluster: Cluster, options: Options): Promise<Outcome> {
  const { proxy, mode, focus, skip, procs, limitSeconds } = options;
  const results = `${cluster.plan.folder}/results/${proxy}-${mode}`;
  const upstream = { focus, procs, limitSeconds, results, ...skip === undefined ? {} : { skip } };
  const outcome = await runUpstream(cluster, upstream);
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const [name, { outcome: ended, why }] of Object.entries(outcome.tests)) {
    counts[ended]++;
    if (ended !== "passed") writeLine(`${ended}: ${name}: ${why ?? ""}`);
  }
  writeLine(
    `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped; ${results}/log.txt`,
  );
  return { ...outcome, steps: {} };
}

/** What the proxy that runs says of its version and commit, in one line. */
async function versionOf(cluster: Cluster, proxy: ProxyName): Promise<string> {
  const command = proxy === "kproxy" ? ["kproxy", "version"] : ["kube-proxy", "--version"];
  const said = await cluster.kubectl(["-n", "kube-system", "exec", `daemonset/${proxy}`, "--", ...command]);
  return said.trim().split("\n").filter((line) => !line.startsWith("Deno")).join(", ");
}

if (import.meta.main) {
  try {
    const options = parse(Deno.args);
    Deno.exitCode = await tryCluster(options);
  } catch (error) {
    writeErrorLine(error instanceof Error ? error.message : String(error));
    Deno.exitCode = error instanceof TypeError ? 2 : 1;
  }
}
