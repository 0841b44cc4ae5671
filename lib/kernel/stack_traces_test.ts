import { assertEquals, assertMatch } from "@std/assert";

/** Logs once while no file can be opened, and once more. */
const PROGRAM = `
import { openLogger } from "LOGGER";
import { guardStackTraces } from "GUARD";
guardStackTraces();
const stream = (name: string) => ({ write: (line: string) => console.log(name, line), dropped: 0, onResumed: () => {} });
const form = { splitStream: false, infoBufferSize: "0" };
const logging = { format: "text", flushFrequency: 0, verbosity: 0, vmodule: [], options: { text: form, json: form } };
const log = openLogger(logging, { out: stream("out"), err: stream("err") });
const open: Deno.FsFile[] = [];
try {
  for (;;) open.push(Deno.openSync("/dev/null"));
} catch (error) {
  log.error("no descriptor", error);
  console.log(new Error("its stack").stack);
}
for (const file of open) file.close();
log.info("some again");
`;

Deno.test("without a descriptor a line is written, of an unknown place, and the program goes on", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const program = `${folder}/program.ts`;
    const logger = import.meta.resolve("../observe/log.ts");
    const guard = import.meta.resolve("./descriptors.ts");
    await Deno.writeTextFile(program, PROGRAM.replace("LOGGER", logger).replace("GUARD", guard));
    const run = `ulimit -n 120; exec "$@"`;
    const config = new URL("../../deno.json", import.meta.url).pathname;
    const { code, stdout, stderr } = await new Deno.Command("sh", {
      args: ["-c", run, "sh", Deno.execPath(), "run", "-q", "-A", "--no-check", "--config", config, program],
    }).output();
    const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
    assertEquals(code, 0, text(stderr));
    const [none, stack, some] = text(stdout).split("\n").filter((line) => line !== "");
    assertMatch(none ?? "", /^err E.* unknown:0\] "no descriptor" err="Too many open files/);
    assertEquals(stack, "Error: its stack");
    assertMatch(some ?? "", /^err I.* program\.ts:17\] "some again"$/);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
