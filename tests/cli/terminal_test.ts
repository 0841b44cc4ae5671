/**
 * What long work draws on a real terminal, and that it draws nothing where standard error is none.
 *
 * @module
 */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { e2eTest, program } from "../support/skip.ts";
import { ROOT } from "../../tools/project_files.ts";

/** Long work in small. */
const WORK = `
import { Activity } from "${ROOT}/lib/cli/terminal/drawing.ts";
import { ProgressLine } from "${ROOT}/tests/support/progress_line.ts";
import { systemIo } from "${ROOT}/lib/cli/io.ts";
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const activity = new Activity(systemIo.terminal);
activity.say("removing rules");
await sleep(350);
activity.aside(() => systemIo.err("a line\\n"));
activity.say("");
{
  await using line = new ProgressLine(systemIo.terminal, 4);
  line.reach(1, "a quarter");
  await sleep(50);
}
systemIo.err("the end\\n");
`;
const ARGV = [Deno.execPath(), "eval", "-q", "--no-check", "--config", `${ROOT}/deno.json`, WORK];

async function run(name: string, args: readonly string[]): Promise<{ out: string; err: string }> {
  const { code, stdout, stderr } = await new Deno.Command(name, {
    args: [...args],
    env: { NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  assertEquals(code, 0, `${out}${err}`);
  return { out: out ?? "", err: err ?? "" };
}

Deno.test("nothing is drawn where standard error is no terminal", async () => {
  const [deno = "", ...args] = ARGV;
  assertEquals(await run(deno, args), { out: "", err: "a line\nthe end\n" });
});

e2eTest(
  "a terminal shows what is done and how far it is, and keeps only the lines",
  [program("script")],
  async () => {
    const quoted = ARGV.map((word) => `'${word.replaceAll("'", "'\\\\''")}'`).join(" ");
    const { out } = await run("script", ["-qec", `stty cols 80; ${quoted}`, "/dev/null"]);
    assertStringIncludes(out, "\r\x1b[K| removing rules");
    assertMatch(out, /\d\d:\d\d [#-]+ /);
    const seen = out.split(/\r?\n/).map((line) => line.split("\r\x1b[K").at(-1));
    assertEquals(seen, ["a line", "the end", ""]);
  },
);

e2eTest(
  "kproxy status --watch ends by Ctrl-C, with the terminal as it was and the last status on it",
  [program("script")],
  async () => {
    const words = [
      Deno.execPath(),
      "run",
      "-q",
      "-A",
      "--no-check",
      "--config",
      `${ROOT}/deno.json`,
      `${ROOT}/start.ts`,
    ];
    const command = [
      ...words,
      "status",
      "--watch",
      "--interval=100ms",
      "--socket=/run/nowhere/kproxy.sock",
    ];
    const child = new Deno.Command("script", {
      // Only kproxy shall be there for Ctrl-C: dash would stay before it and end by the signal, which tells of dash.
      args: [
        "-qec",
        `stty cols 100 rows 20; exec ${command.map((word) => `'${word}'`).join(" ")}`,
        "/dev/null",
      ],
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    const keys = child.stdin.getWriter();
    const decoder = new TextDecoder();
    const none = "no kproxy runs here, or one of an older release: ";
    let drawn = "";
    for await (const piece of child.stdout) {
      const before = drawn.split(none).length;
      drawn += decoder.decode(piece, { stream: true });
      const now = drawn.split(none).length;
      // Seen twice, it is being drawn again and again.
      if (before < 3 && now >= 3) await keys.write(new Uint8Array([3]));
    }
    await keys.close();
    assertEquals((await child.status).code, 0, drawn);
    const after = drawn.split("\x1b[?25h\x1b[?1049l");
    assertEquals(after.length, 2, drawn);
    assertStringIncludes(after[0] ?? "", "\x1b[?1049h\x1b[?25l");
    assertStringIncludes(after[1] ?? "", none);
  },
);
