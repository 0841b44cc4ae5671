import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { FakeTerminal } from "./fake_terminal.ts";
import { ProgressLine } from "./progress_line.ts";

Deno.test("a bar shows time, share and words, and leaves nothing behind", async () => {
  using time = new FakeTime();
  const terminal = new FakeTerminal({ columns: 46 });
  {
    await using line = new ProgressLine(terminal, 120);
    line.reach(40, "40 of 120 changes");
    await time.tickAsync(1_000);
    assertEquals(terminal.screen, ["00:01 #####---------- 40 of 120 changes"]);
    line.reach(120, "120 of 120 changes, and much that does not fit");
    await time.tickAsync(1_000);
    assertEquals(terminal.screen, ["00:02 ############### 120 of 120 changes, and"]);
  }
  assertEquals(terminal.screen, [""]);
});

Deno.test("a terminal that fails ends the drawing, not the work", async () => {
  using time = new FakeTime();
  const terminal = new FakeTerminal();
  terminal.failure = new Deno.errors.BrokenPipe("closed");
  await using line = new ProgressLine(terminal, 2);
  line.reach(1, "half");
  await time.tickAsync(3_000);
  assertEquals(terminal.written, "");
});
