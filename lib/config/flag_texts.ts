/**
 * The texts of flags whose values are no plain words, as pflag and kube-proxy read them.
 *
 * @module
 */

export const INT32_MAX = 2 ** 31 - 1;
export const INT32_MIN = -(2 ** 31);

/** Thrown for a text that is no value of a flag; the message says what is wanted. */
export class ValueError extends Error {}

/** @throws {ValueError} */
export function fail(message: string): never {
  throw new ValueError(message);
}

/** Go's words for true and false; null for any other. */
export function boolOf(text: string): boolean | null {
  if (/^(1|t|T|TRUE|true|True)$/.test(text)) return true;
  return /^(0|f|F|FALSE|false|False)$/.test(text) ? false : null;
}

/** As pflag reads it: decimal, or with a Go prefix (0x, 0o, 0b, a leading 0 for octal); `_` may part digits. */
export function parseInt32(text: string): number {
  const bare = text.replace(/(?<=[\da-fxob])_(?=[\da-f])/gi, "");
  const match = /^([+-]?)(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[1-9]\d*|0)$/.exec(bare);
  if (match === null) return fail("want an integer");
  const digits = match[2] ?? "0";
  const value = Number(/^0[0-7]/.test(digits) ? `0o${digits.slice(1)}` : digits) *
    (match[1] === "-" ? -1 : 1);
  if (value < INT32_MIN || value > INT32_MAX) fail(`want an integer from ${INT32_MIN} to ${INT32_MAX}`);
  // Not -0, which `Object.is` and JSON distinguish from 0.
  return value === 0 ? 0 : value;
}

/** Fields of one CSV line, as kube-proxy splits the value of a list flag. */
export function splitCsv(text: string): string[] {
  if (text === "") return [];
  const fields: string[] = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y;
  for (;;) {
    const match = field.exec(text);
    if (match === null) return fail('want a comma separated list; a " must enclose a whole item');
    fields.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? "");
    if (match[3] === "") return fields;
  }
}

export function parseGates(text: string): Record<string, boolean> {
  const gates: [name: string, isOn: boolean][] = [];
  for (const item of text.split(",").map((part) => part.trim()).filter((part) => part !== "")) {
    const [name = "", value, ...more] = item.split("=").map((part) => part.trim());
    if (name === "" || value === undefined || more.length > 0) {
      fail(`want NAME=true or NAME=false, found "${item}"`);
    }
    gates.push([name, boolOf(value ?? "") ?? fail(`want true or false for "${name}", found "${value}"`)]);
  }
  return Object.fromEntries(gates);
}

export function parseVmodule(text: string): { filePattern: string; verbosity: number }[] {
  return text.split(",").filter((item) => item !== "").map((item) => {
    const match = /^([^=]+)=(\d+)$/.exec(item);
    const verbosity = Number(match?.[2]);
    if (match === null || verbosity > INT32_MAX) {
      return fail(`want pattern=N with commas between, found "${item}"`);
    }
    return { filePattern: match[1] ?? "", verbosity };
  });
}
