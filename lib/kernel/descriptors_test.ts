import { assert, assertEquals, assertRejects } from "@std/assert";
import { recordingClock } from "../../tests/support/recording_clock.ts";
import {
  countSpareDescriptors,
  DescriptorAllowance,
  isOutOfDescriptors,
  untilDescriptors,
} from "./descriptors.ts";

/** A process with so many descriptors left, and how often they were counted. */
function processWith(spare: number) {
  const state = { spare, counted: 0, nowMs: 0 };
  const allowance = new DescriptorAllowance({
    reserved: 10,
    count: (atMost) => {
      state.counted++;
      return Math.min(atMost, state.spare);
    },
    nowMs: () => state.nowMs,
  });
  /** Takes one, and opens it. */
  const take = (): boolean => {
    const taken = allowance.take();
    if (taken) state.spare--;
    return taken;
  };
  return { state, allowance, take };
}

Deno.test("as many are given as leave the reserve free, and few are counted", () => {
  const { state, take } = processWith(110);
  let taken = 0;
  while (take()) taken++;
  assertEquals([taken, state.spare], [100, 10]);
  assert(state.counted <= 6, `counted ${state.counted} times`);
});

Deno.test("that there are none is believed for a second", () => {
  const { state, take } = processWith(10);
  assertEquals([take(), take(), state.counted], [false, false, 1]);
  state.spare = 12;
  state.nowMs = 999;
  assertEquals([take(), state.counted], [false, 1]);
  state.nowMs = 1_000;
  assertEquals([take(), take(), take()], [true, true, false]);
});

Deno.test("what is given back is given again; what the system refuses is not", () => {
  const { state, allowance, take } = processWith(11);
  assertEquals([take(), take()], [true, false]);
  allowance.giveBack();
  state.spare++;
  assertEquals([take(), take()], [true, false]);
  allowance.giveBack();
  allowance.exhausted();
  assertEquals(take(), false);
});

Deno.test("descriptors are counted by opening them, and all are closed again", () => {
  assertEquals([countSpareDescriptors(0), countSpareDescriptors(40), countSpareDescriptors(40)], [0, 40, 40]);
  assertEquals(isOutOfDescriptors(new Error("no")), false);
  assertEquals(isOutOfDescriptors(Object.assign(new Error("no"), { code: "EMFILE" })), true);
});

Deno.test("a process with a low limit counts what it has", async () => {
  const module = new URL("./descriptors.ts", import.meta.url).href;
  const script =
    `import { countSpareDescriptors } from "${module}"; console.log(countSpareDescriptors(1000));`;
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", 'ulimit -n 200; exec "$@"', "sh", Deno.execPath(), "eval", "-q", script],
  }).output();
  const spare = Number(new TextDecoder().decode(stdout));
  assert(spare > 100 && spare < 200, `${spare} of 200`);
});

const WAITS: readonly [name: string, counts: readonly number[], waits: number][] = [
  ["enough", [16], 0],
  ["none for a while", [0, 1, 15, 16], 3],
];

for (const [name, counts, waits] of WAITS) {
  Deno.test(`waiting for descriptors: ${name}`, { permissions: "none" }, async () => {
    const left = [...counts];
    let told = 0;
    const clock = recordingClock();
    await untilDescriptors({
      signal: new AbortController().signal,
      onWait: () => told++,
      count: () => left.shift() ?? 0,
      clock,
    });
    assertEquals([left, told, clock.waits], [[], waits > 0 ? 1 : 0, Array(waits).fill(1_000)]);
  });
}

Deno.test("a signal ends the wait for descriptors", { permissions: "none" }, async () => {
  const end = new AbortController();
  const options = { signal: end.signal, onWait: () => end.abort(), count: () => 0, clock: recordingClock() };
  await assertRejects(() => untilDescriptors(options), DOMException, "aborted");
});
