import { assertEquals } from "@std/assert";
import { ProgressBar } from "@std/cli/unstable-progress-bar";
import { FakeTime } from "@std/testing/time";

const decoder = new TextDecoder();

Deno.test("a bar is drawn over the same line until it stops", async () => {
  using time = new FakeTime();
  const written: string[] = [];
  const writable = new WritableStream<Uint8Array>({
    write: (bytes) => void written.push(decoder.decode(bytes)),
  });
  const bar = new ProgressBar({
    max: 4,
    barLength: 8,
    writable,
    formatter: ({ styledTime, progressBar, value, max }) => `${styledTime} ${progressBar} ${value}/${max}`,
  });
  await time.tickAsync(0);
  bar.value = 1;
  await time.tickAsync(1_000);
  bar.value = 9;
  await time.tickAsync(64_000);
  await bar.stop();
  assertEquals(written.slice(0, 3), [
    "\r\x1b[K00:00 -------- 0/4",
    "\r\x1b[K00:01 ##------ 1/4",
    "\r\x1b[K00:02 ######## 9/4",
  ]);
  assertEquals(written.join("").split("\r\x1b[K").at(-1), "01:05 ######## 9/4\n");
});

Deno.test("a bar that is to be cleared leaves nothing, and a stream that fails is no failure", async () => {
  using time = new FakeTime();
  const written: string[] = [];
  const writable = new WritableStream<Uint8Array>({
    write: (bytes) => void written.push(decoder.decode(bytes)),
  });
  const bar = new ProgressBar({ max: 2048, barLength: 2, clear: true, value: 1024, writable });
  await time.tickAsync(0);
  await bar.stop();
  assertEquals(written, ["\r\x1b[K[00:00] [#-] [1.00/2.00 KiB]", "\r\x1b[K"]);

  const failing = new ProgressBar({
    max: 1,
    writable: new WritableStream({ write: () => Promise.reject(new Error("gone")) }),
  });
  await time.tickAsync(3_000);
  await failing.stop();
});
