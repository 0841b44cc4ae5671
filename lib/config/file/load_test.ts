import { assertEquals, assertRejects } from "@std/assert";
import { join } from "node:path";
import { ConfigError } from "../../errors.ts";
import { runOk, systemExec } from "../../kernel/exec.ts";
import { parseConfigFile, readConfigFile } from "./load.ts";
import type { ParsedConfig } from "../parse.ts";
import { tempFolder } from "../../../tests/support/temp_files.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

async function load(path: string, lenient = false): Promise<ParsedConfig> {
  return parseConfigFile(await readConfigFile(path), { lenient });
}

Deno.test("a file that cannot be used is named", async () => {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  const path = join(folder, "config.yaml");
  const message = async (at: string): Promise<string> =>
    (await assertRejects(() => load(at), ConfigError)).message;
  assertEquals(await message(path), `${path}: cannot read the configuration file: there is no such file`);
  assertEquals(await message(folder), `${folder}: cannot read the configuration file: it is a folder`);
  await Deno.writeFile(path, new Uint8Array([0x61, 0xff, 0xfe]));
  assertEquals(await message(path), `${path}: the file is not UTF-8 text`);
  await Deno.writeTextFile(path, `${HEAD}bogus: 1\nmode: x\n`);
  assertEquals((await message(path)).split("\n").map((line) => line.split(" ")[0]), [
    `${path}:3:`,
    `${path}:4:`,
  ]);
});

async function isOpen(path: string): Promise<boolean> {
  for await (const { name } of Deno.readDir("/proc/self/fd")) {
    const target = await Deno.readLink(`/proc/self/fd/${name}`).catch(() => "");
    if (target === path) return true;
  }
  return false;
}

Deno.test("a pipe is read to its end; one without a writer and a device without end are refused", async () => {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  const path = join(folder, "config.yaml");
  await runOk(systemExec, ["mkfifo", path]);
  const writing = Deno.writeTextFile(path, `${HEAD}mode: ipvs\n`);
  assertEquals((await load(path)).config.mode, "ipvs");
  await writing;
  const problem = async (at: string, limitMs?: number): Promise<string> =>
    (await assertRejects(() => readConfigFile(at, limitMs), ConfigError)).message.replace(/^.*file: /, "");
  const silent = "it is a pipe that was not written and closed within 0.2 s";
  assertEquals(await problem(path, 200), silent);
  {
    using _silent = await Deno.open(path, { read: true, write: true });
    assertEquals(await problem(path, 200), silent);
  }
  assertEquals(await problem("/dev/zero"), "it has more than 4194304 bytes");
  // Readers that were called off let go of it in their own time.
  while (await isOpen(path)) await new Promise((resolve) => setTimeout(resolve, 10));
});

Deno.test("a file is loaded, leniently if asked", async () => {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(path, `${HEAD}bogus: 1\nmode: ipvs\n`);
    const { config, warnings } = await load(path, true);
    assertEquals(config.mode, "ipvs");
    assertEquals(warnings, [`${path}:3: bogus: unknown field (ignored)`]);
    await assertRejects(() => load(path), ConfigError);
  } finally {
    await Deno.remove(path);
  }
});
