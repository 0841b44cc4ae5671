import { assertEquals } from "@std/assert";
import { MarkedLines } from "./ipvsadm.ts";

const PURE = { permissions: "none" } as const;
const LINES = [
  "-D -t 10.0.0.9:80",
  "-A -t 10.0.0.1:80 -s rr",
  "-a -t 10.0.0.1:80 -r 239.1.1.1:80 -m -w 1",
  "-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w 1",
];
const BAD = "Invalid operation.  Possibly wrong module version, address not unicast, ...";
const EXISTS = "Service already exists";
const THERE = "Destination already exists";
const MARK = "No such service";

/** Errors of the lines alone, then of the marked ones; which of the lines are refused, and where the program ended. */
const CASES: readonly [
  name: string,
  alone: readonly string[],
  marked: readonly string[],
  wanted: readonly [refused: readonly number[], end: number | null] | null,
  code?: number,
][] = [
  ["one real server", [BAD], [EXISTS, MARK, BAD, MARK, THERE, MARK], [[2], null]],
  ["all", [BAD, BAD, BAD], [BAD, MARK, BAD, MARK, BAD, MARK], [[1, 2, 3], null]],
  [
    "a virtual server, and with it its real ones",
    [BAD, "Service not defined", "Service not defined"],
    [BAD, MARK, "Service not defined", MARK, "Service not defined", MARK],
    [[1], null],
  ],
  [
    "a virtual server that others took away",
    ["Service not defined"],
    [EXISTS, MARK, "Service not defined", MARK, THERE, MARK],
    null,
  ],
  ["nothing any more", [BAD], [EXISTS, MARK, THERE, MARK, THERE, MARK], null],
  ["something else than before", [BAD], [EXISTS, MARK, "Memory allocation problem", MARK, THERE, MARK], null],
  ["less than all, as if it was killed", [BAD], [EXISTS, MARK, BAD, MARK], null],
  ["a line it cannot read", ["Try -h"], [EXISTS, MARK, "Try -h"], [[2], 2], 2],
  ["the same, but it goes on", ["Try -h"], [EXISTS, MARK, "Try -h"], null, 0],
  ["more than was asked", [BAD], [EXISTS, MARK, BAD, MARK, THERE, MARK, MARK], null],
  ["nothing at all", [], [], null],
];

for (const [name, alone, marked, wanted, code = 255] of CASES) {
  Deno.test(`ipvsadm -R complains of ${name}`, PURE, () => {
    const lines = new MarkedLines(LINES, 0);
    assertEquals(lines.text.length, 6);
    const result = (said: readonly string[]) => ({
      code,
      stdout: "",
      stderr: said.map((line) => `${line}\n`).join(""),
    });
    const found = lines.errors(result(alone), result(marked));
    assertEquals(
      found && { refused: found.refused.map(({ index }) => index), end: found.end },
      wanted && { refused: wanted[0], end: wanted[1] },
    );
  });
}
