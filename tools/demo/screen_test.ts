import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { Activity } from "../../lib/cli/terminal/drawing.ts";
import { FakeTerminal } from "../../tests/support/fake_terminal.ts";
import { Screen } from "./screen.ts";

Deno.test("what is being done goes to the terminal, and nothing but lines to standard output", () => {
  for (const terminal of [new FakeTerminal(), null]) {
    using time = new FakeTime();
    const out: string[] = [];
    const screen = new Screen({
      activity: new Activity(terminal),
      colors: false,
      unicode: false,
      write: (text) => void out.push(text),
    });
    screen.progress("making namespaces");
    time.tick(300);
    const shown = terminal?.screen;
    screen.row("客户", "10.0.0.1");
    screen.row("node", "10.0.0.2");
    screen.close();
    screen.progress("too late");
    time.tick(5_000);
    assertEquals(out, ["  客户        10.0.0.1\n", "  node        10.0.0.2\n"]);
    assertEquals(
      [shown, terminal?.screen],
      terminal === null ? [undefined, undefined] : [
        ["| making namespaces"],
        [""],
      ],
    );
  }
});
