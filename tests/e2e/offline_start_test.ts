/** A start from source without packages and without a network. */
import { assertEquals, assertMatch } from "@std/assert";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, ROOT_NAMESPACES } from "../support/skip.ts";
import { tempFolder } from "../support/temp_files.ts";

e2eTest("without packages and without a network a start from source ends in one line, with status 1", [
  ROOT_NAMESPACES,
], async () => {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  // The launcher takes deno from the path.
  await Deno.symlink(Deno.execPath(), `${folder}/deno`);
  const env = [
    `PATH=${folder}:${Deno.env.get("PATH") ?? ""}`,
    `DENO_DIR=${folder}/cache`,
    `KPROXY_HOME=${ROOT}`,
  ];
  const line = (reason: string): RegExp =>
    new RegExp(
      `^Error: The package \\S+@[\\d.]+, which deno.json names, is not on this machine and cannot be had \\(${reason}\\): run [^\\n]*\\n$`,
    );
  const deno = [
    "deno",
    "run",
    "-q",
    "--config",
    `${ROOT}/deno.json`,
    ...runtimeFlags(),
    `${ROOT}/start.ts`,
  ];
  const starts: readonly [argv: readonly string[], told: RegExp][] = [
    [[`${ROOT}/deploy/kproxy`, "run"], line("nothing may be downloaded at a start")],
    [[...deno, "run"], line("[^)]*name resolution[^)]*")],
    // Deno looks for all packages before it begins a task, and says so itself, with the package in the first line.
    [["deno", "task", "-q", "kproxy", "run"], /^error: Failed caching npm package '\S+@[\d.]+'\n/],
  ];
  await withNetns(async (netns) => {
    for (const [argv, told] of starts) {
      const { code, stdout, stderr } = await new Deno.Command("ip", {
        args: ["netns", "exec", netns.name, "env", ...env, "NO_COLOR=1", ...argv],
        cwd: ROOT,
        stdin: "null",
      }).output();
      const decoder = new TextDecoder();
      assertEquals([code, decoder.decode(stdout)], [1, ""], argv.join(" "));
      assertMatch(decoder.decode(stderr), told);
    }
  });
});
