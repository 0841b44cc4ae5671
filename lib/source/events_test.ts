import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { decodeNode } from "./decode/decode.ts";
import { eventsBetween, nettingEvents, sameObject, type SourceEvent } from "./source.ts";
import { toEnd } from "../text/steps.ts";

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

function joined(events: readonly SourceEvent[]): readonly SourceEvent[] {
  return toEnd(nettingEvents(events));
}

Deno.test("several events of one object become the one that says the same", { permissions: "none" }, () => {
  const [one, two, three] = [node({}), node({ a: "2" }), node({ a: "3" })];
  const add: SourceEvent = { type: "add", object: one };
  const update: SourceEvent = { type: "update", old: one, object: two };
  const remove: SourceEvent = { type: "delete", old: two };
  assertEquals(joined([add, update]), [{ type: "add", object: two }]);
  assertEquals(joined([add, update, remove]), []);
  assertEquals(joined([update, remove]), [{ type: "delete", old: one }]);
  assertEquals(joined([update, { type: "update", old: two, object: one }]), []);
  assertEquals(joined([update, remove, { type: "add", object: three }]), [
    { type: "update", old: one, object: three },
  ]);
});
