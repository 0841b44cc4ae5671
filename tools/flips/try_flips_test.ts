import { assertEquals } from "@std/assert";
import { copyProject } from "../copy_project.ts";
import { tryFlips, type Verdict } from "./try_flips.ts";

/** What a process of tests needs of the project, and test files of our own. */
async function withCopy(
  files: Readonly<Record<string, string>>,
  run: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await copyProject([
    "tools/flips",
    "tests/support/fast_check.ts",
    "links",
    "deno.json",
    "deno.lock",
  ]);
  try {
    for (const [name, text] of Object.entries(files)) await Deno.writeTextFile(`${folder}/${name}`, text);
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const GLOBALS = "declare const $m: (id: number) => boolean;\n";

/** `$m(N)` is where flip N changes the outcome. */
const CODE = `${GLOBALS}
export const early = $m(1) ? "flipped" : "right";
export const plain = (): string => $m(2) ? "flipped" : "right";
export const untested = (): string => $m(3) ? "flipped" : "right";
export const loose = (): string => $m(4) ? "flipped" : "right";
let known: string | undefined;
export const cached = (): string => known ??= $m(5) ? "flipped" : "right";
export const always: boolean = $m(7);
`;
const TESTS = `import { assertEquals } from "@std/assert";
import { always, cached, early, loose, plain } from "./code.ts";
Deno.test("early", () => assertEquals(early, "right"));
Deno.test({ name: "plain", fn: () => assertEquals(plain(), "right") });
Deno.test("loose", async (t) => { await t.step("inner", () => assertEquals(typeof loose(), "string")); });
Deno.test("cached", () => assertEquals(cached(), "right"));
Deno.test("not to be run", { ignore: true }, () => assertEquals(1, 2));
Deno.test("fails anyway", () => { throw new Error("as ever " + typeof always); });
`;

Deno.test("a flip counts as noticed only where a test fails by it alone", async () => {
  await withCopy({ "code.ts": CODE, "code_test.ts": TESTS }, async (folder) => {
    const verdicts = new Map<number, Verdict>();
    const invalid: string[] = [];
    await tryFlips({ folder, flips: [1, 2, 3, 4, 5, 7] }, {
      files: ["code_test.ts"],
      tries: 0,
      workers: 2,
      stop: new AbortController().signal,
      onVerdict: (flip, verdict) => verdicts.set(flip, verdict),
      onInvalid: (test, failure) => invalid.push(`${test}: ${failure}`),
    });
    assertEquals([...verdicts].sort(([a], [b]) => a - b), [
      [1, { kind: "killed", by: "early" }],
      [2, { kind: "killed", by: "plain" }],
      [3, { kind: "unreached" }],
      [4, { kind: "survived" }],
      [5, { kind: "killed", by: "cached" }],
      [7, { kind: "survived" }],
    ]);
    assertEquals(invalid, ["fails anyway: Error: as ever boolean"]);
  });
});
