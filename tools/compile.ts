/**
 * Builds `dist/kproxy`, a program that carries the runtime and the permissions of `tools/permissions.ts`. The runtime it is
 * built on (`denort`) is downloaded by `deno compile`, or named by `DENORT_BIN`. Where neither is possible, a dry build in a
 * temporary folder checks module graph and flags and is deleted: it stands on the full `deno` program, which would ignore
 * the embedded permissions.
 *
 * @module
 */
import { writeErrorLine, writeLine } from "./output.ts";
import { PERMISSIONS, runtimeFlags } from "./permissions.ts";
import { ROOT } from "./project_files.ts";

const DOWNLOAD_TIMEOUT_MS = 120_000;

/** What is built beside the program itself. */
export interface CompileOptions {
  /** @default {"main.ts"} */
  readonly main?: string;
  /** Programs that may be started for credentials, by name or path, beside those of the list. */
  readonly credentialPlugins?: readonly string[];
}

/** The arguments of `deno` that build into `output`. */
export function compileArgs(
  output: string,
  excluded: readonly string[],
  { main = `${ROOT}/main.ts`, credentialPlugins = [] }: CompileOptions = {},
): string[] {
  // Embedding every package of the lock file, tests' ones included, would be useless.
  const options = ["-q", `--config=${ROOT}/deno.json`, "--exclude-unused-npm"];
  return [
    "compile",
    ...options,
    ...excluded.map((path) => `--exclude=${path}`),
    ...runtimeFlags(),
    ...credentialPlugins.map((plugin) => `--allow-run=${plugin}`),
    `--output=${output}`,
    main,
  ];
}

/**
 * Folders of downloaded packages that deno 2.9.6 must not embed: parsing the samples in the tests of `bintrees`, which comes
 * with prom-client and is never loaded, overflows its stack.
 */
export async function excludedFolders(): Promise<string[]> {
  // On a fresh machine the packages must be there before their folders can be named.
  await runDeno(["cache", `--config=${ROOT}/deno.json`, `${ROOT}/main.ts`], {});
  const { success, stdout, stderr } = await runDeno(["info", "--json"], {});
  if (!success) throw new Error(`Cannot learn where packages are kept: ${stderr.trim()}`);
  const folder = `${(JSON.parse(stdout) as { npmCache: string }).npmCache}/registry.npmjs.org/bintrees`;
  const versions: string[] = [];
  // The exclusion only counts with the version in its path.
  for await (const entry of Deno.readDir(folder)) {
    if (entry.isDirectory) versions.push(`${folder}/${entry.name}/test`);
  }
  return versions;
}

/** What a build came to. */
export type CompileOutcome =
  | { readonly kind: "built"; readonly path: string }
  | { readonly kind: "dry"; readonly reason: string }
  | { readonly kind: "failed"; readonly reason: string };

/** Builds into `output`, or does a dry build if there is no runtime to build on. */
export async function compile(
  output: string = `${ROOT}/dist/kproxy`,
  options: CompileOptions = {},
): Promise<CompileOutcome> {
  const given = Deno.env.get("DENORT_BIN");
  if (given !== undefined && await isFullDeno(given)) {
    return await dryBuild(`DENORT_BIN is the full deno program: ${given}`, options);
  }
  const { success, stderr } = await runDeno(
    compileArgs(output, await excludedFolders(), options),
    {},
    DOWNLOAD_TIMEOUT_MS,
  );
  if (success) return await checkEmbedded(output, { kind: "built", path: output }, options);
  if (given === undefined && /denort|dl\.deno\.land/.test(stderr)) {
    return await dryBuild("denort can neither be found nor downloaded here", options);
  }
  return { kind: "failed", reason: stderr.trim() };
}

/** Builds on the full deno program, checks the result and deletes it. */
async function dryBuild(reason: string, options: CompileOptions): Promise<CompileOutcome> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-dry-build-" });
  try {
    const output = `${folder}/kproxy`;
    const args = compileArgs(output, await excludedFolders(), options);
    const { success, stderr } = await runDeno(args, { DENORT_BIN: Deno.execPath() });
    if (!success) return { kind: "failed", reason: stderr.trim() };
    return await checkEmbedded(output, { kind: "dry", reason }, options);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function checkEmbedded(
  path: string,
  outcome: CompileOutcome,
  { credentialPlugins }: CompileOptions,
): Promise<CompileOutcome> {
  const problems = embeddedProblems(await embeddedPermissions(path), credentialPlugins);
  if (problems.length === 0) return outcome;
  await Deno.remove(path);
  return { kind: "failed", reason: `The built program carries other permissions: ${problems.join("; ")}` };
}

/**
 * The permissions inside a compiled program, as `deno compile` wrote them: `allow_run` and so on, a list of values (empty for
 * all) or null for none.
 *
 * @throws {SyntaxError} if there are none to be found
 */
export async function embeddedPermissions(path: string): Promise<Record<string, unknown>> {
  const { Buffer } = await import("node:buffer");
  const program = Buffer.from((await Deno.readFile(path)).buffer);
  const start = program.lastIndexOf('"permissions":{"allow_env"');
  const end = program.indexOf("}", start);
  if (start < 0 || end < 0) throw new SyntaxError(`Cannot find embedded permissions in ${path}`);
  return JSON.parse(program.subarray(start + '"permissions":'.length, end + 1).toString());
}

/** How embedded permissions differ from the list and the plugins. */
export function embeddedProblems(
  embedded: Record<string, unknown>,
  credentialPlugins: readonly string[] = [],
): string[] {
  const wanted = new Map<string, unknown>(
    PERMISSIONS.map(({ flag, grants }) => [
      flag.slice(2).replaceAll("-", "_"),
      [
        ...grants.map(({ value }) => value).filter((value) => value !== ""),
        ...(flag === "--allow-run" ? credentialPlugins : []),
      ],
    ]),
  );
  wanted.set("ignore_env", []);
  wanted.set("prompt", false);
  // Importing code at run time needs no flag for these registries, and nothing in kproxy does it.
  const names = new Set([...wanted.keys(), ...Object.keys(embedded)]);
  names.delete("allow_import");
  return [...names].flatMap((name) => {
    const [has, should] = [embedded[name] ?? null, wanted.get(name) ?? null];
    return JSON.stringify(has) === JSON.stringify(should)
      ? []
      : [`${name} is ${JSON.stringify(has)}, wanted ${JSON.stringify(should)}`];
  });
}

async function isFullDeno(path: string): Promise<boolean> {
  const { stdout } = await new Deno.Command(path, { args: ["--version"], stdin: "null", stderr: "null" })
    .output();
  return new TextDecoder().decode(stdout).startsWith("deno ");
}

async function runDeno(
  args: readonly string[],
  env: Record<string, string>,
  timeoutMs?: number,
): Promise<{ success: boolean; stdout: string; stderr: string }> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    env: { ...env, NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    ...(timeoutMs === undefined ? {} : { signal: AbortSignal.timeout(timeoutMs) }),
  }).output();
  const decoder = new TextDecoder();
  return { success, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

const PLUGIN_FLAG = "--credential-plugin=";

/** @throws {TypeError} for arguments that are none */
function pluginsOf(args: readonly string[]): string[] {
  return args.map((arg) => {
    const plugin = arg.startsWith(PLUGIN_FLAG) ? arg.slice(PLUGIN_FLAG.length) : "";
    if (plugin === "" || plugin.includes(",")) {
      throw new TypeError(`Wanted ${PLUGIN_FLAG}PROGRAM, found ${arg}`);
    }
    return plugin;
  });
}

if (import.meta.main) {
  const outcome = await compile(undefined, { credentialPlugins: pluginsOf(Deno.args) });
  if (outcome.kind === "built") {
    writeLine(`Built ${outcome.path}, with the permissions of tools/permissions.ts`);
  } else if (outcome.kind === "dry") {
    writeLine(`Dry build only, nothing was written to dist/: ${outcome.reason}.`);
    writeLine("Module graph and permission flags are in order; the temporary program was deleted.");
  } else {
    writeErrorLine(outcome.reason);
    Deno.exitCode = 1;
  }
}
