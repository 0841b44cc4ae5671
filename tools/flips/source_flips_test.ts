import { assertEquals } from "@std/assert";
import { findFlips, writeFlips } from "./source_flips.ts";
import { FlipSwitch } from "./switch.ts";

/** Text → what can be flipped in it. */
const FOUND: readonly (readonly [text: string, changes: readonly string[]])[] = [
  ["if (a < b) f();", ["a < b → a <= b", "a < b → a >= b"]],
  ["if (isX) f();", ["isX → !(isX)"]],
  ["if (!isX) f();", ["!isX → isX"]],
  ["const x = a === 1 ? b : c;", ["a === 1 → a !== 1"]],
  ["while (a && b) f();", ["a && b → a || b", "a && b → !(a && b)"]],
  ["const x = a ?? b;", ["a ?? b → a", "a ?? b → b"]],
  ["const x = a - b * 2;", ["a - b * 2 → a + b * 2", "b * 2 → b / 2"]],
  ["x += 1; x++;", ["x += 1 → x -= 1", "x++ → x--"]],
  ["for (let i = 0; i !== n; i++) f();", ["i !== n → i === n"]],
  ["const f = (x: string): boolean => known(x);", ["known(x) → !(known(x))"]],
  ["const f = (x: string): string => known(x);", []],
  ["function f(): boolean { return true; }", ["true → false"]],
  ["function f(x: unknown): x is string { return known(x); }", ["known(x) → !(known(x))"]],
  ["const f = () => all.has(x);", ["all.has(x) → !(all.has(x))"]],
  ["const x = list.some(known);", ["list.some → every"]],
  ["function f() { if (a === 1) return; g(); }", ["a === 1 → a !== 1", "return; → dropped"]],
  ["for (const x of list) { if (x === 1) continue; g(); }", ["x === 1 → x !== 1", "continue; → dropped"]],
  ["switch (a) { case 1: f(); break; default: g(); }", []],
  ['const x = "a" + b + c;', []],
  ["const x: A extends B ? true : false = y;", []],
  ["f(object.toString(), object.constructor());", []],
];

Deno.test("flips are found by what the text means to the compiler", () => {
  for (const [text, changes] of FOUND) {
    assertEquals(findFlips("x.ts", text).map(({ change }) => change), changes, text);
  }
});

Deno.test("a flip tells its place, and keys stay when lines move", () => {
  const text = "class A {\n  m(): void {\n    if (a < 1) f();\n    if (a < 1) f();\n  }\n}\n";
  const flips = findFlips("lib/x.ts", text);
  assertEquals(flips.map(({ line, key }) => [line, key]), [
    [3, "lib/x.ts A.m: a < 1 → a <= 1"],
    [3, "lib/x.ts A.m: a < 1 → a >= 1"],
    [4, "lib/x.ts A.m: a < 1 → a <= 1 (2)"],
    [4, "lib/x.ts A.m: a < 1 → a >= 1 (2)"],
  ]);
  const keys = (source: string) => findFlips("lib/x.ts", source).map(({ key }) => key);
  assertEquals(keys(`// A comment.\n\n${text}`), keys(text));
});

/** An expression, its values (the first without a flip, then with each), where `a` is 1, `b` 2, `none` null and `log(x)` x. */
const RUN: readonly (readonly [text: string, values: readonly unknown[]])[] = [
  ["a < b", [true, true, false]],
  ["b <= 2 && a >= 1", [true, true, false, false, false, false]],
  ["none ?? b", [2, null, 2]],
  ["a ?? b", [1, 1, 2]],
  ["log(0) || log(7) || log(8)", [7, 8, 8]],
  ["[3, 1].some((x) => x === a)", [true, false, true]],
  ["Math.max(a, b)", [2, 1]],
  ["none?.list.some(log)", [undefined, undefined]],
  ["(() => { let x = 5; x -= a; return x; })()", [4, 6]],
  ["(() => { if (a === 1) return 7; return 8; })()", [7, 8, 8]],
  ["(() => { if (a === 2) return 7; else if (b === 2) return 9; return 8; })()", [9, 7, 9, 8, 8]],
  ["(() => { let n = 0; for (const x of [1, 2]) { if (x === a) continue; n = n * 10 + x; } return n; })()", [
    2,
    1,
    12,
    -2,
    2,
  ]],
];

Deno.test("flipped text does what the original does until one flip is on, and then exactly that", () => {
  for (const [text, values] of RUN) {
    const flips = new FlipSwitch();
    const names: Record<string, unknown> = {};
    let last = 0;
    const written = writeFlips("x.ts", `const value = ${text};`, () => ++last).replace(
      "const value =",
      "return",
    );
    Object.assign(globalThis, { $t: undefined });
    flips.install(names);
    const run = new Function("$m", "$n", "$b", "a", "b", "none", "log", written);
    const valueWith = (flip: number): unknown => {
      flips.on = flip;
      return run(names["$m"], names["$n"], names["$b"], 1, 2, null, (x: unknown) => x);
    };
    const all = Array.from({ length: last + 1 }, (_, flip) => valueWith(flip));
    Reflect.deleteProperty(globalThis, "$t");
    assertEquals(all, values, `${text}\n${written}`);
  }
});
