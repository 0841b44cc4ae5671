import { assertEquals } from "@std/assert";
import { Spinner } from "@std/cli/unstable-spinner";
import { FakeTime } from "@std/testing/time";

const FRAMES = { spinner: ["|", "/"], interval: 100 };
const PLAIN = Deno.noColor ? "" : "\x1b[0m";

/** A stream that keeps what is written to it. */
function fakeOutput(): { output: typeof Deno.stderr; written: string[] } {
  const written: string[] = [];
  const output = {
    writable: { locked: false },
    writeSync: (bytes: Uint8Array) => written.push(new TextDecoder().decode(bytes)),
  };
  return { output: output as unknown as typeof Deno.stderr, written };
}

Deno.test("a spinner draws frame after frame over the same line, then takes it away", () => {
  using time = new FakeTime();
  const { output, written } = fakeOutput();
  const spinner = new Spinner({ ...FRAMES, message: "one", output });
  spinner.start();
  spinner.start();
  time.tick(100);
  spinner.message = "two";
  time.tick(100);
  spinner.stop();
  spinner.stop();
  time.tick(1_000);
  assertEquals(written, [
    `\r\x1b[K|${PLAIN} one`,
    `\r\x1b[K/${PLAIN} one`,
    `\r\x1b[K|${PLAIN} two`,
    "\r\x1b[K",
  ]);
});
