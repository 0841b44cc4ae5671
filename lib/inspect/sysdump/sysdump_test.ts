import { assert, assertEquals, assertRejects } from "@std/assert";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { type Part, type PartOutcome, programPart, readPart, textPart } from "./parts.ts";
import { sysdump } from "./sysdump.ts";

const LIMITS = { timeMs: 1_000, bytes: 100, signal: new AbortController().signal };
const encoder = new TextEncoder();

/** A program that prints these pieces, and then ends so. */
function printing(pieces: readonly string[], end: () => Promise<{ code: number; stderr: string }>): Exec {
  return {
    async run(_, { onStdout, signal } = {}) {
      for (const piece of pieces) {
        signal?.throwIfAborted();
        onStdout?.(encoder.encode(piece));
      }
      signal?.throwIfAborted();
      return { stdout: "", ...await end() };
    },
  };
}

const well = () => Promise.resolve({ code: 0, stderr: "" });

function shown({ bytes, problem }: PartOutcome): readonly [string | null, string] {
  return [bytes === null ? null : new TextDecoder().decode(bytes), problem];
}

Deno.test("a program's output is a part, as far as there is one", async () => {
  const fails = () => Promise.resolve({ code: 3, stderr: "not allowed\n" });
  const hangs = () => Promise.reject(new ExecError(["nft"], 143, "", { timedOutMs: 10_000 }));
  const missing = () => Promise.reject(new ExecError(["nft"], -1, "entity not found"));
  const cases: readonly (readonly [Exec, string | null, string])[] = [
    [printing(["a", "b"], well), "ab", ""],
    [printing([], well), "", ""],
    [printing([], fails), null, 'Command "nft list" failed with status 3: not allowed'],
    [printing(["half"], fails), "half", 'Command "nft list" failed with status 3: not allowed'],
    [printing(["half"], hangs), "half", 'Command "nft" timed out after 10 s'],
    [printing([], hangs), null, 'Command "nft" timed out after 10 s'],
    [printing([], missing), null, 'Command "nft" failed with status -1: entity not found'],
    [
      printing(Array.from({ length: 1_000 }, () => "x".repeat(30)), well),
      "x".repeat(100),
      "it is longer than 100 bytes, and cut there",
    ],
    [printing(["x".repeat(100)], well), "x".repeat(100), ""],
  ];
  for (const [exec, text, problem] of cases) {
    const outcome = await readPart(programPart("rules/a.txt", ["nft", "list"], exec), LIMITS, () => 0);
    assertEquals(shown(outcome), [text, problem]);
  }
});

Deno.test("rules are packed as they are, whatever their Services are called", async () => {
  const rule = '-A KUBE-SERVICES -m comment --comment "shop/token:password=x" -j KUBE-SVC-A\n';
  const part = programPart("a", ["iptables-save"], printing([rule], well));
  assertEquals(shown(await readPart(part, LIMITS, () => 0)), [rule, ""]);
});

async function all(
  parts: readonly Part[],
  signal = LIMITS.signal,
): Promise<{ text: string; said: string[] }> {
  const said: string[] = [];
  const pieces = sysdump({
    parts,
    folder: "dump",
    limits: LIMITS,
    signal,
    nowMs: () => 0,
    say: (text) => said.push(text),
    onOutcome: ({ name, problem }) => void said.push(`${name}: ${problem}`),
  });
  let text = "";
  for await (const piece of pieces) text += new TextDecoder().decode(piece);
  return { text, said };
}

Deno.test("a part that cannot be had costs the others nothing and is listed with its reason", async () => {
  const broken: Part = {
    name: "b.txt",
    from: "somewhere",
    read: () => Promise.reject(new Error("no such luck")),
  };
  const parts = [textPart("a.txt", "here", () => "first"), broken, textPart("c.txt", "here", () => "last")];
  const { text, said } = await all(parts);
  assert(text.includes("dump/a.txt") && text.includes("first") && text.includes("last"));
  assert(!text.includes("dump/b.txt"));
  assertEquals(said, [
    "Reading here",
    "a.txt: ",
    "Reading somewhere",
    "b.txt: no such luck",
    "Reading here",
    "c.txt: ",
  ]);
  const list = JSON.parse(text.slice(text.indexOf('{\n  "apiVersion"'), text.lastIndexOf("}") + 1));
  assertEquals(
    list.parts.map((
      part: { name: string; bytes: number | null; problem: string },
    ) => [part.name, part.bytes, part.problem]),
    [["a.txt", 5, ""], ["b.txt", null, "no such luck"], ["c.txt", 4, ""]],
  );
});

Deno.test("ending it ends the archive, and no further part is read", async () => {
  const end = new AbortController();
  let reads = 0;
  const part: Part = {
    name: "a",
    from: "here",
    read: () => {
      reads++;
      end.abort(new Error("ended"));
      return Promise.resolve("");
    },
  };
  await assertRejects(() => all([part, part], end.signal), Error, "ended");
  assertEquals(reads, 1);
});
