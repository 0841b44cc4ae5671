/**
 * The words of a line of nft's language, and a reader that takes them one after the other.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";

/** nft's word for a family of tables. */
export type NftFamily = "ip" | "ip6";

/** nft's word for an IP family. */
export function nftFamily(family: IpFamily): NftFamily {
  return family === "IPv4" ? "ip" : "ip6";
}

const WORD_REGEXP = /"(?:[^"])*"|[{},;]|[^\s{},;"]+/g;

/** Splits text into words: braces, commas and semicolons stand alone, quoted text keeps its quotes. */
function splitNftWords(text: string): string[] {
  const words = text.match(WORD_REGEXP) ?? [];
  // The expression skips only quotes that are not closed.
  if (
    words.join("").length !==
      text.replaceAll(/("[^"]*")|\s/g, (_, quoted: string | undefined) => quoted ?? "").length
  ) {
    throw new SyntaxError(`Quote is not closed in "${text}"`);
  }
  return words;
}

/** The text between quotes, or the word itself. */
export function unquoted(word: string): string {
  return word.startsWith('"') ? word.slice(1, -1) : word;
}

/** Takes words from left to right. Every error names the whole text and the place. */
export class NftWords {
  readonly #text: string;
  readonly #words: readonly string[];
  #next = 0;

  /** @throws {SyntaxError} if a quote is not closed */
  constructor(text: string) {
    this.#text = text;
    this.#words = splitNftWords(text);
  }

  get atEnd(): boolean {
    return this.#next >= this.#words.length;
  }

  /** The word `ahead` words after the next one; `""` past the end. */
  peek(ahead = 0): string {
    return this.#words[this.#next + ahead] ?? "";
  }

  /** The next word. @throws {SyntaxError} at the end */
  take(): string {
    const word = this.#words[this.#next];
    if (word === undefined) throw this.refusal("ends too early");
    this.#next++;
    return word;
  }

  /** Takes these words if they come next. */
  takeIf(...words: readonly string[]): boolean {
    if (!words.every((word, ahead) => this.peek(ahead) === word)) return false;
    this.#next += words.length;
    return true;
  }

  /** Takes the next word. @throws {SyntaxError} if it is another word */
  expect(word: string): void {
    if (!this.takeIf(word)) throw this.refusal(`wants "${word}"`);
  }

  /** Takes a number. @throws {SyntaxError} if the next word is no whole number, decimal or 0x… */
  takeNumber(): number {
    const word = this.take();
    if (!/^(?:0x[0-9a-f]{1,8}|\d{1,10})$/i.test(word)) throw this.refusal(`has "${word}" for a number`, -1);
    return Number(word);
  }

  /** An error about the text, at the next word or `shift` words from it. */
  refusal(why: string, shift = 0): SyntaxError {
    const place = this.#words[this.#next + shift];
    return new SyntaxError(`"${this.#text}" ${why}${place === undefined ? "" : `, at "${place}"`}`);
  }
}
