/**
 * Text of others in lines of our own: what objects, programs and servers say is shown, never obeyed, and never without an end.
 *
 * @module
 */

/**
 * Characters that a terminal or a reader of lines would obey, or would not show: controls of 7 and 8 bits,
 * changes of direction, line ends of Unicode, characters without width, halves of characters.
 */
const OBEYED = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** The text with these characters escaped as in JSON, e.g. `\u202e`. */
export function escaped(text: string): string {
  return text.replace(OBEYED, escapes);
}

/** A JSON text, or lines of them, escaped in the same way: parsed, it has the same values. */
export function escapedJson(json: string): string {
  // Line ends and tabs in a value were escaped when it was written: these are the document's own.
  return json.replace(OBEYED, (one) => one === "\n" || one === "\t" ? one : escapes(one));
}

function escapes(character: string): string {
  let text = "";
  for (let at = 0; at < character.length; at++) {
    text += `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`;
  }
  return text;
}

/** The text, or its beginning and how long it is. */
export function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text.slice(0, most)}… (${text.length} characters)`;
}

/** Characters that are shown of a value that a tenant wrote, escaped. */
const MAX_SHOWN = 60;

/** Text of an object's value: JSON, escaped and cut; a value with more than a few plain parts only by its kind. */
export function quote(value: unknown): string {
  if (value === undefined || value === null) return "nothing";
  if (typeof value === "string") return quoteText(value);
  if (typeof value === "object") {
    const parts = Object.values(value);
    const isShort = parts.length <= 3 && Object.keys(value).every((key) => key.length <= MAX_SHOWN);
    const isPlain = isShort && parts.every((part) => typeof part !== "object" || part === null);
    if (!isPlain) return Array.isArray(value) ? `a list of ${parts.length}` : "an object";
  }
  // Escaped, a text of 100 MB may be longer than any text can be.
  const text =
    JSON.stringify(value, (_, part) => typeof part === "string" ? part.slice(0, MAX_SHOWN) : part) ??
      String(value);
  return escapedJson(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 3)}…` : text);
}

function quoteText(text: string): string {
  let shown = "";
  for (const character of text.slice(0, MAX_SHOWN)) {
    const next = escapedJson(JSON.stringify(character)).slice(1, -1);
    // Escaped characters take the room that they are shown in.
    if (shown.length + next.length > MAX_SHOWN) return `"${shown}…" (${text.length} characters)`;
    shown += next;
  }
  return text.length <= MAX_SHOWN ? `"${shown}"` : `"${shown}…" (${text.length} characters)`;
}

/** A sentence of ours in which all that a tenant wrote is quoted: {@linkcode sentence} and {@linkcode own} make it. */
export type Sentence = string & { readonly [QUOTED]: true };
declare const QUOTED: unique symbol;

/** Tag of a template: each text in it is shown as {@linkcode quote} does, unless it is a number or {@linkcode own}. */
export function sentence(
  parts: TemplateStringsArray,
  ...values: readonly (string | number | OwnWords)[]
): Sentence {
  const shown = values.map((value) =>
    value instanceof OwnWords ? value.text : typeof value === "number" ? String(value) : quote(value)
  );
  return String.raw({ raw: parts }, ...shown) as Sentence;
}

class OwnWords {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Words that kproxy has written or checked, such as the name of an object, as they are. */
export function own(text: string): OwnWords {
  return new OwnWords(text);
}
