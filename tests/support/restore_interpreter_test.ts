import { assertEquals, assertThrows } from "@std/assert";
import { RestoreError, RestoreInterpreter } from "./restore_interpreter.ts";

const START = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A A one\n-A PREROUTING -j A\nCOMMIT\n";

function started(): RestoreInterpreter {
  const interpreter = new RestoreInterpreter();
  interpreter.restore(START);
  return interpreter;
}

for (
  const [name, lines, rules] of [
    ["append", ["-A A two"], ["-j B", "one", "two"]],
    ["insert at the top", ["-I A two"], ["two", "-j B", "one"]],
    ["insert at a number", ["-I A 2 two"], ["-j B", "two", "one"]],
    ["delete by text", ["-D A one"], ["-j B"]],
    ["delete by number", ["-D A 1"], ["one"]],
    ["declare flushes", [":A - [0:0]", "-A A three"], ["three"]],
    ["delete a chain nothing jumps to", ["-D A -j B", "-X B"], ["one"]],
  ] as const
) {
  Deno.test(`restore interpreter: ${name}`, { permissions: "none" }, () => {
    const interpreter = started();
    interpreter.restore(`*nat\n${lines.join("\n")}\nCOMMIT\n`);
    assertEquals(interpreter.chains("nat").get("A"), [...rules]);
  });
}

for (
  const [name, lines, reason] of [
    ["deleting a chain that is jumped to", ["-X B"], "A jumps to it"],
    ["deleting a chain with rules", ["-D PREROUTING 1", "-X A"], "not empty"],
    ["deleting a missing rule", ["-D A two"], "no such rule"],
    ["deleting a number too big", ["-D A 3"], "no such rule"],
    ["a missing chain", ["-A C one"], "no such chain"],
    ["a jump to nowhere", ["-A A -j C"], "no such target"],
    ["an unknown command", ["-F A"], "not understood"],
  ] as const
) {
  Deno.test(`restore interpreter refuses ${name} and keeps the table`, { permissions: "none" }, () => {
    const interpreter = started();
    assertThrows(() => interpreter.restore(`*nat\n${lines.join("\n")}\nCOMMIT\n`), RestoreError, reason);
    assertEquals(interpreter.chains("nat").get("A"), ["-j B", "one"]);
  });
}
