import { assertEquals, assertThrows } from "@std/assert";
import { pure } from "../../../tests/support/decode_objects.ts";
import { toEnd } from "../../text/steps.ts";
import { cutList, parsedItems, TooManyValuesError } from "./json_list.ts";

const ITEMS: readonly unknown[] = [
  { metadata: { name: 'a"],[{\\', labels: { ü: "𝄞 €", items: "[" } }, spec: { ports: [{ port: 80 }, [[]]] } },
  {},
  [],
  [1, [2]],
  null,
  "\\",
  'text with , ] } [ { "',
  { items: [{ items: [1, 2] }], metadata: null },
];

pure("a list is what was sent, wherever its items stand", () => {
  const around = { kind: "ServiceList", metadata: { resourceVersion: "7", continue: "x,[{", items: [1] } };
  for (const items of [ITEMS, ITEMS.slice(0, 1), []]) {
    for (const sent of [{ ...around, items }, { items, ...around }]) {
      for (const space of [undefined, 1, "\t"]) {
        const text = JSON.stringify(sent, null, space);
        const list = toEnd(cutList(text));
        assertEquals<unknown>(
          { ...list?.head, items: list === null ? [] : [...parsedItems(text, list)] },
          sent,
        );
      }
    }
  }
});

pure("a comma too many is no JSON, and too many values are found where they are", () => {
  const text = '{"items":[{},]}';
  const list = toEnd(cutList(text));
  assertThrows(() => [...parsedItems(text, list!)], SyntaxError);
  const error = assertThrows(() => toEnd(cutList('{"items":["a,b",1,2]}', 3)), TooManyValuesError);
  assertEquals(error.at, 15);
});
