/**
 * Tables of `docs/conformance.md`, from the records of `deno task try-cluster --record` in `docs/records/cluster`.
 *
 * @module
 */
import type { ConformanceRecord, TestOutcome } from "../tests/cluster/record.ts";
import { whyNotRun } from "../tests/cluster/upstream.ts";
import { markdownTable } from "./markdown_table.ts";
import { ROOT } from "./project_files.ts";

const FOLDER = "docs/records/cluster";
const PROXIES: readonly string[] = ["kproxy", "kube-proxy"];
const MODES: readonly string[] = ["nftables", "iptables", "ipvs", "userspace"];

/** Limits of mode userspace, by part of a test's name: each is described in `docs/modes.md`. */
const USERSPACE_GAPS: readonly (readonly [test: string, gap: string])[] = [
  ["preserve source pod IP", "endpoints see the node's address"],
  ["ExternalTrafficPolicy changes", "endpoints see the node's address"],
  ["support externalTrafficPolicy=Local for type=NodePort", "endpoints see the node's address"],
  ["no endpoints exist", "a Service without endpoints accepts connections and closes them"],
  [
    "external IP is not assigned to a node",
    "external IPs that are not the node's are not served for pods on a bridge",
  ],
  [
    "fallback to local terminating endpoints when there are no ready endpoints with externalTrafficPolicy=Local",
    "pods use all endpoints, as in mode iptables; there the answer gets lost, here kproxy passes it on",
  ],
];

/** The limit of mode userspace that makes a test fail; undefined: it should pass. */
export function userspaceGap(name: string): string | undefined {
  return USERSPACE_GAPS.find(([part]) => name.includes(part))?.[1];
}

/** All records, by mode, families and proxy, kproxy first. */
export function conformanceRecords(root: string = ROOT): ConformanceRecord[] {
  const records: ConformanceRecord[] = [];
  for (const { name } of Deno.readDirSync(`${root}/${FOLDER}`)) {
    if (name.endsWith(".json")) records.push(JSON.parse(Deno.readTextFileSync(`${root}/${FOLDER}/${name}`)));
  }
  const place = ({ mode, families, proxy }: ConformanceRecord): string =>
    `${MODES.indexOf(mode)} ${families} ${PROXIES.indexOf(proxy)}`;
  return records.sort((a, b) => place(a) < place(b) ? -1 : 1);
}

/** Records of test runs; others are of operators' tasks. */
function ofTests(records: readonly ConformanceRecord[]): ConformanceRecord[] {
  return records.filter(({ tests }) => Object.keys(tests).length > 0);
}

/** Table of the test runs. */
export function conformanceRuns(records: readonly ConformanceRecord[] = conformanceRecords()): string {
  const rows = ofTests(records).map((record) => {
    const count = (wanted: TestOutcome["outcome"]): number =>
      Object.values(record.tests).filter(({ outcome }) => outcome === wanted).length;
    return [
      record.proxy,
      record.mode,
      record.families,
      ...[count("passed"), count("failed"), count("skipped")].map(String),
      record.version,
      `${record.kubernetes}, ${record.nodes} nodes, containerd ${record.containerd}, Linux ${record.kernel}`,
      record.date.slice(0, 10),
    ];
  });
  const head = ["proxy", "mode", "families", "passed", "failed", "skipped", "version", "cluster", "date"];
  return table(head, rows);
}

/** Table of all tests, with their outcome in each run. */
export function conformanceTests(all: readonly ConformanceRecord[] = conformanceRecords()): string {
  const records = ofTests(all);
  const names = [...new Set(records.flatMap(({ tests }) => Object.keys(tests)))].sort();
  const head = ["test", ...records.map(({ proxy, mode, families }) => `${proxy}, ${mode}, ${families}`)];
  const rows = names.map((name) => [
    name.replace(/^\[sig-network\] /, ""),
    ...records.map(({ tests }) => tests[name]?.outcome.replace("passed", "ok") ?? ""),
  ]);
  return table(head, rows);
}

/** Table of messages of tests that were skipped or failed. */
export function conformanceReasons(records: readonly ConformanceRecord[] = conformanceRecords()): string {
  const byReason = new Map<string, Set<string>>();
  for (const { proxy, mode, tests } of records) {
    for (const [name, { outcome, why = "" }] of Object.entries(tests)) {
      if (outcome === "passed") continue;
      const gap = mode === "userspace" && outcome === "failed" ? userspaceGap(name) : undefined;
      const said = `${outcome}: ${why}${gap === undefined ? "" : ` (${gap})`}`;
      const key = `${name.replace(/^\[sig-network\] /, "")}\u0000${said}`;
      byReason.set(key, (byReason.get(key) ?? new Set()).add(`${proxy} ${mode}`));
    }
  }
  const rows = [...byReason].sort(([a], [b]) => a < b ? -1 : 1)
    .map(([key, runs]) => [...key.split("\u0000"), [...runs].join(", ")]);
  return table(["test", "what it said", "where"], rows);
}

/** Table of operators' tasks, with their outcomes. */
export function conformanceSteps(records: readonly ConformanceRecord[] = conformanceRecords()): string {
  const rows = records.flatMap(({ mode, families, steps, version, date }) =>
    Object.entries(steps).map(([name, { outcome, told, seconds }]) => [
      name,
      `${mode}, ${families}; ${/commit \w{8}|$/.exec(version)?.[0]}, ${date.slice(0, 10)}`,
      outcome.replace("passed", "ok"),
      told,
      `${seconds} s`,
    ])
  );
  return table(["step", "where", "outcome", "what was seen", "took"], rows);
}

/** List of the other `[sig-network]` tests, by the reason why they were not run. */
export function conformanceLeftOut(records: readonly ConformanceRecord[] = conformanceRecords()): string {
  const run = new Set(records.flatMap(({ tests }) => Object.keys(tests)));
  const others = [...new Set(records.flatMap(({ notRun }) => notRun))].filter((name) => !run.has(name))
    .sort();
  const byReason = new Map<string, string[]>();
  for (const name of others) {
    const reason = whyNotRun(name);
    byReason.set(reason, [...byReason.get(reason) ?? [], name.replace(/^\[sig-network\] /, "")]);
  }
  return [...byReason].map(([reason, names]) =>
    [
      `${names.length === 1 ? "1 test" : `${names.length} tests`}, ${reason}:`,
      "",
      ...names.map((name) => `- ${cell(name)}`),
    ].join("\n")
  ).join("\n\n");
}

/** Failures of tests with kproxy that kube-proxy passes in the same mode, each with its message. */
export function worseThanKubeProxy(records: readonly ConformanceRecord[]): string[] {
  return records.filter(({ proxy }) => proxy === "kproxy").flatMap(({ mode, families, tests }) => {
    const control = records.find((other) =>
      other.proxy === "kube-proxy" && other.mode === mode && other.families === families
    );
    return Object.entries(tests).flatMap(([name, { outcome, why }]) =>
      outcome !== "passed" && control?.tests[name]?.outcome === "passed"
        ? [`${mode}: ${name}: ${why ?? ""}`]
        : []
    );
  });
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return markdownTable(head, rows.map((cells) => cells.map(cell)));
}

/** A cell's text, escaped where Markdown would interpret it. */
function cell(text: string): string {
  return text.replace(/[|\\<>*_[\]]/g, "\\$&");
}
