/**
 * `deno task mutate --generic [PATH…]`: flips operators and conditions of the code that decides, one at a time in a copy of the project,
 * and asks that a test notices. Survivors are printed with what `explained.ts` says of them; one that it does not know ends the task
 * with 1.
 *
 * @module
 */
import { copyProject } from "../copy_project.ts";
import { writeErrorLine, writeLine } from "../output.ts";
import { projectFiles, ROOT } from "../project_files.ts";
import { EXPLANATIONS } from "./explained.ts";
import { findFlips, type Flip, writeFlips } from "./source_flips.ts";
import { tryFlips, type Verdict } from "./try_flips.ts";

/** Folders of pure code that decides. */
const FOLDERS: readonly string[] = [
  "lib/model",
  ...["plan", "store"].flatMap((part) =>
    ["iptables", "ipvs", "nftables"].map((mode) => `lib/backend/${mode}/${part}`)
  ),
];

/** What is copied; the rest of the project is not needed by the tests. */
const COPIED: readonly string[] = [
  ...["lib", "links", "tests/flows", "tests/golden", "tests/support", "tools/flips"],
  ...["tests/manifests", "tests/cli", "deno.json", "deno.lock"],
];

const CASES: readonly string[] = [
  "tests/golden/golden_test.ts",
  "tests/golden/nftables_golden_test.ts",
  "tests/golden/ipvs_golden_test.ts",
  "tests/flows/flows_test.ts",
  "tests/flows/iptables_rules_test.ts",
];

function folderOf(file: string): string {
  return file.slice(0, file.lastIndexOf("/"));
}

/** Test files that use a file's code: all of its mode, for the model those of all modes, and the cases of packets and rules. */
function testsOf(file: string, files: readonly string[]): string[] {
  const [mode] = /^lib\/backend\/[^/]+/.exec(file) ?? [];
  const parents = mode === undefined ? [...FOLDERS, "lib/sync"] : [mode];
  const isAround = (path: string): boolean => parents.some((parent) => path.startsWith(`${parent}/`));
  return [...files.filter((path) => path.endsWith("_test.ts") && isAround(path)), ...CASES];
}

/** Sources below the paths. @throws {TypeError} if there are none below one of them */
function sourcesIn(paths: readonly string[], files: readonly string[]): string[] {
  const sources = files.filter((file) => /^lib\/.*\.ts$/.test(file) && !/(_test|\.d)\.ts$/.test(file));
  const isIn = (file: string, path: string): boolean => file === path || file.startsWith(`${path}/`);
  for (const path of paths) {
    if (!sources.some((file) => isIn(file, path))) throw new TypeError(`No sources of lib are in ${path}`);
  }
  return sources.filter((file) => paths.some((path) => isIn(file, path)));
}

/** Writes the flips into a copy of the project, so that each can be switched on by its place in the list, from 1. */
async function writeCopy(folder: string, flips: readonly Flip[]): Promise<void> {
  const numbers = new Map(flips.map((flip, index) => [flip.key, index + 1]));
  for (const file of new Set(flips.map((flip) => flip.file))) {
    const text = await Deno.readTextFile(`${folder}/${file}`);
    await Deno.writeTextFile(
      `${folder}/${file}`,
      writeFlips(file, text, ({ key }) => numbers.get(key) ?? null),
    );
  }
}

/** Tries all flips, those of a mode with the same tests. */
async function verdictsOf(
  flips: readonly Flip[],
  files: readonly string[],
  workers: number,
  stop: AbortSignal,
): Promise<Map<Flip, Verdict>> {
  const verdicts = new Map<Flip, Verdict>();
  const folder = await copyProject(COPIED);
  try {
    await writeCopy(folder, flips);
    for (const [tests, chosen] of Map.groupBy(flips, ({ file }) => testsOf(file, files).join(" "))) {
      await tryFlips({
        folder,
        files: tests.split(" "),
        flips: chosen.map((flip) => flips.indexOf(flip) + 1),
        workers,
        stop,
        onVerdict: (number, verdict) => {
          const flip = flips[number - 1]!;
          verdicts.set(flip, verdict);
          if (verdict !== "noticed" && !EXPLANATIONS.has(flip.key)) {
            writeLine(`UNNOTICED ${lineOf(flip, verdict)}`);
          }
        },
        onInvalid: (test, failure) =>
          writeLine(`left out, as it fails without a flip: ${test}: ${failure.split("\n")[0]}`),
      });
      const noticed = chosen.filter((flip) => verdicts.get(flip) === "noticed").length;
      writeLine(
        `${folderOf(chosen[0]!.file)} and others with its tests: ${noticed} of ${chosen.length} noticed`,
      );
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  return verdicts;
}

function lineOf({ file, line, place, change }: Flip, verdict: Verdict): string {
  return `${file}:${line} ${place}: ${change}${verdict === "unreached" ? " (no test comes by)" : ""}`;
}

/** Survivors by what is known of them, and a table of the folders. */
function* report(verdicts: ReadonlyMap<Flip, Verdict>): Generator<string> {
  const survivors = [...verdicts].filter(([, verdict]) => verdict !== "noticed");
  const kinds = Map.groupBy(survivors, ([{ key }]) => EXPLANATIONS.get(key)?.kind ?? "NOT EXPLAINED");
  for (const [kind, chosen] of kinds) {
    yield `\n${kind}: ${chosen.length}`;
    for (const [flip, verdict] of chosen) {
      yield lineOf(flip, verdict);
      const why = EXPLANATIONS.get(flip.key)?.why;
      if (why !== undefined) yield `    ${why}`;
    }
  }
  yield "\n| folder | flips | survived |\n| --- | --: | --: |";
  for (const [folder, flips] of Map.groupBy(verdicts.keys(), ({ file }) => folderOf(file))) {
    yield `| \`${folder}\` | ${flips.length} | ${
      flips.filter((flip) => verdicts.get(flip) !== "noticed").length
    } |`;
  }
}

/** Yields the exit code: 0 if every flip is noticed or explained. */
export async function tryGenericFlips(
  paths: readonly string[],
  workers: number,
  stop: AbortSignal,
): Promise<number> {
  const files = await projectFiles();
  try {
    const flips: Flip[] = [];
    const wanted = paths.map((path) => path.replace(/\/+$/, ""));
    for (const file of sourcesIn(wanted.length === 0 ? FOLDERS : wanted, files)) {
      flips.push(...findFlips(file, await Deno.readTextFile(`${ROOT}/${file}`)));
    }
    writeLine(`${flips.length} flips`);
    const verdicts = await verdictsOf(flips, files, workers, stop);
    for (const line of report(verdicts)) writeLine(line);
    return [...verdicts].every(([{ key }, verdict]) => verdict === "noticed" || EXPLANATIONS.has(key))
      ? 0
      : 1;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    writeErrorLine(error.message);
    return 2;
  }
}
