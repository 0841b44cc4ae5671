import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { FakeTerminal } from "../../../tests/support/fake_terminal.ts";
import { Activity } from "./drawing.ts";

Deno.test("what is being done is shown after a moment, with the time, and leaves nothing behind", () => {
  using time = new FakeTime();
  const terminal = new FakeTerminal();
  {
    using activity = new Activity(terminal);
    activity.say("Removing rules");
    time.tick(199);
    assertEquals(terminal.written, "");
    time.tick(1);
    assertEquals(terminal.screen, ["| Removing rules"]);
    time.tick(120);
    assertEquals(terminal.screen, ["/ Removing rules"]);
    time.tick(11_880);
    assertEquals(terminal.screen[0]?.slice(2), "Removing rules (12 s)");
    activity.say("Removing sets");
    time.tick(120);
    assertEquals(terminal.screen[0]?.slice(2), "Removing sets (12 s)");
    activity.say("");
    assertEquals(terminal.screen, [""]);
    activity.say("Something short");
    time.tick(100);
  }
  const { written } = terminal;
  time.tick(10_000);
  assertEquals([terminal.screen, terminal.written], [[""], written]);
});

Deno.test("lines go above what is being done", () => {
  using time = new FakeTime();
  const terminal = new FakeTerminal();
  const line = (text: string): void => {
    for (let rest = new TextEncoder().encode(text); rest.length > 0;) {
      rest = rest.subarray(terminal.writeSync(rest));
    }
  };
  using activity = new Activity(terminal);
  activity.say("asking");
  activity.aside(() => line("too early to be in the way\n"));
  time.tick(200);
  activity.aside(() => line("first\n"));
  activity.aside(() => line("second\n"));
  assertEquals(terminal.screen, ["too early to be in the way", "first", "second", "| asking"]);
});

Deno.test("a line is never as wide as the terminal, where it could not be taken away", () => {
  using time = new FakeTime();
  const terminal = new FakeTerminal({ columns: 12 });
  using activity = new Activity(terminal);
  activity.say("漢字漢字漢字漢字");
  time.tick(200);
  assertEquals(terminal.screen, ["| 漢字漢字"]);
});

Deno.test("a terminal that fails is left alone, one that is busy is drawn on again", () => {
  using time = new FakeTime();
  const terminal = new FakeTerminal();
  using activity = new Activity(terminal);
  activity.say("working");
  terminal.failure = new Deno.errors.WouldBlock("busy");
  time.tick(1_000);
  terminal.failure = undefined;
  time.tick(120);
  assertEquals(terminal.screen[0]?.slice(2), "working (1 s)");
  terminal.failure = new Deno.errors.BrokenPipe("closed");
  time.tick(120);
  terminal.failure = undefined;
  const { written } = terminal;
  time.tick(5_000);
  assertEquals(terminal.written, written);
});

Deno.test("without a terminal nothing is drawn, and lines are written all the same", () => {
  using time = new FakeTime();
  using activity = new Activity(null);
  const lines: string[] = [];
  activity.say("working");
  time.tick(5_000);
  activity.aside(() => void lines.push("a line"));
  assertEquals(lines, ["a line"]);
});
