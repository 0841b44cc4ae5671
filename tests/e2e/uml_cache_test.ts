/**
 * The runtime's cache in user-mode kernels: two of them side by side have one each, leave that of this machine as it is, and begin
 * without its databases, so that damaged ones keep nothing from starting.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { e2eTest } from "../support/skip.ts";
import { UML_NEEDS, UML_SCRIPT } from "../support/uml.ts";

const VERSION = [Deno.execPath(), "run", "-q", "--no-check", "-A", "main.ts", "version"];
const LIMIT_SECONDS = 300;

/** What a program in the project's folder says, with this cache or the usual one. */
async function say(argv: readonly string[], cache?: string): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(argv[0]!, {
    args: argv.slice(1),
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(LIMIT_SECONDS), ...(cache === undefined ? {} : { DENO_DIR: cache }) },
  }).output();
  const text = new TextDecoder().decode(stdout);
  assertEquals(code, 0, text + new TextDecoder().decode(stderr));
  return text.trim();
}

/** Files below a folder, links left out. */
async function* filesBelow(folder: string): AsyncGenerator<string> {
  for await (const { name, isFile, isDirectory } of Deno.readDir(folder)) {
    if (isFile) yield `${folder}/${name}`;
    if (isDirectory) yield* filesBelow(`${folder}/${name}`);
  }
}

async function contents(folder: string): Promise<Record<string, string>> {
  const found: [string, string][] = [];
  for await (const path of filesBelow(folder)) {
    const hash = await crypto.subtle.digest("SHA-256", await Deno.readFile(path));
    found.push([path, new Uint8Array(hash).toHex()]);
  }
  return Object.fromEntries(found.sort());
}

/** A cache that has been used, whose databases and translations have been damaged since. */
async function damagedCache(folder: string): Promise<void> {
  const { npmCache } = JSON.parse(
    await say([Deno.execPath(), "info", "--json"]),
  );
  await Deno.symlink(npmCache, `${folder}/npm`);
  await say(VERSION, folder);
  let databases = 0;
  for await (const path of filesBelow(folder)) {
    const isDatabase = /_v\d+(-wal|-shm)?$/.test(path);
    if (isDatabase) databases++;
    const { size } = await Deno.stat(path);
    const noise = crypto.getRandomValues(new Uint8Array(Math.min(size, 40_000)));
    await Deno.writeFile(path, isDatabase ? noise : noise.subarray(0, size / 2));
  }
  assertEquals(databases > 0, true, "the runtime keeps no databases where this test looks");
}

e2eTest("user-mode kernels side by side have a cache of their own", UML_NEEDS, async () => {
  const cache = await Deno.makeTempDir({ prefix: "kproxy-deno-dir-" });
  try {
    await damagedCache(cache);
    const before = await contents(cache);
    const inside = `echo $DENO_DIR; ${VERSION.join(" ")}`;
    const wanted = `/run/deno\n${await say(VERSION)}`;
    assertEquals(await Promise.all([1, 2].map(() => say([UML_SCRIPT, inside], cache))), [wanted, wanted]);
    assertEquals(await contents(cache), before);
  } finally {
    await Deno.remove(cache, { recursive: true });
  }
});
