import { assertEquals, assertRejects } from "@std/assert";
import { join } from "node:path";
import { writeFileAtomic } from "./write_file.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";

async function namesIn(folder: string): Promise<string[]> {
  return (await Array.fromAsync(Deno.readDir(folder))).map(({ name }) => name).sort();
}

Deno.test("a file is made for its owner only, and nothing else is left", () =>
  withFolder(async (folder) => {
    const path = join(folder, "config.yaml");
    await writeFileAtomic(path, "a: ä\n");
    assertEquals(await Deno.readTextFile(path), "a: ä\n");
    assertEquals(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
    assertEquals(await namesIn(folder), ["config.yaml"]);
  }));

Deno.test("an existing file is replaced as a whole, with its rights narrowed", () =>
  withFolder(async (folder) => {
    const path = join(folder, "config.yaml");
    await Deno.writeTextFile(path, "old".repeat(1000), { mode: 0o644 });
    using reader = await Deno.open(path);
    await writeFileAtomic(path, "new\n");
    assertEquals(await Deno.readTextFile(path), "new\n");
    assertEquals(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
    // A reader that had it open still sees all of the old content.
    assertEquals((await new Response(reader.readable).text()).length, 3000);
  }));

Deno.test("symbolic links and folders are refused and stay as they are", () =>
  withFolder(async (folder) => {
    const target = join(folder, "target");
    await Deno.writeTextFile(target, "kept");
    await Deno.symlink(target, join(folder, "link"));
    await Deno.symlink(join(folder, "nowhere"), join(folder, "dangling"));
    await Deno.mkdir(join(folder, "folder"));
    await assertRejects(() => writeFileAtomic(join(folder, "link"), "x"), TypeError, "symbolic link");
    await assertRejects(() => writeFileAtomic(join(folder, "dangling"), "x"), TypeError, "symbolic link");
    await assertRejects(() => writeFileAtomic(join(folder, "folder"), "x"), TypeError, "regular file");
    assertEquals(await Deno.readTextFile(target), "kept");
    assertEquals(await namesIn(folder), ["dangling", "folder", "link", "target"]);
  }));

Deno.test("a folder that is not there is an error about the file asked for", () =>
  withFolder(async (folder) => {
    const path = join(folder, "no", "x");
    const error = await assertRejects(() => writeFileAtomic(path, ""), Error);
    assertEquals(error.message, `Cannot write "${path}": No such file or directory (os error 2)`);
  }));
