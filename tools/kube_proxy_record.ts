/**
 * Records of `deno task try-kube-proxy` in `docs/records/kube-proxy.json`, and their table in `docs/migrate.md`.
 *
 * @module
 */
import record from "../docs/records/kube-proxy.json" with { type: "json" };
import { replaceRow } from "./figures/records.ts";
import { markdownTable } from "./markdown_table.ts";
import { ROOT } from "./project_files.ts";
import { buildCommit } from "./release/commit.ts";

/** Parts of `try-kube-proxy`. */
export const PARTS = ["rules", "packets", "flows", "recorded", "takeover", "cleanup"] as const;
export type PartName = typeof PARTS[number];

/** Run of one part in one mode. */
export interface RecordedRun {
  readonly part: PartName;
  readonly mode: string;
  readonly command: string;
  /** End of the run, in UTC. */
  readonly date: string;
  /** Commit of kproxy, with `+` if files differed from it. */
  readonly commit: string;
  readonly machine: Readonly<Record<string, string | number | readonly number[]>>;
  readonly versions: Readonly<Record<string, string>>;
  readonly words: string;
  /** Problems that were found. */
  readonly problems: readonly string[];
  readonly figures: unknown;
}

/** Names of the parts in the table. */
const NAMES: Readonly<Record<PartName, string>> = {
  rules: "rules of random clusters, line by line",
  packets: "packets in random clusters, through the rules of each proxy",
  flows: "the cases of `tests/flows`, through kube-proxy",
  recorded: "kube-proxy's rules as recorded for the takeover tests, and now",
  takeover: "takeover under connect loops",
  cleanup: "`kproxy cleanup` and `kube-proxy --cleanup`",
};

/** The table, a row for each part and mode. */
export function kubeProxyMarkdown(runs: readonly RecordedRun[] = record as readonly RecordedRun[]): string {
  const order = ({ part, mode }: RecordedRun): string => `${PARTS.indexOf(part)} ${mode}`;
  const rows = runs.toSorted((a, b) => order(a) < order(b) ? -1 : 1).map((run) => {
    const { part, mode, words, problems, date, commit, versions } = run;
    const result = words.split("\n").map((line) => line.trim()).join("<br>");
    const kubeProxy = versions["kubeProxy"]?.replace("kube-proxy ", "") ?? "";
    const when = `${date.slice(0, 10)}, ${commit.slice(0, 8)}${commit.endsWith("+") ? "+" : ""}`;
    return [NAMES[part], mode, result, `${problems.length}`, kubeProxy, when];
  });
  const head = ["check", "mode", "result", "problems", "kube-proxy", "date, commit"];
  return markdownTable(head, rows, (column) => column === 3);
}

/** Stores a run in a record, in place of the former one of the same part and mode. */
export async function keepRun(
  path: string,
  run: Omit<RecordedRun, "date" | "commit" | "machine" | "versions">,
  kubeProxy: string,
): Promise<void> {
  const isSame = (other: RecordedRun): boolean => other.part === run.part && other.mode === run.mode;
  const made: RecordedRun = {
    ...run,
    date: new Date().toISOString().slice(0, 19) + "Z",
    commit: (await buildCommit(ROOT, ["lib", "tests", "tools"])).replace("-dirty", "+"),
    machine: {
      processors: navigator.hardwareConcurrency,
      memoryMb: Math.round(Deno.systemMemoryInfo().total / 1e6),
      kernel: Deno.osRelease(),
      load: Deno.loadavg().map((load) => Number(load.toFixed(1))),
    },
    versions: {
      kubeProxy: kubeProxy.replace("Kubernetes v", "kube-proxy "),
      deno: Deno.version.deno,
      iptables: await said("iptables", "--version"),
      nft: await said("nft", "--version"),
    },
  };
  await replaceRow(path, made, isSame);
}

async function said(program: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await new Deno.Command(program, { args: [...args], cwd: ROOT, stdin: "null" }).output();
  return new TextDecoder().decode(stdout).trim();
}
