/**
 * Stand-in for `jsr:@std/cli/unicode-width`, for builders that cannot reach JSR. Same name and results as the real package
 * for text in use; code points that no character has yet may differ.
 *
 * @module
 */

/** What takes no column: marks that join a character, format characters, vowels and finals of Hangul's letters. */
const ZERO_WIDTH = /^(?:[\p{Mn}\p{Me}\p{Cf}\u1160-\u11ff])$/u;
const SOFT_HYPHEN = "\u00ad";
/** Half-width forms, tone marks and letters of regions, whose scripts are wide otherwise. */
const NARROW = /^[\u02ea\u02eb\ud7b0-\ud7fb\uff66-\uffdc\u{1f1e6}-\u{1f1ff}]$/u;
const WIDE = new RegExp(
  `^[${
    ["Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Yi", "Tangut", "Nushu", "Khitan_Small_Script"]
      .map((script) => `\\p{Script=${script}}`).join("")
  }\\p{Emoji_Presentation}` +
    // Punctuation, enclosed letters and full-width forms that belong to no script.
    "\\u2329\\u232a\\u2ff0-\\u2ffb\\u3000-\\u303e\\u309b\\u309c\\u30a0\\u30fb\\u30fc\\u3190-\\u31e3\\u3220-\\u3247" +
    "\\u3250-\\u33ff\\ufe10-\\ufe19\\ufe30-\\ufe6b\\uff01-\\uff60\\uffe0-\\uffe6\\u{1f200}-\\u{1f265}" +
    "\\u{20000}-\\u{2fffd}\\u{30000}-\\u{3fffd}]$",
  "u",
);

const SPACE = 0x20;
const DELETE = 0x7f;
const LAST_CONTROL = 0x9f;

/** How many columns of a terminal a text takes. Escape codes count as the characters they are. */
export function unicodeWidth(text: string): number {
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

function characterWidth(character: string): 0 | 1 | 2 {
  const code = character.codePointAt(0) ?? 0;
  if (code < DELETE) return code < SPACE ? 0 : 1;
  if (code <= LAST_CONTROL) return 0;
  if (character !== SOFT_HYPHEN && ZERO_WIDTH.test(character)) return 0;
  return WIDE.test(character) && !NARROW.test(character) ? 2 : 1;
}
