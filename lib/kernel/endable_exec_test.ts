import { assert, assertEquals, assertRejects } from "@std/assert";
import { ExecError } from "../errors.ts";
import { EndableExec } from "./endable_exec.ts";
import { type Exec, type ExecResult, systemExec } from "./exec.ts";

const FOREVER = ["sleep", "60"];

async function isAborted(run: Promise<ExecResult>): Promise<void> {
  const error = await assertRejects(() => run, DOMException);
  assertEquals(error.name, "AbortError");
}

Deno.test("programs under way end with it, and none is started any more", async () => {
  const programs = new EndableExec(systemExec);
  const runs = [programs.run(FOREVER), programs.run(FOREVER, { timeoutMs: 60_000 })];
  const startMs = performance.now();
  setTimeout(() => programs.end(), 20);
  await Promise.all(runs.map(isAborted));
  await isAborted(programs.run(["true"]));
  assert(performance.now() - startMs < 30_000);
});

Deno.test("a program that is fed ends with it, too", async () => {
  const programs = new EndableExec(systemExec);
  const run = programs.run(FOREVER, { stdin: "more than a pipe holds\n".repeat(50_000) });
  setTimeout(() => programs.end(), 20);
  await isAborted(run);
});

Deno.test("what has ended well is told as it is, what failed by itself before the end, too", async () => {
  using programs = new EndableExec(systemExec);
  assertEquals((await programs.run(["echo", "done"])).stdout, "done\n");
  assertEquals((await programs.run(["false"])).code, 1);
});

Deno.test("a time limit is still one, and the signal of a single run ends only that", async () => {
  using programs = new EndableExec(systemExec);
  await assertRejects(() => programs.run(FOREVER, { timeoutMs: 20 }), ExecError, "timed out after 0.02 s");
  const one = new AbortController();
  const ended = programs.run(FOREVER, { signal: one.signal });
  const other = programs.run(["sleep", "0.2"]);
  setTimeout(() => one.abort(), 20);
  await isAborted(ended);
  assertEquals((await other).code, 0);
});

Deno.test("one inside of another ends with the outer one, not the other way round", {
  permissions: "none",
}, async () => {
  const exec: Exec = { run: () => Promise.resolve({ code: 0, stdout: "", stderr: "" }) };
  const outer = new EndableExec(exec);
  const inner = new EndableExec(outer);
  inner.end();
  await isAborted(inner.run(["true"]));
  assertEquals((await outer.run(["true"])).code, 0);
  const second = new EndableExec(outer);
  outer.end();
  await isAborted(second.run(["true"]));
});
