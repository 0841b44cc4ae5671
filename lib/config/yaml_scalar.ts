/**
 * A text as YAML on one line, quoted only where it must be.
 *
 * @module
 */

/** What would be a list, a comment, an anchor or the like at the beginning. */
const INDICATOR = /^[,[\]{}#&*!|>'"%@`]|^[-?](?: |$)/;
/** What would end a key or begin a comment further on, or be lost at an end. */
const BREAK = /^ |: | #|[ :]$/;
/** Characters that no YAML text may hold as they are, or that some readers take for the end of a line. */
const ESCAPED = /[^\x20-\x7e\xa1-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\u{10000}-\u{10ffff}]/u;
/** Words that YAML 1.1 or 1.2 reads as something else than text, and the two keys with a meaning of their own. */
const WORD = /^(?:~|null|true|false|yes|no|on|off|[yn]|[-+]?\.inf|\.nan|<<|=)$/i;
const NUMBERS: readonly RegExp[] = [
  /^[-+]?0b[01_]+$/,
  /^[-+]?0o[0-7_]+$/,
  /^[-+]?0x[\da-f_]+$/i,
  // Decimal, octal with a leading 0, fractions, and powers of ten: YAML 1.1 takes those without digits before them, too.
  /^[-+]?(?:\d[\d_]*\.?[\d_]*|\.[\d_]*)$/,
  /^[-+]?(?:\d[\d_]*)?(?:\.[\d_]*)?e[-+]?\d+$/i,
  // To the base of 60, as 3:20 for 200 in YAML 1.1.
  /^[-+]?\d[\d_]*(?::[0-5]?\d)+(?:\.[\d_]*)?$/,
];
const DATE = /^\d{4}-\d\d?-\d\d?(?:$|[Tt \t])/;

/**
 * The text of a string in block style: as it is, or in single quotes where a reader of YAML 1.1 or 1.2 would take it for
 * something else, or in double quotes where it has characters that only these can escape, or a single quote.
 */
export function yamlScalar(text: string): string {
  if (ESCAPED.test(text)) return doubleQuoted(text);
  const isPlain = text !== "" && !INDICATOR.test(text) && !BREAK.test(text) && !WORD.test(text) &&
    !DATE.test(text) && !NUMBERS.some((number) => number.test(text));
  if (isPlain) return text;
  // Doubled quotes are hard to read.
  return text.includes("'") && !text.includes('"') ? doubleQuoted(text) : `'${text.replaceAll("'", "''")}'`;
}

/** JSON's escapes are YAML's; JSON leaves some of these characters as they are, which YAML does not allow. */
function doubleQuoted(text: string): string {
  return JSON.stringify(text).replace(
    /[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
