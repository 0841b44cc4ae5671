import { assertEquals, assertRejects } from "@std/assert";
import { pathExists } from "../support/path_exists.ts";
import { inBenchFolder } from "./bench_folder.ts";

Deno.test("a bench's folder goes with its end, good or bad", async () => {
  const folders: string[] = [];
  await inBenchFolder(async (folder) => {
    folders.push(folder);
    await Deno.writeTextFile(`${folder}/figures`, "1");
  });
  await assertRejects(() =>
    inBenchFolder((folder) => {
      folders.push(folder);
      return Promise.reject(new RangeError("no figures"));
    }), RangeError);
  assertEquals(await Promise.all(folders.map(pathExists)), [false, false]);
});

Deno.test("a signal ends a bench with status 130, after what is open and its folder are removed", async () => {
  const program = `
    import { inBenchFolder } from "${new URL("bench_folder.ts", import.meta.url)}";
    await inBenchFolder(async (folder) => {
      console.log(folder);
      await new Promise((resolve) => setTimeout(resolve, 60_000));
    }, () => Promise.resolve(console.log("removed")));
  `;
  await using child = new Deno.Command(Deno.execPath(), {
    args: ["eval", program],
    stdout: "piped",
  }).spawn();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const folder = (await reader.read()).value?.trim() ?? "";
  assertEquals(await pathExists(folder), true);
  child.kill("SIGTERM");
  assertEquals([(await reader.read()).value, (await reader.read()).done], ["removed\n", true]);
  assertEquals([(await child.status).code, await pathExists(folder)], [130, false]);
});
