import { assertEquals } from "@std/assert";
import { testFailures, withoutMiddle } from "./test_failures.ts";

const OUTPUT = `running 3 tests from ./a_test.ts
fine ... ok (5ms)
one that fails ...
  a step ... FAILED (1ms)
one that fails ... FAILED (due to 1 failed step) (2ms)
another ... FAILED (517µs)

 ERRORS 

one that fails ... a step => ./a_test.ts:4:11
error: Error: boom

second line
    at file:///a_test.ts:4:62

another => ./a_test.ts:6:6
error: Error: bang

 FAILURES 

one that fails ... a step => ./a_test.ts:4:11
another => ./a_test.ts:6:6

FAILED | 1 passed (1 step) | 2 failed (1 step) (16ms)

error: Test failed
`;

Deno.test("names and errors of what failed are read from the output", { permissions: "none" }, () => {
  const wanted = {
    names: ["one that fails ... a step => ./a_test.ts:4:11", "another => ./a_test.ts:6:6"],
    errors: [
      "one that fails ... a step => ./a_test.ts:4:11\nerror: Error: boom\n\nsecond line\n    at file:///a_test.ts:4:62",
      "another => ./a_test.ts:6:6\nerror: Error: bang",
    ],
    end: "FAILED | 1 passed (1 step) | 2 failed (1 step) (16ms)",
  };
  assertEquals(testFailures(OUTPUT), wanted);
  assertEquals(testFailures(OUTPUT.replace(" ERRORS ", "\x1b[0m\x1b[1m ERRORS \x1b[0m")), wanted);
});

Deno.test(
  "a run in which nothing failed, and one that was killed, have no failures",
  { permissions: "none" },
  () => {
    assertEquals(
      testFailures("running 1 test from ./a_test.ts\nfine ... ok (5ms)\n\nok | 1 passed | 0 failed (5ms)\n"),
      {
        names: [],
        errors: [],
        end: "ok | 1 passed | 0 failed (5ms)",
      },
    );
    assertEquals(testFailures("running 1 test from ./a_test.ts\nfine ..."), {
      names: [],
      errors: [],
      end: undefined,
    });
  },
);

Deno.test("a long text keeps its beginning and its end", { permissions: "none" }, () => {
  assertEquals(withoutMiddle("abcdef", 6), "abcdef");
  assertEquals(withoutMiddle("abcdefg", 4), "ab\n… 3 characters …\nfg");
});
