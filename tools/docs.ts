/**
 * Keeps generated parts of the documentation in step with the code. `deno task docs` rewrites what differs;
 * `deno task docs --check` reports the differences and exits with 1.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import image from "../docs/records/image.json" with { type: "json" };
import soak from "../docs/records/soak-nftables.json" with { type: "json" };
import { type SoakRecord, soakSentence } from "../tests/chaos/soak.ts";
import { API_FILE, apiReport } from "./api_report.ts";
import { CHART_SCHEMA_FILE, replaceConfigSchema } from "./chart_schema.ts";
import {
  conformanceLeftOut,
  conformanceReasons,
  conformanceRuns,
  conformanceSteps,
  conformanceTests,
} from "./conformance_doc.ts";
import { proxyCharts } from "./figures/charts.ts";
import {
  HOSTILE_FILE,
  HOSTILE_IPVS_FILE,
  type ImageRecord,
  PACKETS_FILE,
  PROXIES_FILE,
  type ProxiesRecord,
  readRecord,
} from "./figures/records.ts";
import { costTables, hostileIpvsTable, hostileTable, packetsTable, readmeTables } from "./figures/tables.ts";
import { MAN_FILE, manPage } from "./man_page.ts";
import { eventsMarkdown, logLinesMarkdown } from "./messages_doc.ts";
import { fuzzTable } from "./fuzz_record.ts";
import { kubeProxyMarkdown } from "./kube_proxy_record.ts";
import { metricsMarkdown } from "./metrics_doc.ts";
import { writeLine } from "./output.ts";
import { memoryTable, permissionTable, runtimeFlags, runtimeVariables } from "./permissions.ts";
import { ROOT } from "./project_files.ts";
import { commandsMarkdown, CONFIGURATION_SECTIONS, flagsMarkdown } from "./settings_doc.ts";

/** A generated part of a file, between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`. */
export interface Section {
  readonly file: string;
  readonly name: string;
  /** The Markdown between the two lines, without empty lines at its ends. */
  readonly render: () => string | Promise<string>;
}

/** Sentence about the last test of the image. */
function imageSentence({ command, date, commit, machine, bases }: ImageRecord): string {
  return `Last tried on ${date} by \`${command}\` at commit ${commit.slice(0, 9)}, on ${bases}; ${machine}.`;
}

/** File of the program that starts kproxy from source. */
const LAUNCHER_FILE = "deploy/kproxy";

/** Folder of files that the Helm chart renders: a chart may only use files in its own folder. */
const CHART_FOLDER = "deploy/helm/kproxy/files";
const CHART_SOURCES: readonly string[] = [
  "deploy/kubernetes/base/daemonset.yaml",
  "deploy/kubernetes/base/rbac.yaml",
  "deploy/prometheus/rules.yaml",
];

const PROXIES = readRecord<ProxiesRecord>(PROXIES_FILE);
/** JSON types have no tuples. */
const IMAGE = image as unknown as ImageRecord;

/** Every generated part. Add one here and put its two marker lines into the file. */
const SECTIONS: readonly Section[] = [
  { file: "README.md", name: "commands", render: commandsMarkdown },
  { file: "README.md", name: "figures", render: () => readmeTables(PROXIES) },
  { file: "docs/benchmarks.md", name: "costs", render: () => costTables(PROXIES) },
  { file: "docs/benchmarks.md", name: "packets", render: () => packetsTable(readRecord(PACKETS_FILE)) },
  { file: "docs/benchmarks.md", name: "hostile", render: () => hostileTable(readRecord(HOSTILE_FILE)) },
  {
    file: "docs/benchmarks.md",
    name: "hostile-ipvs",
    render: () => hostileIpvsTable(readRecord(HOSTILE_IPVS_FILE)),
  },
  { file: "docs/deploy.md", name: "image", render: () => imageSentence(IMAGE) },
  { file: "docs/migrate.md", name: "kube-proxy", render: () => kubeProxyMarkdown() },
  { file: "docs/conformance.md", name: "conformance-runs", render: () => conformanceRuns() },
  { file: "docs/conformance.md", name: "conformance-tests", render: () => conformanceTests() },
  { file: "docs/conformance.md", name: "conformance-reasons", render: () => conformanceReasons() },
  { file: "docs/conformance.md", name: "conformance-steps", render: () => conformanceSteps() },
  { file: "docs/conformance.md", name: "conformance-left-out", render: () => conformanceLeftOut() },
  { file: "docs/reliability.md", name: "fuzz", render: () => fuzzTable() },
  { file: "docs/reliability.md", name: "soak", render: () => soakSentence(soak as SoakRecord) },
  { file: "docs/flags.md", name: "flags", render: flagsMarkdown },
  { file: "docs/metrics.md", name: "metrics", render: metricsMarkdown },
  { file: "docs/messages.md", name: "events", render: eventsMarkdown },
  { file: "docs/messages.md", name: "log-lines", render: logLinesMarkdown },
  { file: "docs/permissions.md", name: "permissions", render: permissionTable },
  { file: "docs/permissions.md", name: "memory", render: memoryTable },
  ...CONFIGURATION_SECTIONS,
];

/**
 * The text with one part replaced.
 *
 * @throws {SyntaxError} unless the text has both marker lines, in this order
 */
export function replaceSection(text: string, name: string, content: string): string {
  const begin = `<!-- ${name}:begin -->\n`;
  const end = `<!-- ${name}:end -->`;
  const from = text.indexOf(begin);
  const to = text.indexOf(end, from);
  if (from < 0 || to < 0) throw new SyntaxError(`Cannot find "${begin.trim()}" and "${end}"`);
  // Tables keep their width; formatted ones would change every line with each cell.
  const body = ["<!-- deno-fmt-ignore-start -->", content.trim(), "<!-- deno-fmt-ignore-end -->"].join(
    "\n\n",
  );
  return `${text.slice(0, from + begin.length)}\n${body}\n\n${text.slice(to)}`;
}

/**
 * The task `kproxy` of `deno.json` for a list of permission flags. A task begins in the project's folder; the program must begin in the
 * caller's, or relative paths would mean other files.
 */
export function kproxyTask(flags: readonly string[] = runtimeFlags()): string {
  const run = `deno run -q --config "$ROOT/deno.json" ${flags.join(" ")} "$ROOT/start.ts"`;
  return `ROOT=$PWD && cd "$INIT_CWD" && ${run}`;
}

/** Program that starts kproxy on Deno in an image or on a node, from a bundle or the source, for a list of permission flags. */
export function launcher(flags: readonly string[] = runtimeFlags()): string {
  return `#!/bin/sh
# kproxy on Deno, with exactly its permissions and without a download: KPROXY_HOME holds what \`deno task bundle\` made, or the
# sources, whose packages were downloaded when they were installed. \`deno task docs\` writes this file.
home=\${KPROXY_HOME:-/opt/kproxy}
export DENO_DIR="\${DENO_DIR:-$home/.deno}" DENO_NO_UPDATE_CHECK=1 ${runtimeVariables().join(" ")}
if [ -e "$home/kproxy.js" ]; then
  set -- --no-config "$home/kproxy.js" "$@"
elif [ -e "$home/deno.json" ]; then
  set -- --frozen --config "$home/deno.json" "$home/start.ts" "$@"
else
  echo "Error: $home holds neither kproxy.js nor deno.json: KPROXY_HOME names the folder that holds kproxy" >&2
  exit 1
fi
exec deno run -q --cached-only ${flags.join(" ")} "$@"
`;
}

/** The chart's copy of a file, with a note of its source. */
export function chartCopy(source: string, text: string): [file: string, copy: string] {
  const name = source.slice(source.lastIndexOf("/"));
  return [CHART_FOLDER + name, `# A copy of ${source}, which \`deno task docs\` makes.\n${text}`];
}

/** `deno.json` with the task `kproxy` replaced. */
export function replaceTask(text: string, command: string): string {
  const task = /("kproxy": \{\s*"command": )"(?:[^"\\]|\\.)*"/;
  if (!task.test(text)) throw new SyntaxError('Cannot find the task "kproxy" in deno.json');
  return text.replace(task, (_, before: string) => `${before}${JSON.stringify(command)}`);
}

/** Files with outdated generated parts, and their new content. */
export async function outdatedFiles(root: string = ROOT): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  const read = async (file: string): Promise<string> =>
    texts.get(file) ?? await Deno.readTextFile(`${root}/${file}`);
  for (const { file, name, render } of SECTIONS) {
    texts.set(file, replaceSection(await read(file), name, await render()));
  }
  texts.set("deno.json", replaceTask(await read("deno.json"), kproxyTask()));
  texts.set(LAUNCHER_FILE, launcher());
  texts.set(CHART_SCHEMA_FILE, replaceConfigSchema(await read(CHART_SCHEMA_FILE)));
  texts.set(MAN_FILE, manPage());
  texts.set(API_FILE, await apiReport(root));
  for (const source of CHART_SOURCES) texts.set(...chartCopy(source, await read(source)));
  for (const [file, svg] of proxyCharts(PROXIES.rows)) texts.set(file, svg);
  const outdated = new Map<string, string>();
  for (const [file, text] of texts) {
    if (text !== await contentOf(`${root}/${file}`)) outdated.set(file, text);
  }
  return outdated;
}

/** The text of a file; undefined if there is none yet. */
async function contentOf(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

if (import.meta.main) {
  const { check } = parseArgs(Deno.args, { boolean: ["check"] });
  const outdated = await outdatedFiles();
  for (const [file, text] of outdated) {
    if (!check) await Deno.writeTextFile(`${ROOT}/${file}`, text);
    writeLine(`${file}: ${check ? 'out of step with the code, run "deno task docs"' : "rewritten"}`);
  }
  if (outdated.size === 0) writeLine("Documentation: in step with the code");
  else if (check) Deno.exitCode = 1;
}
