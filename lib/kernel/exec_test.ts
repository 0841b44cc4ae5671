import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { readUnlessGone } from "../../tests/support/processes.ts";
import { eventually, until } from "../../tests/support/until.ts";
import { ExecError } from "../errors.ts";
import { type ExecOptions, type Input, limitMs, readOutput, systemExec } from "./exec.ts";

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

Deno.test("a program that is missing fails with code -1", async () => {
  const error = await assertRejects(
    () => systemExec.run(["kproxy-no-such-program"], { stdin: "" }),
    ExecError,
  );
  assert(error.isMissing());
});

/** Many times what an end takes, and far less than the programs here take by themselves. */
const LIMIT_MS = 30_000;

/** Milliseconds that it took to fail. */
async function failsIn(
  argv: readonly string[],
  options: ExecOptions,
): Promise<{ readonly error: ExecError; readonly ms: number }> {
  const startMs = performance.now();
  const error = await assertRejects(() => systemExec.run(argv, options), ExecError);
  return { error, ms: performance.now() - startMs };
}

/** True while this process has it open; one is named `pipe:[12345]`. Tests of other files open pipes at the same time. */
async function hasPipe(name: string): Promise<boolean> {
  for (const { name: descriptor } of Deno.readDirSync(`/proc/${Deno.pid}/fd`)) {
    if (name === await Deno.readLink(`/proc/${Deno.pid}/fd/${descriptor}`).catch(() => "")) return true;
  }
  return false;
}

/** Ends what a test left running on purpose, whose words no other program uses. */
async function killLeftover(seconds: string): Promise<void> {
  const found: number[] = [];
  for await (const { name } of Deno.readDir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const words = (await readUnlessGone(`/proc/${name}/cmdline`)).split("\0");
    if (words[0] === "sleep" && words[1] === seconds) found.push(Number(name));
  }
  for (const pid of found) {
    Deno.kill(pid, "SIGKILL");
    await until(async () => await readUnlessGone(`/proc/${pid}/cmdline`) === "");
  }
  // Its writer hears of it on its way through this process, which takes as long as the machine is busy.
  for (let turns = 0; turns < 50; turns++) await sleep(5);
}

const HANGING: readonly [what: string, argv: readonly string[], options: ExecOptions][] = [
  ["leaves a child that holds its output", ["sh", "-c", "echo out; sleep 68.125 & wait"], {}],
  ["ends well itself, and leaves a child that holds its output", ["sh", "-c", "sleep 68.125 & exit 0"], {}],
  ["does not listen to SIGTERM", ["sh", "-c", "trap '' TERM; sleep 68.125; sleep 68.125"], {}],
  ["never reads its input", ["sleep", "68.125"], { stdin: "more than a pipe holds\n".repeat(50_000) }],
  [
    "leaves a child that holds its input",
    ["sh", "-c", "exec 3<&0; sleep 68.125 <&3 & wait"],
    { stdin: "more than a pipe holds\n".repeat(50_000) },
  ],
];
for (const [what, argv, options] of HANGING) {
  Deno.test(`a time limit holds for a program that ${what}`, async () => {
    try {
      const { error, ms } = await failsIn(argv, { ...options, timeoutMs: 100 });
      assertEquals(error.message.split(":")[0], `Command "${argv.join(" ")}" timed out after 0.1 s`);
      assert(error.isInconclusive());
      assert(ms < LIMIT_MS, `${ms} ms`);
    } finally {
      await killLeftover("68.125");
    }
  });
}

const HOLDING: readonly [what: string, argv: readonly string[], options: ExecOptions, code: number][] = [
  ["with status 0", ["sh", "-c", "echo out; sleep 68.375 & exit 0"], {}, 0],
  ["with another status", ["sh", "-c", "echo out; sleep 68.375 & exit 3"], {}, 3],
  [
    "without having read its input",
    ["sh", "-c", "exec 3<&0; echo out; sleep 68.375 <&3 & exit 0"],
    { stdin: "more than a pipe holds\n".repeat(50_000) },
    0,
  ],
];
/** More than a pipe holds, in pieces that fit into one. */
const PIECES = (): Iterable<string> => Array(20).fill("x".repeat(20_000));
const HELD: readonly [what: string, stdin: Input | undefined, last: string][] = [
  ["takes none of its input", undefined, "sleep 68.4375 <&3"],
  ["leaves little of its input", "little", "sleep 68.4375 <&3"],
  ["leaves more of its input than a pipe holds", PIECES, "sleep 68.4375 <&3"],
  [
    "leaves its input to a child that reads a part of it",
    PIECES,
    "{ sleep 1; head -c 100000; sleep 68.4375; } <&3",
  ],
];
for (const [what, stdin, last] of HELD) {
  Deno.test(`a program has ended that ${what}, which a child of its own holds`, async () => {
    // Nothing else is known of the child: it holds no other pipe.
    const argv = ["sh", "-c", `exec 3<&0; (${last}) >/dev/null 2>&1 & readlink /proc/$$/fd/0`];
    const startMs = performance.now();
    try {
      const { code, stdout, stderr } = await systemExec.run(argv, stdin === undefined ? {} : { stdin });
      assertEquals([code, stderr], [0, ""]);
      assertMatch(stdout, stdin === undefined ? /^\/dev\/null\n$/ : /^pipe:\[\d+\]\n$/);
      assert(performance.now() - startMs < LIMIT_MS);
      // A pipe that is full is closed with its last reader, or when that makes room.
      const isFull = last.startsWith("sleep") && stdin === PIECES;
      await until(async () => {
        if (isFull) await killLeftover("68.4375");
        return stdin === undefined || !await hasPipe(stdout.trim());
      });
      assert(performance.now() - startMs < LIMIT_MS + 3_000);
    } finally {
      await killLeftover("68.4375");
    }
  });
}

for (const [what, argv, options, code] of HOLDING) {
  Deno.test(`a program has ended ${what} although a child of its own holds its pipes`, async () => {
    const startMs = performance.now();
    try {
      const result = await systemExec.run(argv, options);
      assertEquals(result, { code, stdout: "out\n", stderr: "" });
      assert(performance.now() - startMs < LIMIT_MS);
    } finally {
      await killLeftover("68.375");
    }
  });
}

for (const [what, redirection] of [["output", ""], ["errors", ">&2"]] as const) {
  Deno.test(`a program that prints ${what} without an end is ended, and keeps no memory`, async () => {
    const { error } = await failsIn(["sh", "-c", `exec yes garbage ${redirection}`], { timeoutMs: 60_000 });
    assertEquals(error.timedOutMs, null);
    assertMatch(error.message, new RegExp(`: It printed more than \\d+ MiB of ${what}$`));
    assert(error.isInconclusive());
    assertEquals(error.stderr.length < 100, true);
  });
}

Deno.test("output is taken as it comes, and none of it is kept", async () => {
  let bytes = 0, pieces = 0, last = "";
  const { code, stdout } = await systemExec.run(
    ["sh", "-c", "yes 0123456789abcde | head -n 300000; echo é"],
    {
      onStdout: (piece) => {
        bytes += piece.byteLength;
        pieces++;
        last = new TextDecoder().decode(piece.slice(-3));
      },
    },
  );
  assertEquals([code, stdout, bytes, last], [0, "", 4_800_003, "é\n"]);
  assert(pieces > 40, `${pieces}`);
});

Deno.test("a program whose output is taken obeys its limits, too", async () => {
  let bytes = 0;
  const onStdout = (piece: Uint8Array): void => void (bytes += piece.byteLength);
  const { error } = await failsIn(["yes"], { timeoutMs: 60_000, onStdout });
  assertMatch(error.message, /It printed more than \d+ MiB of output$/);
  assertEquals(bytes, 128 * 2 ** 20);
  const end = new AbortController();
  const reason = new Error("a caller waits");
  const run = systemExec.run(["sh", "-c", "echo; exec sleep 60"], {
    signal: end.signal,
    onStdout: () => end.abort(reason),
  });
  assertEquals(await run.catch((error: unknown) => error), reason);
});

Deno.test("a list of many entries may print more than other programs", async () => {
  const argv = ["head", "-c", String(150 * 2 ** 20), "/dev/zero"];
  let bytes = 0;
  const onStdout = (piece: Uint8Array): void => void (bytes += piece.byteLength);
  const { code } = await systemExec.run(argv, { onStdout, entries: 100_000 });
  assertEquals([code, bytes], [0, 150 * 2 ** 20]);
  await failsIn(argv, { timeoutMs: 60_000, onStdout, entries: 10 });
});

Deno.test("an end holds for a program that leaves a child with its output", async () => {
  const end = new AbortController();
  const startMs = performance.now();
  const ended = systemExec.run(["sh", "-c", "sleep 68.25 & wait"], { signal: end.signal });
  setTimeout(() => end.abort(), 50);
  try {
    await assertRejects(() => ended, DOMException);
    assert(performance.now() - startMs < LIMIT_MS);
  } finally {
    await killLeftover("68.25");
  }
});

Deno.test("what is still in the pipes of a program that was ended is read", async () => {
  const said = ["sh", "-c", "echo why it hangs >&2; exec sleep 60"];
  // A machine may leave it no time to say a word.
  let timeoutMs = 100;
  await eventually(async () => {
    const { error } = await failsIn(said, { timeoutMs: timeoutMs *= 4 });
    assertEquals(error.stderr, "why it hangs\n");
  }, { limitMs: 30_000 });
});

Deno.test("a program that is killed has no status, and its error names the signal", async () => {
  const { error } = await failsIn(["sh", "-c", "echo almost; kill -KILL $$"], {});
  assertEquals(error.message, 'Command "sh -c echo almost; kill -KILL $$" was killed by signal SIGKILL');
  assertEquals([error.code, error.isInconclusive(), error.isMissing()], [137, true, false]);
});

Deno.test("a program that is there and cannot be started is not missing", async () => {
  // Longer than any argument may be.
  const { error } = await failsIn(["true", "x".repeat(200_000)], {});
  assertEquals([error.isMissing(), error.isInconclusive()], [false, true]);
});

Deno.test("a status without a word is reported without an empty place for it", () => {
  assertEquals(new ExecError(["nft"], 1, "").message, 'Command "nft" failed with status 1');
  assertEquals(new ExecError(["nft"], 139, "").message, 'Command "nft" was killed by signal SIGSEGV');
});

/** Prints by how many kB of memory 300 programs make the process grow. */
const GROWTH = `
import { systemExec } from "${new URL("./exec.ts", import.meta.url)}";
const anonymousKb = () => Number(/^RssAnon:\\s+(\\d+)/m.exec(Deno.readTextFileSync("/proc/self/status"))[1]);
const run = async (times) => {
  for (let time = 0; time < times; time++) await systemExec.run(["cat"], { stdin: "a line\\n" });
};
await run(30);
const before = anonymousKb();
await run(300);
console.log(anonymousKb() - before);
`;

Deno.test("programs leave no memory behind", async () => {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["eval", "--v8-flags=--max-semi-space-size=2", GROWTH],
    stdin: "null",
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  const growthKb = Number(new TextDecoder().decode(stdout));
  // Buffers that stay until some garbage collection would be 100 kB of each.
  assert(growthKb < 15_000, `${growthKb} kB`);
});

const LIMITS: readonly [what: string, options: ExecOptions, bytes: number, leastS: number, mostS: number][] =
  [
    ["no input", {}, 0, 119, 121],
    ["the rules of 44,000 Services", {}, 50_000_000, 20 * 60, 28 * 60],
    ["a limit of the caller's", { timeoutMs: 50 }, 50_000_000, 0.05, 0.05],
    ["a list of 1,000,000 elements, 91 s on a quiet machine", { entries: 1_000_000 }, 0, 10 * 91, 20 * 91],
  ];
for (const [what, options, bytes, leastS, mostS] of LIMITS) {
  Deno.test(`how long a program may run: ${what}`, { permissions: "none" }, () => {
    const seconds = limitMs(options, bytes) / 1_000;
    assert(seconds >= leastS && seconds <= mostS, `${seconds} s`);
  });
}

Deno.test("a program that is given much to read has more time", async () => {
  const delaysMs: number[] = [];
  const setTimer = globalThis.setTimeout;
  globalThis.setTimeout = ((run: () => void, ms = 0) => {
    delaysMs.push(ms);
    return setTimer(run, ms);
  }) as typeof setTimeout;
  try {
    await systemExec.run(["sh", "-c", "cat >/dev/null"], {
      stdin: () => Array(10).fill("x".repeat(1_000_000)),
    });
  } finally {
    globalThis.setTimeout = setTimer;
  }
  assert(delaysMs.some((ms) => ms > 300_000), delaysMs.join());
});

function byteStream(pieces: readonly Uint8Array<ArrayBuffer>[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    type: "bytes",
    start: (controller) => {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
}

const OUTPUTS: readonly [name: string, text: string, pieceBytes: number][] = [
  ["nothing", "", 1],
  ["a line", "done\n", 100],
  ["characters that are cut between reads", "→ é 😀\n", 1],
  ["as much as a buffer holds", "x".repeat(4096), 4096],
  ["much, in large pieces", "0123456789abcde\n".repeat(300_000), 2 ** 20],
  ["much, in small pieces", "0123456789abcde\n".repeat(20_000), 999],
];
for (const [name, text, pieceBytes] of OUTPUTS) {
  Deno.test(`output is read whole: ${name}`, { permissions: "none" }, async () => {
    const bytes = new TextEncoder().encode(text);
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for (let at = 0; at < bytes.length; at += pieceBytes) pieces.push(bytes.slice(at, at + pieceBytes));
    assertEquals(await readOutput(byteStream(pieces), { maxBytes: text.length * 4 }), text);
  });
}

Deno.test(
  "of output without an end the beginning is kept, and all of it is counted",
  { permissions: "none" },
  async () => {
    const pieces = Array.from({ length: 50 }, () => new TextEncoder().encode("0123456789"));
    let bytes = 0;
    const text = await readOutput(byteStream(pieces), { maxBytes: 25, onBytes: (count) => bytes += count });
    assertEquals([text, bytes], ["0123456789012345678901234", 500]);
  },
);
