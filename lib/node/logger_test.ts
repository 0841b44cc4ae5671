import { assertEquals, assertMatch } from "@std/assert";
import { defaultConfig } from "../config/defaults.ts";
import type { LoggingConfig } from "../config/types.ts";
import { openLogger } from "./logger.ts";

function logTo(logging: LoggingConfig): { out: string[]; err: string[] } {
  const lines = { out: [] as string[], err: [] as string[] };
  const stream = (into: string[]) => ({
    write: (line: string) => void into.push(line),
    dropped: 0,
    onResumed: () => {},
  });
  const log = openLogger(logging, { out: stream(lines.out), err: stream(lines.err) });
  log.info('say "hello"', { v: 7 });
  log.info("too detailed", {}, 3);
  log.warn("careful", { count: 7 });
  log.error("broken", new Error("why"));
  return lines;
}

Deno.test(
  "lines go to standard error in the form and verbosity that was chosen",
  { permissions: "none" },
  () => {
    const { logging } = defaultConfig();
    const text = logTo(logging);
    assertEquals([text.out.length, text.err.length], [0, 3]);
    assertMatch(text.err[0] ?? "", /^I\d{4} .*logger_test\.ts:\d+\] "say \\"hello\\"" v=7\n$/);
    const json = logTo({ ...logging, format: "json", verbosity: 3 });
    assertEquals(json.err.map((line) => JSON.parse(line).msg), [
      'say "hello"',
      "too detailed",
      "careful",
      "broken",
    ]);
  },
);

Deno.test("split streams part information from the rest, in both forms", { permissions: "none" }, () => {
  const { logging } = defaultConfig();
  const on = { splitStream: true, infoBufferSize: "0" };
  const options = { text: on, json: on };
  for (const format of ["text", "json"] as const) {
    const { out, err } = logTo({ ...logging, format, options });
    assertEquals([out.length, err.length], [1, 2], format);
    assertMatch(out[0] ?? "", /hello/);
  }
  const other = { text: on, json: { ...on, splitStream: false } };
  assertEquals(logTo({ ...logging, format: "json", options: other }).out, []);
});
