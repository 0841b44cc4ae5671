import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT } from "../project_files.ts";
import { sampleOf } from "./generic.ts";
import { reportLines } from "./report.ts";
import { roomOf, ROOMS, testsAround, testsBeside } from "./rooms.ts";
import type { Flip } from "./source_flips.ts";

function flip(number: number): Flip {
  return { file: "lib/model/x.ts", line: number, place: "f", change: `a → ${number}`, key: `key ${number}` };
}

const FLIPS = Array.from({ length: 40 }, (_, number) => flip(number));

Deno.test("a sample hangs on its seed and on what each flip is, not on the others", () => {
  const numbers = (flips: readonly Flip[]) => flips.map(({ line }) => line);
  const sample = sampleOf(FLIPS, 10, 1);
  assertEquals(sample.length, 10);
  assertEquals(numbers(sampleOf([...FLIPS].reverse(), 10, 1)).reverse(), numbers(sample));
  assert(numbers(sampleOf(FLIPS, 10, 2)).join() !== numbers(sample).join());
  // Without one of the sample, the other nine are in it still.
  const [first, ...others] = sample;
  const again = sampleOf(FLIPS.filter((one) => one !== first), 10, 1);
  assertEquals(others.filter((one) => !again.includes(one)), []);
  assertEquals(sampleOf(FLIPS, null, 1), FLIPS);
  assertEquals(sampleOf(FLIPS, 99, 1), FLIPS);
});

Deno.test("a room's flips meet the tests beside them first, then those of its mode and the cases", () => {
  const room = "lib/backend/ipvs/plan";
  const files = [
    `${room}/a.ts`,
    `${room}/a_test.ts`,
    "lib/backend/ipvs/laws_test.ts",
    "lib/backend/nftables/b_test.ts",
  ];
  assertEquals(roomOf(`${room}/a.ts`), room);
  assertEquals(testsBeside(room, files), [`${room}/a_test.ts`]);
  const around = testsAround(room, files);
  assertEquals(around.slice(0, 2), [`${room}/a_test.ts`, "lib/backend/ipvs/laws_test.ts"]);
  assert(around.includes("tests/flows/flows_test.ts") && !around.includes("lib/backend/nftables/b_test.ts"));
  assertEquals(ROOMS.length, 7);
});

Deno.test("the report counts by room, and names survivors with what is known of them", () => {
  const lines = reportLines([
    { flip: flip(1), stage: "beside", verdict: { kind: "killed", by: "a test" }, explained: null },
    { flip: flip(2), stage: "around", verdict: { kind: "killed", by: "endless" }, explained: null },
    { flip: flip(3), stage: "around", verdict: { kind: "unreached" }, explained: null },
    {
      flip: flip(4),
      stage: "around",
      verdict: { kind: "survived" },
      explained: { kind: "equivalent", why: "for a reason" },
    },
  ]);
  assertEquals(lines, [
    "",
    "NOT EXPLAINED: 1",
    "lib/model/x.ts:3 f: a → 3 (no test comes by)",
    "",
    "equivalent: 1",
    "lib/model/x.ts:4 f: a → 4",
    "    for a reason",
    "",
    "room       flips  noticed beside  noticed around  survived   share",
    "lib/model      4               1               1         2  50.0 %",
    "all            4               1               1         2  50.0 %",
    "noticed because the tests did not end by themselves (endless): 1",
    "survivors, NOT EXPLAINED: 1, 25.0 % of all flips",
    "survivors, equivalent: 1, 25.0 % of all flips",
  ]);
});

/** Command lines of processes that have the text in them. */
function processesWith(text: string): string[] {
  const lines: string[] = [];
  for (const { name } of Deno.readDirSync("/proc")) {
    if (!/^[0-9]+$/.test(name)) continue;
    try {
      const line = Deno.readTextFileSync(`/proc/${name}/cmdline`);
      if (line.includes(text)) lines.push(line);
    } catch (error) {
      // It has ended meanwhile.
      if (!(error instanceof Error && /NotFound|os error [23]\b/.test(`${error.name} ${error.message}`))) {
        throw error;
      }
    }
  }
  return lines;
}

Deno.test("ended early, while tests run, it leaves no process and no copy", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const mutate = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", "tools/mutate.ts", "--generic", "lib/model/names.ts"],
      cwd: ROOT,
      env: { TMPDIR: folder },
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    let ended = false;
    mutate.status.then(() => ended = true);
    const isBusy = () => processesWith(`${folder}/`).length > 0;
    while (!isBusy() && !ended) await new Promise((resolve) => setTimeout(resolve, 20));
    if (!ended) mutate.kill("SIGINT");
    const { code, stderr } = await mutate.output();
    assertStringIncludes(new TextDecoder().decode(stderr), "Ended by SIGINT");
    assertEquals([code, processesWith(`${folder}/`), [...Deno.readDirSync(folder)]], [1, [], []]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("wrong words are told, and nothing is tried", async () => {
  for (
    const [words, said] of [
      [["--sample", "many"], '--sample wants a number, not "many"'],
      [["--seeds", "1"], "Unknown: --seeds"],
      [["lib/nowhere"], "No sources of lib are in lib/nowhere"],
    ] as const
  ) {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", "tools/mutate.ts", "--generic", ...words],
      cwd: ROOT,
    }).output();
    const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes).trim();
    assertEquals([code, text(stdout), text(stderr)], [2, "", said]);
  }
});
