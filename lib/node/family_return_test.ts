import { assertEquals } from "@std/assert";
import type { Exec } from "../kernel/exec.ts";
import { untilIpv6IsOn } from "./family_return.ts";

/** Looks at a kernel whose setting has these values in turn, then ends; a text that is no number is a program that fails. */
async function look(
  values: readonly string[],
  refused: readonly "IPv6"[] = ["IPv6"],
): Promise<[boolean, number]> {
  const end = new AbortController();
  let looks = 0;
  const exec: Exec = {
    run: () => {
      const stdout = values[looks++]!;
      const code = /^\d$/.test(stdout) ? 0 : 1;
      return Promise.resolve({ code, stdout, stderr: code === 0 ? "" : "killed" });
    },
  };
  const clock = {
    nowMs: () => 0,
    sleep: () => Promise.resolve(looks === values.length ? end.abort() : undefined),
  };
  const options = { refused: refused.map((family) => ({ family })), exec, periodMs: 30_000, clock };
  const watched = untilIpv6IsOn(options, end.signal);
  if (looks === 0 || values[0] === "0") queueMicrotask(() => end.abort());
  return [await watched, looks];
}

Deno.test(
  "IPv6 that was off is noticed once it is on, whatever fails meanwhile",
  { permissions: "none" },
  async () => {
    assertEquals(await look(["1", "1", "broken", "1", "0"]), [true, 5]);
    assertEquals(await look(["1", "1"]), [false, 2]);
  },
);

Deno.test("where something else keeps IPv6 from being served, or nothing does, nobody looks again", {
  permissions: "none",
}, async () => {
  assertEquals(await look(["0", "0"]), [false, 1]);
  assertEquals(await look(["1", "0"], []), [false, 0]);
});
