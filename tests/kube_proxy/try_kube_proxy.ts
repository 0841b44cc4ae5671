/**
 * `KUBE_PROXY=/path deno task try-kube-proxy [PART]… [--mode M] [--worlds N] [--seed S] [--record FILE]`: kproxy beside a real
 * kube-proxy, on nodes in network namespaces. Without a PART all of them, without a mode in iptables and nftables; mode ipvs runs in the
 * user-mode Linux.
 *
 * | part | what it does |
 * | --- | --- |
 * | `rules` | both proxies serve the same random worlds: the rules are compared line by line (not in mode nftables, where the tables differ) |
 * | `packets` | the same packets from the same places, through the rules of either |
 * | `flows` | the cases of `tests/flows` with real packets, through kube-proxy (modes iptables and nftables) |
 * | `recorded` | kube-proxy's rules beside `tests/recorded/takeover.*`, which are recorded anew where the file is missing |
 * | `takeover` | from kube-proxy to kproxy and back under connect loops |
 * | `cleanup` | what `kproxy cleanup` leaves of kube-proxy, and `kube-proxy --cleanup` of kproxy |
 *
 * Exit status: 0 if all was as it should be, 1 if not, 2 for wrong use, and where there is no kube-proxy. `--record` keeps what came of
 * each part in a file, in the place of what was there of that part and mode.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { keepRun, type PartName, PARTS, type RecordedRun } from "../../tools/kube_proxy_record.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { ROOT } from "../../tools/project_files.ts";
import { installPackages, TEST_PACKAGES } from "../../tools/setup.ts";
import { findPeer, type Peer } from "../bench/peer_process.ts";
import type { KubeProxyMode } from "../support/kube_proxy/kube_proxy.ts";
import { kubeProxyProgram } from "../support/kube_proxy/real_kube_proxy.ts";
import { runPart } from "./parts.ts";

const MODES: readonly KubeProxyMode[] = ["iptables", "nftables", "ipvs"];
const NEEDED = "KUBE_PROXY must be the path of a kube-proxy, of 1.33 or newer for the same rules: " +
  "KUBE_PROXY=/path/to/kube-proxy deno task try-kube-proxy";
/** All parts of mode ipvs take less, in seconds. */
const UML_SECONDS = 3_000;

interface Options {
  readonly parts: readonly PartName[];
  readonly modes: readonly KubeProxyMode[];
  readonly worlds: number;
  readonly seed: number;
  readonly record: string;
  /** Do not go into a user-mode Linux. */
  readonly here: boolean;
}

/** @throws {TypeError} that says what is wrong */
function parse(args: readonly string[]): Options {
  const { _: words, mode, worlds = "3", seed = "1", record = "docs/records/kube-proxy.json", here } =
    parseArgs([...args], {
      string: ["mode", "worlds", "seed", "record", "_"],
      boolean: ["here"],
      unknown: (arg) => {
        if (arg.startsWith("-")) throw new TypeError(`what is ${arg}?`);
        return true;
      },
    });
  const parts = words.map((word) => {
    const part = PARTS.find((name) => name === word);
    if (part === undefined) throw new TypeError(`there is no part ${word}: ${PARTS.join(", ")}`);
    return part;
  });
  const chosen = MODES.filter((name) => mode === undefined ? name !== "ipvs" : name === mode);
  if (chosen.length === 0) throw new TypeError(`--mode must be one of ${MODES.join(", ")}`);
  const [count, first] = [Number(worlds), Number(seed)];
  if (!Number.isInteger(count) || count < 1) throw new TypeError("--worlds must be a whole number above 0");
  if (!Number.isInteger(first)) throw new TypeError("--seed must be a whole number");
  return {
    parts: parts.length === 0 ? PARTS : parts,
    modes: chosen,
    worlds: count,
    seed: first,
    record,
    here,
  };
}

async function inUml(args: readonly string[], program: string): Promise<number> {
  const inside =
    `KUBE_PROXY="${program}" "${Deno.execPath()}" run -A --no-check tests/kube_proxy/try_kube_proxy.ts ${
      [...args, "--here"].map((arg) => `"${arg}"`).join(" ")
    }`;
  const { code } = await new Deno.Command(`${ROOT}/tests/lab/uml.sh`, {
    args: [inside],
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(UML_SECONDS), UML_MEM: "2G" },
  }).spawn().status;
  return code;
}

/** Runs every part in every mode; resolves to whether all was as it should be. */
async function runAll({ path, version }: Peer, { parts, modes, ...options }: Options): Promise<boolean> {
  let isGood = true;
  for (const mode of modes) {
    for (const part of parts) {
      const command =
        `deno task try-kube-proxy ${part} --mode ${mode} --worlds ${options.worlds} --seed ${options.seed}`;
      const startedMs = performance.now();
      const outcome = await runPart(part, { ...options, program: path, mode });
      if (outcome === null) continue;
      const seconds = (performance.now() - startedMs) / 1000;
      writeLine(`${part}, mode ${mode}, ${seconds.toFixed(0)} s: ${outcome.words}`);
      outcome.problems.forEach((problem) => writeLine(`WRONG: ${problem}`));
      isGood &&= outcome.problems.length === 0;
      if (options.record === "") continue;
      const { words, problems, figures } = outcome;
      const run: Omit<RecordedRun, "date" | "commit" | "machine" | "versions"> = {
        part,
        mode,
        command,
        words,
        problems,
        figures,
      };
      await keepRun(options.record, run, version);
    }
  }
  return isGood;
}

async function main(): Promise<number> {
  const program = kubeProxyProgram();
  if (program === undefined) {
    writeErrorLine(NEEDED);
    return 2;
  }
  let [options, peer]: [Options?, Peer?] = [];
  try {
    [options, peer] = [parse(Deno.args), await findPeer(program)];
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof RangeError)) throw error;
    writeErrorLine(error.message.replace(/^--peer/, "KUBE_PROXY"));
    return 2;
  }
  if (options.here) return await runAll(peer, options) ? 0 : 1;
  await installPackages(TEST_PACKAGES);
  if (options.modes.includes("ipvs")) return await inUml(Deno.args, peer.path);
  return await runAll(peer, options) ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
