/**
 * Builds `dist/kproxy-js`: kproxy as a few JavaScript files, which a stock Deno runs without network access and package cache,
 * and which start faster and need less memory than the hundreds of source files. `dist/kproxy-js/kproxy.js` is started with the
 * flags of `tools/permissions.ts`.
 *
 * All code of each start of `run` is one file (`bundle_start`). Other code is in files of its own; those of other commands and of
 * the modes are only read when needed (`bundle_imports`). Log lines name places in the source, not in the bundle, because
 * `--vmodule` matches source files: `places.js` maps positions in the bundle to them.
 *
 * @module
 */
import { originalPositionFor, sourceContentFor, TraceMap } from "@jridgewell/trace-mapping";
import { embeddedBuild } from "../lib/node/version.ts";
import { hideImports } from "./bundle_imports.ts";
import { deferRequires, REQUIRE_FILE, REQUIRE_TEXT } from "./bundle_requires.ts";
import { planStart, START_FILE, type StartPlan } from "./bundle_start.ts";
import type { ReplacedText } from "./bundle_texts.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { runtimeFlags, runtimeVariables } from "./permissions.ts";
import { ROOT } from "./project_files.ts";
import { buildCommit } from "./release/commit.ts";

/** Defines `require`, by which packages of the bundle load the runtime's modules. */
const REQUIRE =
  'import{createRequire as kproxyRequire}from"node:module";const require=kproxyRequire(import.meta.url);';
const ASKS_FOR_REQUIRE = "Dynamic require of ";
/** Imports of the source places of log lines, and of the commit that was built. */
const FACTS = 'import"./places.js";import"./build.js";';
/** Workers, which run in threads of their own and are loaded by file name. */
const THREADS: readonly string[] = ["lib/backend/userspace/forward/relay_worker.ts"];
/** The bundler's entry file, in which the program begins. */
const DOOR = "main.js";
/** A logger call; all code logs by one of these. */
const LOG_CALL = /\.(info|warn|error|text)\(/g;

/** Names of the workers' files in the bundle. */
export function threadFiles(): readonly string[] {
  return THREADS.map((path) => path.split("/").at(-1) ?? "");
}

/** Files of the bundle by name; `kproxy.js` is the one to start. */
export type Bundle = ReadonlyMap<string, string>;

/** Builds the bundle in memory; `kproxy version` will print the commit. @throws {Error} of the bundler */
export async function bundle(commit: string): Promise<Bundle> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bundle-" });
  try {
    await runBundler(["--code-splitting", "--sourcemap=external", `--outdir=${folder}`, `${ROOT}/main.ts`]);
    const files = await finished(folder);
    for (const path of THREADS) {
      const name = path.split("/").at(-1) ?? "";
      await runBundler([`--output=${folder}/${name}.js`, `${ROOT}/${path}`]);
      // A worker is loaded from beside the file that starts it, by its name in the source.
      files.set(name, await Deno.readTextFile(`${folder}/${name}.js`));
    }
    return files.set("build.js", embeddedBuild(commit));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function runBundler(args: readonly string[]): Promise<void> {
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["bundle", "--quiet", `--config=${ROOT}/deno.json`, "--minify", ...args],
    env: { NO_COLOR: "1" },
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  if (!success) throw new Error(`deno bundle failed: ${new TextDecoder().decode(stderr).trim()}`);
}

/** A file of the bundle while it is built. */
interface Part {
  readonly text: string;
  /** Source place of a position, both numbers from 0 on; null outside of kproxy's own code. */
  readonly sourceAt: (line: number, column: number) => SourcePlace | null;
}

interface SourcePlace {
  readonly path: string;
  /** Line number, from 1 on. */
  readonly line: number;
}

async function finished(folder: string): Promise<Map<string, string>> {
  const parts = new Map<string, Part>();
  for (const name of await scripts(folder)) parts.set(name, await readPart(folder, name));
  const plan = planStart(new Map([...parts].map(([name, { text }]) => [name, text])), DOOR);
  const files = new Map<string, string>();
  const places: Record<string, string> = {};
  const finish = (name: string, part: Part): void => {
    const { text, columnNow } = hideImports(deferRequires(part.text));
    const file = name === DOOR ? "kproxy.js" : name;
    // Whole lines, so that only line numbers change.
    const first = [...(name === DOOR ? [FACTS] : []), ...requireLines(text)];
    files.set(file, [...first, text].join("\n"));
    for (const { line, column, place } of logPlaces(part)) {
      places[`${file}:${line + 1 + first.length}:${columnNow(line, column) + 1}`] = place;
    }
  };
  for (const [name, part] of parts) {
    if (!plan.files.has(name)) finish(name, withText(part, plan.redirected(name)));
  }
  files.set(REQUIRE_FILE, REQUIRE_TEXT);
  finish(START_FILE, await joined(folder, parts, plan));
  files.set("places.js", `globalThis[Symbol.for("kproxy.places")]=${JSON.stringify(places)};\n`);
  return files;
}

async function scripts(folder: string): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of Deno.readDir(folder)) if (name.endsWith(".js")) names.push(name);
  return names.toSorted();
}

/** Reads a file that the bundler wrote. */
async function readPart(folder: string, name: string): Promise<Part> {
  const map = new TraceMap(await Deno.readTextFile(`${folder}/${name}.map`));
  return {
    text: await Deno.readTextFile(`${folder}/${name}`),
    sourceAt(line, column) {
      const { source, line: sourceLine } = originalPositionFor(map, { line: line + 1, column });
      return source === null
        ? null
        : { path: new URL(source, `file://${folder}/`).pathname, line: sourceLine };
    },
  };
}

/** The file with its text replaced. */
function withText({ sourceAt }: Part, { text, columnBefore }: ReplacedText): Part {
  return { text, sourceAt: (line, column) => sourceAt(line, columnBefore(line, column)) };
}

/** The start file: all code of each start, in one file. */
async function joined(folder: string, parts: ReadonlyMap<string, Part>, plan: StartPlan): Promise<Part> {
  const [from, to] = [`${folder}/parts`, `${folder}/joined`];
  await Deno.mkdir(from);
  for (const name of plan.files) {
    const { text } = plan.redirected(name);
    await Deno.writeTextFile(`${from}/${name}`, [...requireLines(text), text].join("\n"));
  }
  await Deno.writeTextFile(`${from}/${START_FILE}`, plan.entry);
  await runBundler(["--sourcemap=external", `--outdir=${to}`, `${from}/${START_FILE}`]);
  const map = new TraceMap(await Deno.readTextFile(`${to}/${START_FILE}.map`));
  const whole: Part = {
    text: await Deno.readTextFile(`${to}/${START_FILE}`),
    sourceAt(line, column) {
      const found = originalPositionFor(map, { line: line + 1, column });
      const part = parts.get(found.source?.split("/").at(-1) ?? "");
      if (found.source === null || part === undefined) return null;
      // The bundler prints the file with other line breaks, but the same calls.
      const read = logCalls(sourceContentFor(map, found.source) ?? "");
      const nth = read.findIndex((call) => call.line === found.line - 1 && call.column === found.column);
      const call = logCalls(part.text)[nth];
      return call === undefined ? null : part.sourceAt(call.line, call.column);
    },
  };
  return withText(whole, plan.restored(whole.text));
}

/** Lines to add where packages use `require`. */
function requireLines(text: string): string[] {
  return text.includes(ASKS_FOR_REQUIRE) ? [REQUIRE] : [];
}

/** Position of a logger call: a line, and the column of the method's name, both from 0 on. */
interface LogCall {
  readonly line: number;
  readonly column: number;
}

function logCalls(text: string): LogCall[] {
  return text.split("\n").flatMap((content, line) =>
    [...content.matchAll(LOG_CALL)].map(({ index }) => ({ line, column: index + 1 }))
  );
}

/** kproxy's own logger calls, with their source places (`run.ts:80`). */
function* logPlaces({ text, sourceAt }: Part): Generator<LogCall & { readonly place: string }> {
  for (const { line, column } of logCalls(text)) {
    const found = sourceAt(line, column);
    // Packages have calls with such names, too.
    if (found === null || !found.path.startsWith(`${ROOT}/lib/`) || !found.path.endsWith(".ts")) continue;
    yield { line, column, place: `${found.path.split("/").at(-1)}:${found.line}` };
  }
}

/** Writes the bundle into a folder, and replaces the former content. */
export async function writeBundle(files: Bundle, folder: string): Promise<void> {
  await Deno.remove(folder, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  await Deno.mkdir(folder, { recursive: true });
  for (const [name, text] of files) await Deno.writeTextFile(`${folder}/${name}`, text);
}

/** Builds the bundle into a folder; resolves to a line about the result. */
export async function buildBundle(folder: string, commit: string): Promise<string> {
  const files = await bundle(commit);
  await writeBundle(files, folder);
  const bytes = files.values().reduce((sum, text) => sum + text.length, 0);
  return `Built ${folder}: ${files.size} files, ${(bytes / 1e6).toFixed(1)} MB`;
}

if (import.meta.main) {
  const folder = `${ROOT}/dist/kproxy-js`;
  try {
    writeLine(`${await buildBundle(folder, await buildCommit())}. It is run by`);
    writeLine(
      [
        ...runtimeVariables(),
        "deno run --no-config --cached-only",
        ...runtimeFlags(),
        `${folder}/kproxy.js COMMAND [flags]`,
      ].join(" "),
    );
  } catch (error) {
    writeErrorLine(error instanceof Error ? error.message : String(error));
    Deno.exitCode = 1;
  }
}
