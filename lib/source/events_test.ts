import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { decodeNode } from "./decode/decode.ts";
import { eventsBetween, sameObject } from "./source.ts";

function node(labels: Record<string, string>): ReturnType<typeof decodeNode> {
  return decodeNode({ metadata: { name: "node-a", labels } });
}

Deno.test("objects are the same if every field is", { permissions: "none" }, () => {
  const cases: [unknown, unknown, boolean][] = [
    [{ a: 1 }, { a: 1 }, true],
    [{ a: 1 }, { a: 1, b: 2 }, false],
    [{ a: 1, b: 2 }, { a: 1 }, false],
    [{ a: undefined }, { b: undefined }, false],
    [{ a: [1, { b: null }] }, { a: [1, { b: null }] }, true],
    [[1, 2], [2, 1], false],
    [[1], [1, 2], false],
    [[], {}, false],
    [{}, [], false],
    [null, {}, false],
    ["1", 1, false],
  ];
  for (const [one, other, wanted] of cases) {
    assertEquals(sameObject(one, other), wanted, JSON.stringify([one, other]));
  }
});

Deno.test("a copy is the same, whatever it holds", { permissions: "none" }, () => {
  fc.assert(fc.property(fc.jsonValue(), (value) => sameObject(value, structuredClone(value))));
});

Deno.test("two states give the event between them, equal ones none", { permissions: "none" }, () => {
  const [one, other] = [node({}), node({ zone: "z1" })];
  assertEquals(eventsBetween(undefined, undefined), []);
  assertEquals(eventsBetween(undefined, one), [{ type: "add", object: one }]);
  assertEquals(eventsBetween(one, other), [{ type: "update", old: one, object: other }]);
  assertEquals(eventsBetween(one, node({})), []);
  assertEquals(eventsBetween(one, undefined), [{ type: "delete", old: one }]);
});
