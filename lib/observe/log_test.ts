import { assert, assertEquals, assertMatch } from "@std/assert";
import { createLogger, errorText, type Logger, type LoggerOptions, openLogger, silentLogger } from "./log.ts";
import { defaultConfig } from "../config/defaults.ts";
import type { LoggingConfig } from "../config/types.ts";

function logger(options: Partial<LoggerOptions> = {}): { log: Logger; lines: string[] } {
  const lines: string[] = [];
  const log = createLogger({
    format: "text",
    verbosity: 0,
    write: (line) => lines.push(line),
    nowMs: () => new Date(2026, 0, 2, 3, 4, 5).getTime() + 678.901,
    pid: 4321,
    ...options,
  });
  return { log, lines };
}

Deno.test("a text line has klog's header, the caller and quoted values", { permissions: "none" }, () => {
  const { log, lines } = logger();
  log.info("Synced rules", { family: "IPv4", rules: 12, full: true, services: ["a/b"], gone: undefined });
  assertEquals(lines.length, 1);
  assertMatch(
    lines[0] ?? "",
    /^I0102 03:04:05\.67890\d {4}4321 log_test\.ts:\d+\] "Synced rules" family="IPv4" rules=12 full=true services=\["a\/b"\]\n$/,
  );
});

Deno.test(
  "a JSON line has ts, caller, msg and v, and err instead of v for errors",
  { permissions: "none" },
  () => {
    const { log, lines } = logger({ format: "json", verbosity: 4 });
    log.info("one", { set: new Set(["x"]) }, 4);
    log.error("two", new Error("outer", { cause: new Error("inner") }), { n: 1 });
    const [first, second] = lines.map((line) => JSON.parse(line));
    assertEquals({ ...first, ts: 0, caller: "" }, { ts: 0, caller: "", msg: "one", v: 4, set: ["x"] });
    assertMatch(first.caller, /^log_test\.ts:\d+$/);
    assertEquals({ ...second, ts: 0, caller: "" }, {
      ts: 0,
      caller: "",
      msg: "two",
      err: "outer: inner",
      n: 1,
    });
  },
);

Deno.test("verbosity decides which information is written, errors and warnings always are", {
  permissions: "none",
}, () => {
  const { log, lines } = logger({ verbosity: 2 });
  for (const v of [0, 1, 2, 3]) log.info(`v${v}`, {}, v);
  log.warn("careful");
  log.error("broken", "text");
  assertEquals(lines.map((line) => `${line[0]} ${/"(.*?)"/.exec(line)?.[1]}`), [
    "I v0",
    "I v1",
    "I v2",
    "W careful",
    "E broken",
  ]);
  assert(log.enabled(2));
  assertEquals(log.enabled(3), false);
});

Deno.test("vmodule raises and lowers the verbosity of matching files only", { permissions: "none" }, () => {
  const raised = logger({ vmodule: [{ filePattern: "log_*", verbosity: 5 }] });
  raised.log.info("deep", {}, 5);
  assertEquals(raised.lines.length, 1);
  const other = logger({ vmodule: [{ filePattern: "sync", verbosity: 5 }] });
  other.log.info("deep", {}, 5);
  assertEquals(other.lines.length, 0);
});

Deno.test("line breaks and quotes in values cannot forge a second line", { permissions: "none" }, () => {
  const { log, lines } = logger();
  log.info("name", { object: 'a"b\nE0101 forged' });
  assertEquals(lines.join("").split("\n").length, 2);
});

Deno.test("an error of 100 MB is one line that the log takes", { permissions: "none" }, () => {
  const text = errorText(new Error("nft", { cause: new Error("x".repeat(100_000_000)) }));
  assertEquals([text.slice(0, 7), text.slice(-26)], ["nft: xx", "xx… (100000005 characters)"]);
});

Deno.test("errorText() joins the causes once", { permissions: "none" }, () => {
  assertEquals(errorText(new Error("a: b", { cause: new Error("b") })), "a: b");
  assertEquals(errorText("plain"), "plain");
});

Deno.test("silentLogger writes nothing and reports nothing enabled", { permissions: "none" }, () => {
  silentLogger.error("x", new Error("y"));
  assertEquals(silentLogger.enabled(0), false);
});

Deno.test("a verbosity that changes counts from the next line on", { permissions: "none" }, () => {
  const lines: string[] = [];
  const verbosity = { level: 0 };
  const log = createLogger({
    format: "text",
    verbosity,
    write: (line) => lines.push(line),
    nowMs: () => 0,
    pid: 1,
  });
  log.info("dropped", {}, 4);
  assertEquals(log.enabled(4), false);
  verbosity.level = 4;
  log.info("written", {}, 4);
  assertEquals(log.enabled(4), true);
  verbosity.level = 0;
  log.info("dropped again", {}, 4);
  assertEquals(lines.map((line) => line.split("]")[1]), [' "written"\n']);
});

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
    assertMatch(text.err[0] ?? "", /^I\d{4} .*log_test\.ts:\d+\] "say \\"hello\\"" v=7\n$/);
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
