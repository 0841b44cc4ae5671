/**
 * Replays recorded runs of the fakes on the real programs, and reports different answers.
 *
 * @module
 */
import { assert } from "@std/assert";
import type { Exec } from "../../lib/kernel/exec.ts";
import { nftSeconds } from "../../lib/netfilter/nft_listing.ts";
import { ROOT } from "../../tools/project_files.ts";
import { RECORD_VARIABLE, RECORDED, RECORDED_VARIABLE, type Recording } from "./fake_record.ts";
import { withNamespaces } from "./netns.ts";
import { pathExists } from "./path_exists.ts";

/** Modes whose programs have fakes. */
export type FakedMode = "nftables" | "iptables" | "ipvs";

/** Folder of the tests of a mode's applier. */
function testsOf(mode: FakedMode): string {
  return `lib/backend/${mode}/apply`;
}

/**
 * Runs a mode's tests with recording fakes.
 *
 * @param folder for the recordings
 * @returns the folder with the recordings: another one if the test task recorded them in its run
 */
export async function recordFakes(mode: FakedMode, folder: string): Promise<string> {
  const earlier = Deno.env.get(RECORDED_VARIABLE) ?? "";
  if (earlier !== "" && await pathExists(`${earlier}/${RECORDED}`)) return earlier;
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["test", "-A", "--no-check", "--quiet", testsOf(mode)],
    cwd: ROOT,
    env: { [RECORD_VARIABLE]: folder, NO_COLOR: "1" },
    stdin: "null",
  }).output();
  assert(success, new TextDecoder().decode(stdout));
  return folder;
}

/** Recordings of a mode's tests, each sequence once. */
async function readRecordings(mode: FakedMode, folder: string): Promise<readonly Recording[]> {
  const found = new Map<string, Recording>();
  for await (const { name } of Deno.readDir(folder)) {
    if (!name.endsWith(".json")) continue;
    const recordings: readonly Recording[] = JSON.parse(await Deno.readTextFile(`${folder}/${name}`));
    for (const one of recordings) {
      if (one.file.includes(`/${testsOf(mode)}/`)) found.set(JSON.stringify(one.runs), one);
    }
  }
  return [...found.values()];
}

/**
 * Replays a mode's recordings on the real programs, the shortest first, since they vary more, until `mostRuns` programs have run.
 *
 * @returns the number of sequences and runs, and the differences in words
 */
export async function replayAll(
  mode: FakedMode,
  folder: string,
  mostRuns: number,
): Promise<{ readonly said: string; readonly runs: number; readonly differences: string }> {
  const recordings = (await readRecordings(mode, folder)).toSorted((left, right) =>
    left.runs.length - right.runs.length
  );
  let [sequences, runs] = [0, 0];
  const differences: string[] = [];
  // Flushing these two is far cheaper than creating others.
  await withNamespaces(2, async ([real, other]) => {
    for (const recording of recordings) {
      if (runs + recording.runs.length > mostRuns) break;
      [sequences, runs] = [sequences + 1, runs + recording.runs.length];
      for (const netns of [real!, other!]) await netns.run(["sh", "-e", "-c", EMPTY[mode]]);
      differences.push(...await replay(recording, real!.exec, other!.exec));
    }
  });
  const said = `${sequences} sequences of ${runs} runs, of ${recordings.length} sequences`;
  return { said, runs, differences: differences.join("\n") };
}

const emptyTables = (...programs: readonly string[]): string =>
  programs.map((restore) => `printf '*filter\\nCOMMIT\\n*nat\\nCOMMIT\\n*mangle\\nCOMMIT\\n' | ${restore}`)
    .join("\n");

/** Shell commands that empty a kernel, by mode. */
const EMPTY: Readonly<Record<FakedMode, string>> = {
  nftables: "nft flush ruleset",
  iptables: ["nft flush ruleset", emptyTables("iptables-legacy-restore", "ip6tables-legacy-restore")].join(
    "\n",
  ),
  ipvs: [
    "ipvsadm -C",
    emptyTables("iptables-restore"),
    "ipset destroy",
    "if [ -e /proc/sys/net/ipv4/conf/kube-ipvs0 ]; then ip link del kube-ipvs0; fi",
  ].join("\n"),
};

/** The default size of a set that rules add to, which kernels print. */
const KERNELS_OWN = /^size 65535$/;

/**
 * Lines of `nft list`, each with its block, without what only a kernel has: handles and expiry. Elements and blocks
 * are in the order of a kernel's hash tables, and comments of elements are not modelled.
 */
function nftLines(text: string): string[] {
  const lines: string[] = [];
  let [table, block, rules] = ["", "", 0];
  const plain = text.replaceAll(/ comment "[^"]*"(?= : |,| \}$)/gm, "");
  // One element per line; the first comes after "elements = {".
  for (const line of plain.replaceAll(/ expires \w+/g, "").split("\n").map((one) => one.trim())) {
    const [, kind, name] = /^(table|chain|set|map) (.*) \{/.exec(line) ?? [];
    if (kind === "table") [table, block] = [`${name}`, ""];
    else if (kind !== undefined) [block, rules] = [`${kind} ${name}`, 0];
    if (kind !== undefined) lines.push(`${table} ${block}`);
    const rule = / # handle \d+$/.test(line) && kind === undefined;
    const said = kind === undefined ? line.replace(/ # handle \d+$/, "") : "";
    const isElements = !rule && (said.startsWith("elements = {") || /[^;]( \}|,)$/.test(said));
    const parts = isElements
      ? said.replace(/^elements = \{ /, "").split(/, ?| \}$/)
      : [said.replace(/^\}$/, "")];
    for (const part of parts.filter((one) => one !== "" && !KERNELS_OWN.test(one))) {
      const [, timeout] = /^timeout (\w+)$/.exec(part) ?? [];
      const words = timeout === undefined ? part : `timeout ${nftSeconds(timeout)}`;
      lines.push(`${table} ${block} ${rule ? `${rules++} ` : ""}${words}`);
    }
  }
  return [...new Set(lines)].sort();
}

/** Chain of a line: rules keep their order within a chain, and chains are sorted by name. */
function chainOf(line: string): string {
  return /^(?::|-A )(\S+)/.exec(line)?.[1] ?? "";
}

/** Comparable output of a program, without what only a kernel has, sorted where the order is a hash table's. */
function printed([program = ""]: readonly string[], text: string): readonly string[] {
  const lines = text.split("\n").map((line) => line.trimEnd()).filter((line) => line !== "");
  switch (program) {
    case "nft":
      return nftLines(text);
    case "ip":
      return Array.from(text.matchAll(/"local":"([^"]+)"/g), ([, address = ""]) => address).sort();
    case "ipvsadm":
      return lines.sort();
    case "ipset":
      return lines.map((line) => line.replace(/ (?:hashsize|bucketsize) \d+| initval \S+/g, "")).sort();
    default: {
      const plain = lines.filter((line) => !line.startsWith("#")).map((line) =>
        line.replace(/ \[\d+:\d+\]/, "")
      );
      // Some programs list a table without additions, others do not.
      const isSaid = (table: string): boolean => /^-A |^:\S+ -/m.test(table);
      const tables = plain.join("\n").split(/^(?=\*)/m).filter(isSaid).sort();
      return tables.flatMap((table) =>
        table.trim().split("\n").toSorted((left, right) => compare(chainOf(left), chainOf(right)))
      );
    }
  }
}

function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

function difference(faked: readonly string[], real: readonly string[]): string[] {
  const lines = [
    ...faked.filter((line) => !real.includes(line)).map((line) => `  the fake:   ${line}`),
    ...real.filter((line) => !faked.includes(line)).map((line) => `  the kernel: ${line}`),
  ];
  return lines.length > 0 || faked.join() === real.join()
    ? lines
    : ["  the same lines in another order or number"];
}

/** True for programs that change nothing. Only nft's output is compared at once; what others list is compared at the end. */
function isListing([program = "", ...args]: readonly string[]): boolean {
  return program.endsWith("-save") ||
    (program === "ipset" && args[0] !== "restore" && args[0] !== "destroy") ||
    (program === "ipvsadm" && /^-[LS]/.test(args[0] ?? "")) || (program === "ip" && args[0] === "-json");
}

/** Programs that load a listing, in the order of their dependencies. */
const TAKES: readonly (readonly [list: RegExp, takes: (list: string) => readonly string[]])[] = [
  [/^ipset save$/, () => ["ipset", "restore"]],
  [/^ipvsadm -Sn$/, () => ["ipvsadm", "-R"]],
  [/^ip6?tables.*-save$/, (list) => [list.replace(/save$/, "restore")]],
];

/**
 * Replays a recording on an empty kernel, and compares the final states: each program lists the real one, and its own listing
 * of the fake's state as loaded into another kernel, since it prints rules in its own words.
 *
 * @returns differences in words
 */
async function replay({ file, runs, end }: Recording, real: Exec, other: Exec): Promise<string[]> {
  const found: string[] = [];
  const note = (argv: readonly string[], faked: string, got: string, when: string): void => {
    const lines = difference(printed(argv, faked), printed(argv, got));
    if (lines.length > 0) found.push(`${file}: ${argv.join(" ")} ${when}\n${lines.join("\n")}`);
  };
  for (const [at, { argv, stdin, ...faked }] of runs.entries()) {
    if (isListing(argv)) continue;
    const { code, stdout, stderr } = await real.run(argv, { stdin });
    if ((code === 0) !== (faked.code === 0)) {
      found.push(
        `${file}: ${argv.join(" ")} ends with ${code}, the fake's with ${faked.code}: ${stderr}\n${stdin}`,
      );
      return found;
    }
    if (argv[0] === "nft") note(argv, faked.stdout, stdout, `as run ${at + 1}`);
  }
  for (const [list, takes] of TAKES) {
    for (const [program, text] of Object.entries(end).filter(([program]) => list.test(program))) {
      const { code, stderr } = await other.run(takes(program), { stdin: text });
      if (code !== 0) {
        found.push(`${file}: what the fake's ${program} prints is not taken: ${stderr}\n${text}`);
      }
    }
  }
  for (const [program, text] of Object.entries(end)) {
    const argv = program.split(" ");
    const isTaken = TAKES.some(([list]) => list.test(program));
    const faked = isTaken ? (await other.run(argv)).stdout : text;
    note(argv, faked, (await real.run(argv)).stdout, `after ${runs.length} runs`);
  }
  return found;
}
