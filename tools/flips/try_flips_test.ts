import { assert, assertEquals } from "@std/assert";
import { copyProject } from "../copy_project.ts";
import { type Ending, type Load, TestChild, useOf } from "./test_child.ts";
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

/** Of the processor: enough to tell what never ends by itself, and far more than what does end needs. */
const [ENDLESS_CPU_MS, OTHER_CPU_MS] = [300, 20_000];

const GLOBALS = "declare const $m: (id: number) => boolean;\n";

async function start(load: Load): Promise<TestChild> {
  const child = new TestChild(load, { asleepMs: 1_000, heapMb: 64, residentMb: 400 });
  const ready = await child.ask(null, 60_000);
  assert(typeof ready !== "string" && ready.kind === "ready", JSON.stringify(ready));
  return child;
}

/** What a test does while a flip is on, and how that ends. */
const ATTACKS: readonly (readonly [what: string, body: string, ending: Ending | "killed"])[] = [
  ["computes for ever", "while (true);", "endless"],
  [
    "prints garbage for ever",
    'while (true) Deno.stdout.writeSync(new TextEncoder().encode("{\\n".repeat(999)));',
    "endless",
  ],
  ["waits for what never comes", "await new Promise(() => {});", "waits for ever"],
  [
    "keeps the processor's clock going by waking up",
    "while (true) await new Promise((r) => setTimeout(r));",
    "endless",
  ],
  ["fills the heap", "const all: unknown[] = []; while (true) all.push(new Array(9999).fill(0.5));", "died"],
  [
    "fills memory outside the heap",
    "const all: unknown[] = []; while (true) all.push(new Uint8Array(2 ** 24).fill(1));",
    "memory",
  ],
  ["ends the process", "Deno.exit(0);", "died"],
  [
    "throws behind the test's back",
    "Promise.reject(new Error()); await new Promise((r) => setTimeout(r, 1));",
    "killed",
  ],
  [
    "throws behind the test's back, just before its end",
    "const timer = new Promise((r) => setTimeout(r, 1)); Promise.reject(new Error());" +
    " for (const end = Date.now() + 9; Date.now() < end;); await timer;",
    "killed",
  ],
  ["removes files", 'Deno.removeSync(".", { recursive: true });', "killed"],
  ["writes files", 'Deno.writeTextFileSync("x", "");', "killed"],
  ["starts a program", 'new Deno.Command("true").outputSync();', "killed"],
  ["calls somebody", "await Deno.connect({ port: 9 });", "killed"],
  ["recurses for ever", "const f = (): number => 1 + f(); f();", "killed"],
  ["throws what is no error", "throw undefined;", "killed"],
];

Deno.test("whatever a flip makes of a test, it is ended and told, and nothing is harmed", async () => {
  const cases = ATTACKS.map(([, body], index) => `if ($m(${index + 1})) { ${body} }`).join("\n");
  const text = `${GLOBALS}Deno.test("attacks", async () => { await 0;\n${cases}\n});\n`;
  await withCopy({ "attacks_test.ts": text }, async (folder) => {
    const load = { folder, files: ["attacks_test.ts"], first: 0, tries: 0 };
    let child: TestChild | null = null;
    try {
      for (const [index, [what, , ending]] of ATTACKS.entries()) {
        child ??= await start(load);
        const cpuMs = ending === "endless" ? ENDLESS_CPU_MS : OTHER_CPU_MS;
        const answer = await child.ask({ kind: "run", flip: index + 1, tests: [0] }, cpuMs);
        assertEquals(typeof answer === "string" ? answer : answer.kind, ending, what);
        if (ending === "killed") continue;
        await child.end();
        assertEquals(await useOf(child.pid), null);
        child = null;
      }
    } finally {
      await child?.end();
    }
    assertEquals(await Deno.readTextFile(`${folder}/attacks_test.ts`), text);
  });
});

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
    const unfit: string[] = [];
    await tryFlips({ folder, flips: [1, 2, 3, 4, 5, 7] }, {
      files: ["code_test.ts"],
      tries: 0,
      workers: 2,
      stop: new AbortController().signal,
      onVerdict: (flip, verdict) => verdicts.set(flip, verdict),
      onUnfit: (test, failure) => unfit.push(`${test}: ${failure}`),
    });
    assertEquals([...verdicts].sort(([a], [b]) => a - b), [
      [1, { kind: "killed", by: "early" }],
      [2, { kind: "killed", by: "plain" }],
      [3, { kind: "unreached" }],
      [4, { kind: "survived" }],
      [5, { kind: "killed", by: "cached" }],
      [7, { kind: "survived" }],
    ]);
    assertEquals(unfit, ["fails anyway: Error: as ever boolean"]);
  });
});
