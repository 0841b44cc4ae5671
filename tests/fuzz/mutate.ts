/**
 * Inputs made of others: cut, joined and changed, as bytes, as words, as lines, and as the JSON or protobuf that they may be.
 *
 * @module
 */
import type { Random } from "../chaos/random.ts";
import { type Input, inputOf, type Repeated } from "./target.ts";

const LONGEST = 64 * 1024;

/** Numbers at limits, names that objects have by themselves, and characters that are more than they look like. */
const WORDS: readonly Input[] = [
  ..."0 -0 -1 1 255 256 65535 65536 2147483647 2147483648 -2147483649 4294967295 4294967296 9007199254740993"
    .split(" "),
  ..."18446744073709551616 1e999 -1e999 1e-999 0x0 0xffffffff 0x1ffffffff 007 08 1.5 NaN Infinity null true ~ {} []"
    .split(" "),
  ..."__proto__ constructor toString valueOf hasOwnProperty length then get set items kind".split(" "),
  ..."0.0.0.0 255.255.255.255 127.0.0.1 256.1.1.1 1.2.3 ::1 :: ::ffff:1.2.3.4 fe80::1%eth0 10.0.0.0/33 ::/129 [::1]:80"
    .split(" "),
  ...[
    "",
    " ",
    "\t",
    "\r\n",
    "\n",
    "\n\n",
    "\0",
    '"',
    "'",
    "\\",
    '\\"',
    "\\u0000",
    "\\ud800",
    "#",
    "!",
    "-",
    "--",
    "---\n",
    ",",
  ],
  ...["\u{feff}", "\u{85}", "\u{2028}", "\u{202e}", "\u{9b}31m", "é", "𝄞", "\u{fffd}"].map(inputOf),
  ...["\xff", "\xc3", "\xf0\x9d", "\xed\xa0\x80", "\x80"],
];

/** Values of JSON that are not what a reader expects. The objects cannot become texts. */
const VALUES: readonly string[] = [
  ...[
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e400",
    "4294967296",
    '""',
    '"x"',
    "[]",
    "{}",
    "[null]",
    "[[]]",
    "[{}]",
  ],
  ...[
    '{"toString":1}',
    '{"__proto__":null}',
    '{"__proto__":{"kind":"x"}}',
    '{"length":-1}',
    '["\\ud800"]',
    '"\\u0000"',
  ],
];

/** One input changed in one to four ways. `others` are those that parts are taken from. */
export function mutated(input: Input, others: readonly Input[], random: Random): Input {
  let changed = input;
  for (let left = random.whole(1, 4); left > 0; left--) {
    const way = random.chance(0.5) ? wayOfForm(changed) ?? random.pick(WAYS) : random.pick(WAYS);
    changed = way(changed, random, others).slice(0, LONGEST);
  }
  return changed;
}

type Way = (input: Input, random: Random, others: readonly Input[]) => Input;

function span(length: number, random: Random, most = 64): readonly [start: number, end: number] {
  const start = random.whole(0, length);
  return [start, Math.min(length, start + random.whole(0, random.chance(0.1) ? length : most))];
}

function replaced(input: Input, [start, end]: readonly [number, number], by: Input): Input {
  return input.slice(0, start) + by + input.slice(end);
}

/** Words, blanks, and every other character by itself. */
function tokensOf(input: Input): string[] {
  return input.match(/[\w.]+|[ \t]+|[^]/g) ?? [];
}

const ofTokens =
  (change: (tokens: string[], random: Random, others: readonly Input[]) => void): Way =>
  (input, random, others) => {
    const tokens = tokensOf(input);
    change(tokens, random, others);
    return tokens.join("");
  };

const ofLines =
  (change: (lines: string[], random: Random, others: readonly Input[]) => void): Way =>
  (input, random, others) => {
    const lines = input.split("\n");
    change(lines, random, others);
    return lines.join("\n");
  };

const place = (list: readonly unknown[], random: Random): number =>
  random.whole(0, Math.max(0, list.length - 1));

const WAYS: readonly Way[] = [
  (input, random) => {
    const at = random.whole(0, Math.max(0, input.length - 1));
    return replaced(input, [at, at + 1], String.fromCharCode(random.whole(0, 255)));
  },
  (input, random) => replaced(input, span(input.length, random), ""),
  (input, random) => {
    const [start, end] = span(input.length, random);
    return replaced(input, [end, end], input.slice(start, end).repeat(random.pick([1, 1, 2, 30])));
  },
  (input, random, others) => {
    const other = random.pick(others);
    return input.slice(0, random.whole(0, input.length)) + other.slice(random.whole(0, other.length));
  },
  (input, random) => replaced(input, span(input.length, random, 0), random.pick(WORDS)),
  ofTokens((tokens, random) => void (tokens[place(tokens, random)] = random.pick(WORDS))),
  ofTokens((tokens, random) => void tokens.splice(place(tokens, random), random.whole(1, 3))),
  ofTokens((tokens, random) => {
    const [from, to] = [place(tokens, random), place(tokens, random)];
    [tokens[from], tokens[to]] = [tokens[to] ?? "", tokens[from] ?? ""];
  }),
  ofTokens((tokens, random, others) => {
    const from = tokensOf(random.pick(others));
    const at = place(from, random);
    tokens.splice(place(tokens, random), random.whole(0, 2), ...from.slice(at, at + random.whole(1, 8)));
  }),
  ofLines((lines, random) => void lines.splice(place(lines, random), 1)),
  ofLines((lines, random) => void lines.splice(place(lines, random), 0, lines[place(lines, random)] ?? "")),
  ofLines((lines, random, others) => {
    const from = random.pick(others).split("\n");
    lines.splice(place(lines, random), random.whole(0, 1), from[place(from, random)] ?? "");
  }),
];

/** The way that knows what the input is; undefined: it is a text like others. */
function wayOfForm(input: Input): Way | undefined {
  if (/^\s*[[{]/.test(input)) return changedJson;
  if (!/^(?:k8s)?\0/.test(input)) return undefined;
  return (input, random) => changedMessage(input, random, 0) ?? input;
}

/** With one value of it replaced, taken away, or put where another one was. Whatever is no JSON stays as it is. */
function changedJson(input: Input, random: Random, others: readonly Input[]): Input {
  // Each line may be a document of its own.
  const lines = input.includes("\n{") ? input.split("\n") : [input];
  const at = place(lines, random);
  const root = { value: jsonOf(lines[at] ?? "") };
  if (root.value === undefined) return input;
  const places = placesIn(root);
  const { holder, key } = random.pick(places);
  const other = random.pick(places);
  const foreign = placesIn({ value: jsonOf(random.pick(others)) });
  const way = random.whole(0, 5);
  if (way === 0) delete holder[key];
  else if (way === 1) holder[key] = structuredClone(other.holder[other.key]);
  else if (way === 2) holder[key] = random.pick(foreign.map(({ holder, key }) => holder[key] ?? null));
  else if (way === 3) holder[key] = Array(random.whole(0, 3)).fill(holder[key] ?? null);
  else holder[key] = JSON.parse(random.pick(VALUES));
  lines[at] = inputOf(JSON.stringify(root.value) ?? "");
  return lines.join("\n");
}

function jsonOf(input: Input): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(input, (char) => char.charCodeAt(0))));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

interface Place {
  readonly holder: Record<string, unknown>;
  readonly key: string;
}

function placesIn(root: Record<string, unknown>): Place[] {
  const places: Place[] = [];
  const open: Record<string, unknown>[] = [root];
  for (let holder = open.pop(); holder !== undefined && places.length < 10_000; holder = open.pop()) {
    for (const [key, value] of Object.entries(holder)) {
      places.push({ holder, key });
      if (typeof value === "object" && value !== null) open.push(value as Record<string, unknown>);
    }
  }
  return places;
}

/** Lengths of protobuf's fields say where they end: with one of them changed, those around it are written anew. Null: it is no message. */
function changedMessage(input: Input, random: Random, depth: number): Input | null {
  const head = input.startsWith("k8s\0") ? 4 : /^\0\0../s.test(input) ? 4 : 0;
  const fields = fieldsOf(input.slice(head));
  if (fields === null || depth > 8) return null;
  const at = place(fields, random);
  const { tag, content } = fields[at]!;
  const inner = content === null || random.chance(0.2) ? null : changedMessage(content, random, depth + 1);
  if (inner !== null) fields[at] = { tag, content: inner };
  else changeField(fields, at, random);
  const body = fields.map(({ tag, content }) =>
    tag + (content === null ? "" : varint(content.length) + content)
  ).join("");
  if (head === 0 || input.startsWith("k8s")) return input.slice(0, head) + body;
  return String.fromCharCode(0, 0, body.length >> 8 & 255, body.length & 255) + body;
}

/** `tag` is all of it where it has no length. */
interface MessageField {
  readonly tag: Input;
  readonly content: Input | null;
}

function changeField(fields: MessageField[], at: number, random: Random): void {
  const field = fields[at]!;
  const way = random.whole(0, 4);
  if (way === 0) fields.splice(at, 1);
  else if (way === 1) fields.push(...Array(random.pick([1, 2, 100])).fill(field));
  else if (way === 2) fields[at] = { tag: varint(random.whole(0, 200)), content: field.content ?? "" };
  else if (field.content !== null) fields[at] = { tag: field.tag, content: random.pick(WORDS) };
  else {fields[at] = {
      tag: field.tag[0] + random.pick(["\0", "\xff".repeat(9) + "\x01", "\x80", "\xff\xff\xff\xff\x0f"]),
      content: null,
    };}
}

function fieldsOf(input: Input): MessageField[] | null {
  const fields: MessageField[] = [];
  for (let at = 0; at < input.length;) {
    const tag = numberAt(input, at);
    if (tag === null || tag.value < 8) return null;
    if (tag.value % 8 === 2) {
      const length = numberAt(input, tag.end);
      if (length === null || length.end + length.value > input.length) return null;
      const end = length.end + length.value;
      fields.push({ tag: input.slice(at, tag.end), content: input.slice(length.end, end) });
      at = end;
    } else {
      const number = tag.value % 8 === 0 ? numberAt(input, tag.end) : null;
      if (number === null) return null;
      fields.push({ tag: input.slice(at, number.end), content: null });
      at = number.end;
    }
  }
  return fields.length === 0 ? null : fields;
}

function numberAt(input: Input, start: number): { readonly value: number; readonly end: number } | null {
  let value = 0;
  for (let at = start; at < Math.min(input.length, start + 10); at++) {
    const byte = input.charCodeAt(at);
    value += (byte & 127) * 2 ** (7 * (at - start));
    if (byte < 128) return { value, end: at + 1 };
  }
  return null;
}

function varint(value: number): Input {
  let input = "";
  let left = value;
  for (; left > 127; left = Math.floor(left / 128)) input += String.fromCharCode(left % 128 + 128);
  return input + String.fromCharCode(left);
}

const OPENING: readonly (readonly [open: string, close: string])[] = [
  ["[", "]"],
  ["{", "}"],
  ['{"a":', "}"],
  ['{"kind":"List","apiVersion":"v1","items":[', "]}"],
  ["- ", ""],
  ["(", ")"],
  ['"', '"'],
];

/** A large input of some `bytes` bytes: one part of an input again and again, or a nesting that hardly ends. */
export function swollen(input: Input, random: Random, bytes: number): Repeated {
  const tokens = tokensOf(input);
  const at = place(tokens, random);
  const [before, after] = [tokens.slice(0, at).join(""), tokens.slice(at).join("")];
  const room = Math.max(0, bytes - input.length);
  if (random.chance(0.25)) {
    const [open, close] = random.pick(OPENING);
    const times = Math.floor(room / (open.length + close.length));
    const ends = random.chance(0.7) ? times : 0;
    return [[before, 1], [open, times], [random.pick(["", "1"]), 1], [close, ends], [after, 1]];
  }
  const lines = input.split("\n");
  const unit = random.pick([
    () => tokens.slice(at, at + random.whole(1, 12)).join(""),
    () => random.pick(lines),
    () => `${random.pick(lines)}\n`,
    () => input,
    () => random.pick(WORDS) + random.pick(WORDS),
  ])() || "x";
  return [[before, 1], [unit, Math.max(1, Math.floor(room / unit.length))], [after, 1]];
}
