/**
 * Builds `dist/kproxy-js`: kproxy as a few JavaScript files, which a stock Deno runs without a network and without a cache of packages,
 * and which start sooner and need less memory than the hundreds of files of the source. `dist/kproxy-js/kproxy.js` is started with the
 * flags of `tools/permissions.ts`.
 *
 * What a command does not need is in files of its own: those of `run` are all read at its start, others only where they are needed
 * (`bundle_imports`). Log lines name the places in the source,
 * not in the bundle, as `--vmodule` goes by them: their positions in the bundle are looked up in `places.js`.
 *
 * @module
 */
import { originalPositionFor, TraceMap } from "@jridgewell/trace-mapping";
import { embeddedBuild } from "../lib/node/build.ts";
import { hideImports } from "./bundle_imports.ts";
import { deferRequires, REQUIRE_FILE, REQUIRE_TEXT } from "./bundle_requires.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { runtimeFlags, runtimeVariables } from "./permissions.ts";
import { ROOT } from "./project_files.ts";
import { buildCommit } from "./release/commit.ts";

/** Where packages ask for what the runtime has, in their own way. */
const REQUIRE =
  'import{createRequire as kproxyRequire}from"node:module";const require=kproxyRequire(import.meta.url);';
const ASKS_FOR_REQUIRE = "Dynamic require of ";
/** Where the source of a log line is, and from which commit all is built. */
const FACTS = 'import"./places.js";import"./build.js";';
/** What runs in a thread of its own, and is loaded by its name. */
const THREADS: readonly string[] = ["lib/backend/userspace/forward/relay_worker.ts"];
/** Whoever logs does so by one of these. */
const LOG_CALL = /\.(info|warn|error|text)\(/g;

/** The files of the bundle that are loaded by their names alone. */
export function threadFiles(): readonly string[] {
  return THREADS.map((path) => path.split("/").at(-1) ?? "");
}

/** Files of the bundle by their names, of which `kproxy.js` is the one to be started. */
export type Bundle = ReadonlyMap<string, string>;

/** Builds it in memory; `kproxy version` will tell the commit. @throws {Error} with what the bundler said */
export async function bundle(commit: string): Promise<Bundle> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bundle-" });
  try {
    await runBundler(["--code-splitting", "--sourcemap=external", `--outdir=${folder}`, `${ROOT}/main.ts`]);
    const files = await finished(folder);
    for (const path of THREADS) {
      const name = path.split("/").at(-1) ?? "";
      await runBundler([`--output=${folder}/${name}.js`, `${ROOT}/${path}`]);
      // Whoever starts the thread looks for it beside itself, by the name that it has in the source.
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

async function finished(folder: string): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  const places: Record<string, string> = {};
  for await (const { name } of Deno.readDir(folder)) {
    if (!name.endsWith(".js")) continue;
    const bundled = await Deno.readTextFile(`${folder}/${name}`);
    const { text, columnNow } = hideImports(deferRequires(bundled));
    const isMain = name === "main.js";
    const file = isMain ? "kproxy.js" : name;
    // Whole lines, so that only the numbers of lines are others.
    const first = [
      ...(isMain ? [FACTS] : []),
      ...(text.includes(ASKS_FOR_REQUIRE) ? [REQUIRE] : []),
    ];
    files.set(file, [...first, text].join("\n"));
    const map = new TraceMap(await Deno.readTextFile(`${folder}/${name}.map`));
    const isOwn = (source: string): boolean =>
      new URL(source, `file://${folder}/`).pathname.startsWith(`${ROOT}/lib/`) && source.endsWith(".ts");
    for (const { line, column, place } of logPlaces(bundled, map, isOwn)) {
      places[`${file}:${line + 1 + first.length}:${columnNow(line, column) + 1}`] = place;
    }
  }
  files.set(REQUIRE_FILE, REQUIRE_TEXT);
  files.set("places.js", `globalThis[Symbol.for("kproxy.places")]=${JSON.stringify(places)};\n`);
  return files;
}

/** A line and column of the bundler's text, both from 0 on, and the place in the source (`run.ts:80`). */
interface LogPlace {
  readonly line: number;
  readonly column: number;
  readonly place: string;
}

function* logPlaces(text: string, map: TraceMap, isOwn: (source: string) => boolean): Generator<LogPlace> {
  for (const [index, line] of text.split("\n").entries()) {
    for (const { index: column } of line.matchAll(LOG_CALL)) {
      const { source, line: sourceLine } = originalPositionFor(map, { line: index + 1, column: column + 1 });
      // Packages have such calls, too.
      if (source === null || !isOwn(source)) continue;
      yield { line: index, column: column + 1, place: `${source.split("/").at(-1)}:${sourceLine}` };
    }
  }
}

/** Writes it into a folder, in the place of what is there. */
export async function writeBundle(files: Bundle, folder: string): Promise<void> {
  await Deno.remove(folder, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  await Deno.mkdir(folder, { recursive: true });
  for (const [name, text] of files) await Deno.writeTextFile(`${folder}/${name}`, text);
}

/** Builds it into a folder; resolves to a line that says what was built. */
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
