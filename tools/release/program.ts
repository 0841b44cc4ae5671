/**
 * Builds a program that carries the runtime, the bundle of `tools/bundle.ts` and the permissions of `tools/permissions.ts`. The runtime it
 * is built on is one of those of `denort`. Where none can be had, a dry build in a temporary folder checks what is embedded and is deleted:
 * it stands on the full `deno` program, which would ignore the embedded permissions.
 *
 * Built from the bundle, not from the sources, a program carries no packages beyond the parts that are used: of the 80 MB that it would
 * take from them, most are declarations and maps.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { threadFiles } from "../bundle.ts";
import { isReadOnDemand } from "../bundle_imports.ts";
import { PERMISSIONS, runtimeFlags } from "../permissions.ts";
import { type DenortSource, placeDenort } from "./denort.ts";

/** How a program is built. */
export interface CompileOptions {
  /** Folder of the bundle. */
  readonly bundle: string;
  /** As `deno compile` calls it. @default {this machine} */
  readonly triple?: string;
  /** Programs that may be started for credentials, by name or path, beside those of the list. */
  readonly credentialPlugins?: readonly string[];
}

/** The arguments of `deno` that build into `output`; `files` are the names of the bundle's files. */
export function compileArgs(
  output: string,
  { bundle, triple, credentialPlugins = [] }: CompileOptions,
  files: readonly string[],
): string[] {
  return [
    "compile",
    // All is in the bundle: neither packages nor what the project's configuration says of them.
    ...["-q", "--no-check", "--no-config", "--no-lock", "--no-npm", "--no-remote"],
    // A program reads the engine's code of itself from /tmp/deno-compile-NAME.cache, which every user of the machine can write first.
    "--no-code-cache",
    ...(triple === undefined ? [] : [`--target=${triple}`]),
    // Loaded by name, which the compiler does not follow.
    ...[...threadFiles(), ...files.filter(isReadOnDemand).toSorted()].map((file) =>
      `--include=${bundle}/${file}`
    ),
    ...runtimeFlags(),
    ...credentialPlugins.map((plugin) => `--allow-run=${plugin}`),
    `--output=${output}`,
    `${bundle}/kproxy.js`,
  ];
}

/**
 * Builds into `output`.
 *
 * @returns false if there is no way to a runtime to build on
 * @throws {Error} if the runtime is not the one that is pinned, or the program not as it should be
 */
export async function compile(
  output: string,
  options: CompileOptions,
  source: Omit<DenortSource, "triple"> = {},
): Promise<boolean> {
  if (Deno.env.has("DENORT_BIN")) {
    throw new Error("DENORT_BIN would take the place of the runtime whose checksum is pinned: unset it");
  }
  const denoDir = await Deno.makeTempDir({ prefix: "kproxy-deno-dir-" });
  try {
    const isPlaced = await placeDenort(denoDir, { triple: options.triple ?? Deno.build.target, ...source });
    if (isPlaced) await compileProgram(output, options, { DENO_DIR: denoDir });
    return isPlaced;
  } finally {
    await Deno.remove(denoDir, { recursive: true });
  }
}

/** Builds for this machine on the full deno program, checks the result and deletes it. @throws {Error} as `compile` */
export async function dryBuild({ triple: _other, ...options }: CompileOptions): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-dry-build-" });
  try {
    await compileProgram(`${folder}/kproxy`, options, { DENORT_BIN: Deno.execPath() });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Builds on the runtime that `env` names. @throws {Error} as `compile` */
export async function compileProgram(
  output: string,
  options: CompileOptions,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const files = [...Deno.readDirSync(options.bundle)].map(({ name }) => name);
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: compileArgs(output, options, files),
    env: { ...env, NO_COLOR: "1" },
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  if (!success) throw new Error(`${output}: ${new TextDecoder().decode(stderr).trim()}`);
  const problems = await embeddedProblems(output, options);
  if (problems.length === 0) return;
  await Deno.remove(output);
  throw new Error(`${output}: the built program is not as it should be: ${problems.join("; ")}`);
}

/** What the program of a path should carry and does not: permissions, and every file of the bundle. */
export async function embeddedProblems(
  path: string,
  { bundle, credentialPlugins }: CompileOptions,
): Promise<string[]> {
  const program = Buffer.from((await Deno.readFile(path)).buffer);
  const problems = permissionProblems(embeddedPermissions(program), credentialPlugins);
  const cacheKey = program.lastIndexOf('"code_cache_key":');
  if (!program.subarray(cacheKey).toString("latin1", 0, 21).endsWith(":null")) {
    problems.push("it would run code that it finds in /tmp");
  }
  const files: [name: string, content: Uint8Array][] = [];
  for await (const { name } of Deno.readDir(bundle)) {
    files.push([name, await Deno.readFile(`${bundle}/${name}`)]);
  }
  // They are at its end, and what goes with them is not larger than they are.
  const sizeOfAll = files.reduce((sum, [, content]) => sum + content.length, 0);
  const end = program.subarray(-4 * sizeOfAll);
  for (const [name, content] of files) {
    if (!end.includes(Buffer.from(content))) problems.push(`${name} is not in it`);
  }
  return problems;
}

/**
 * The permissions inside a compiled program, as `deno compile` wrote them: `allow_run` and so on, a list of values (empty for
 * all) or null for none.
 *
 * @throws {SyntaxError} if there are none to be found
 */
export function embeddedPermissions(program: Buffer): Record<string, unknown> {
  const start = program.lastIndexOf('"permissions":{"allow_env"');
  const end = program.indexOf("}", start);
  if (start < 0 || end < 0) throw new SyntaxError("Cannot find embedded permissions in the program");
  return JSON.parse(program.subarray(start + '"permissions":'.length, end + 1).toString());
}

/** How embedded permissions differ from the list and the plugins. */
export function permissionProblems(
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
