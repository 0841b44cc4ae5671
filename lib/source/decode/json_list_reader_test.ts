import { assert, assertEquals, assertThrows } from "@std/assert";
import { pure } from "../../../tests/support/decode_objects.ts";
import { DecodeError } from "./decode_values.ts";
import { JsonListReader, parseItems } from "./json_list_reader.ts";

const MAX_BYTES = 1024 * 1024;
const encoder = new TextEncoder();

/** Items of a list, and the value around them, read while it arrives in pieces that end at these offsets. */
function read(
  bytes: Uint8Array,
  ends: readonly number[] = [],
  { maxLength = MAX_BYTES, wholeLength = 0 } = {},
): { items: unknown[]; around: unknown } {
  const reader = new JsonListReader({ maxLength, wholeLength });
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const items: unknown[] = [];
  let from = 0;
  // The buffer of a piece is reused for the next one.
  const piece = new Uint8Array(bytes.length);
  for (const end of [...ends.toSorted((a, b) => a - b), bytes.length]) {
    piece.fill(0x22);
    piece.set(bytes.subarray(from, end));
    items.push(...itemsOf(reader, decoder.decode(piece.subarray(0, end - from), { stream: true })));
    from = end;
  }
  return { items, around: reader.end() };
}

function itemsOf(reader: JsonListReader, piece: string): unknown[] {
  return reader.push(piece).flatMap(parseItems);
}

function inPieces(bytes: Uint8Array, length: number): number[] {
  return Array.from({ length: Math.floor((bytes.length - 1) / length) }, (_, index) => (index + 1) * length);
}

const ITEMS: readonly unknown[] = [
  { metadata: { name: 'a"],[{\\', labels: { ü: "𝄞 €", items: "[" } }, spec: { ports: [{ port: 80 }, [[]]] } },
  {},
  [],
  [1, [2]],
  null,
  -1.5e3,
  "\\",
  'text with , ] } [ { "',
  { items: [{ items: [1, 2] }], metadata: null },
];
const AROUND = {
  kind: "ServiceList",
  apiVersion: "v1",
  metadata: { resourceVersion: "7", continue: "x,[{" },
};

pure(
  "a list is what was sent, wherever its items stand and whatever the pieces, and only once it is whole",
  () => {
    const { kind, apiVersion, metadata } = AROUND;
    const lists = [
      { ...AROUND, items: ITEMS },
      { items: ITEMS, ...AROUND },
      { kind, items: ITEMS, more: [{ items: [1] }], apiVersion, metadata },
      { ...AROUND, items: [] },
      { ...AROUND, items: [ITEMS[0]] },
      { ...AROUND, items: [null] },
    ];
    for (const list of lists) {
      for (const text of [JSON.stringify(list), `\n ${JSON.stringify(list, null, "\t")} \r\n`]) {
        const bytes = encoder.encode(text);
        for (const length of [1, 2, 3, 7, 64, bytes.length]) {
          const { items, around } = read(bytes, inPieces(bytes, length));
          assertEquals(items, list.items, text);
          assertEquals(around, { ...list, items: [] });
        }
        const whole = encoder.encode(text.trim()).length;
        for (let length = text.indexOf("{") + 1; length < whole; length++) {
          assertThrows(() => read(bytes.subarray(0, length), [length >> 1]), DecodeError, "cut off");
        }
      }
    }
  },
);

pure("every border between two pieces is one like any other", () => {
  const bytes = encoder.encode(JSON.stringify({ ...AROUND, items: ITEMS }));
  for (let end = 0; end <= bytes.length; end++) assertEquals(read(bytes, [end, end]).items, ITEMS);
});

pure("a short list is read at its end, a longer one from there on where it is no more a short one", () => {
  const list = { ...AROUND, items: ITEMS };
  const text = JSON.stringify(list);
  const bytes = encoder.encode(text);
  for (const length of [1, 7, 100, bytes.length]) {
    for (const wholeLength of [1, 10, 60, 300, text.length - 1]) {
      const { items, around } = read(bytes, inPieces(bytes, length), { wholeLength });
      assertEquals({ ...around as typeof list, items }, list);
    }
    const { items, around } = read(bytes, inPieces(bytes, length), { wholeLength: text.length });
    assertEquals([items, around], [[], list]);
  }
  assertThrows(() => read(bytes.subarray(1), [], { wholeLength: text.length }), SyntaxError);
  const long = JSON.stringify({ items: Array(50_000).fill({ name: "x".repeat(90) }) });
  const reader = new JsonListReader({ maxLength: MAX_BYTES });
  const counts = new Set<number>();
  for (let at = 0; at < long.length; at += 10_000) {
    counts.add(itemsOf(reader, long.slice(at, at + 10_000)).length);
  }
  // Pieces yield no items at first, then all items so far at once, then their own.
  assert(counts.has(0) && [...counts].some((count) => count > 20_000) && counts.has(99), `${[...counts]}`);
});

pure("an object is given as soon as it is complete, and what was read is let go", () => {
  const reader = new JsonListReader({ maxLength: 100, wholeLength: 0 });
  const item = { name: "x".repeat(60) };
  assertEquals(reader.push(`{"items":[`), []);
  for (let count = 0; count < 1_000; count++) {
    assertEquals(itemsOf(reader, `${JSON.stringify(item)},`), [item]);
  }
  assertEquals(itemsOf(reader, `7]}`), [7]);
  assertEquals(reader.end(), { items: [] });
});

pure("items in another place, under another name or of another sort are left where they are", () => {
  const texts = [
    `{"it\\u0065ms":[1,2]}`,
    `{"items":{"items":[1]}}`,
    `{"items":null}`,
    `{"items":"[1]"}`,
    `{"x\\"items":[1]}`,
    `{"metadata":{"items":[1]}}`,
    `{"":[{"items":[1]}]}`,
    `[{"items":[1]}]`,
    `["items",[1]]`,
    `{"items"${" ".repeat(80)}:[1]}`,
    `"{\\"items\\":[1]}"`,
    "7",
    "null",
  ];
  for (const text of texts) {
    const bytes = encoder.encode(text);
    for (const length of [1, 5, bytes.length]) {
      assertEquals(read(bytes, inPieces(bytes, length)), { items: [], around: JSON.parse(text) }, text);
    }
  }
});

const NO_LISTS: readonly (readonly [text: string, reason: string])[] = [
  ["", "end of JSON"],
  ["<html><body>Please log in</body></html>", "is not valid JSON"],
  [`{"items":[]}]`, "after JSON"],
  [`{"items":[]}{"items":[]}`, "are there twice"],
  [`{"items":[1]}x`, "after JSON"],
  [`{"items":[1]]`, "JSON"],
  [`{"items":[1}}`, "JSON"],
  [`{"items":[1]"kind":7}`, "JSON"],
  [`{"items":[1],}`, "JSON"],
  [`{"items":[1,,2]}`, "JSON"],
  [`{"items":[1 2]}`, "items[0]"],
  [`{"items":[1,{"a":01},3]}`, "items[0..2]"],
  [`{"items":[{"a":[}]}`, "items[0]"],
  [`{"items":[{"a":[]}]]}`, "JSON"],
  [`{"items":[{"a":(}]}`, "items[0]"],
  [`{"items":[\uFEFF1]}`, "items[0]"],
  [`{"items":["\u0007"]}`, "items[0]"],
  [`{"items":[1],"items":[2]}`, "are there twice"],
  [`{"items":[1],"it\\u0065ms":[2]}`, "are there twice"],
  [`{"items":[1],"items":null}`, "are there twice"],
  [`{"items":[${"[".repeat(20_000)}${"]".repeat(20_000)}]}`, "more than 10000 values in one another"],
  [`{"kind":${"[".repeat(20_000)}`, "more than 10000 values in one another"],
  [`{"items":["${"x".repeat(2 * MAX_BYTES)}`, "more than 1048576 bytes"],
  [`{"kind":"${"x".repeat(2 * MAX_BYTES)}`, "more than 1048576 bytes"],
];

for (const [text, reason] of NO_LISTS) {
  pure(`no list: ${reason}, ${text.slice(0, 40)}`, () => {
    const bytes = encoder.encode(text);
    for (const length of [bytes.length > 50_000 ? 65_536 : 1, 64 * 1024]) {
      const error = assertThrows(() => read(bytes, inPieces(bytes, length))) as Error;
      assert(error instanceof DecodeError || error instanceof SyntaxError, `${error}`);
      assert(length === 1 || error.message.includes(reason), error.message);
    }
  });
}

pure("a comma too many is a fault, wherever a piece ends", () => {
  for (const items of ["[1,]", "[,1]", "[,]", "[ , ]", "[1,,2]", "[1,2, ]"]) {
    const bytes = encoder.encode(`{"items":${items}}`);
    assertThrows(() => read(bytes, inPieces(bytes, 1)), DecodeError, "items: have a comma too many");
    assertThrows(() => read(bytes), DecodeError, "is not valid JSON");
  }
});

pure("a mark of the byte order before it and bytes that are no text count as in other answers", () => {
  const bytes = encoder.encode(`{"items":["a-b"],"kind":"c-d"}`);
  const odd = bytes.map((byte) => byte === 0x2d ? 0xff : byte);
  assertEquals(read(odd), { items: ["a\uFFFDb"], around: { items: [], kind: "c\uFFFDd" } });
  assertEquals(read(encoder.encode(`\uFEFF{"items":[1]}`)).items, [1]);
});
