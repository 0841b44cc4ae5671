import { assertEquals, assertRejects } from "@std/assert";
import { AheadExec } from "./ahead_exec.ts";
import type { Exec, ExecResult } from "./exec.ts";

/** Answers with the number of the run. */
function counting(): { readonly exec: Exec; readonly runs: string[] } {
  const runs: string[] = [];
  const run: Exec["run"] = (argv, { stdin } = {}) => {
    runs.push([...argv, ...typeof stdin === "string" ? [`< ${stdin}`] : []].join(" "));
    if (argv[0] === "missing") return Promise.reject(new Error("missing"));
    return Promise.resolve({ code: 0, stdout: String(runs.length), stderr: "" });
  };
  return { exec: { run }, runs };
}

const said = async (result: Promise<ExecResult>): Promise<string> => (await result).stdout;

Deno.test(
  "a run takes what was begun with the same words and input, once",
  { permissions: "none" },
  async () => {
    const { exec, runs } = counting();
    const ahead = new AheadExec(exec);
    ahead.begin([{ argv: ["nft", "--version"] }, { argv: ["nft", "-c"], stdin: "a" }]);
    assertEquals(runs, ["nft --version", "nft -c < a"]);
    assertEquals(await said(ahead.run(["nft", "-c"], { stdin: "a" })), "2");
    assertEquals(await said(ahead.run(["nft", "--version"])), "1");
    assertEquals(runs.length, 2);
    assertEquals(await said(ahead.run(["nft", "--version"])), "3");
  },
);

Deno.test(
  "other input, other options and what is old are runs of their own",
  { permissions: "none" },
  async () => {
    const { exec, runs } = counting();
    const ahead = new AheadExec(exec);
    ahead.begin([{ argv: ["nft", "-c"], stdin: "a" }, { argv: ["ip"] }]);
    assertEquals(await said(ahead.run(["nft", "-c"], { stdin: "b" })), "3");
    assertEquals(await said(ahead.run(["nft", "-c"])), "4");
    assertEquals(await said(ahead.run(["ip"], { env: { A: "1" } })), "5");
    ahead.rest();
    assertEquals(await said(ahead.run(["ip"])), "6");
    assertEquals(runs.length, 6);
  },
);

Deno.test("how a program fails is told to whoever runs it, and to nobody if nobody does", {
  permissions: "none",
}, async () => {
  const { exec, runs } = counting();
  const ahead = new AheadExec(exec);
  ahead.begin([{ argv: ["missing", "1"] }, { argv: ["missing", "2"] }]);
  await assertRejects(() => ahead.run(["missing", "1"]), Error, "missing");
  assertEquals(runs.length, 2);
});
