/**
 * YAML text → documents, within bounds: the parser needs 80 bytes of memory and a microsecond for each byte that it is given, and
 * its recursion ends where the stack does. So the text is measured token by token, with the parser's own lexer, as it is handed
 * over: brackets inside of texts and comments are none, whatever the quotes look like.
 *
 * @module
 */
import { Composer, isAlias, isCollection, isPair, isScalar, Lexer, Parser } from "yaml";
import type { Document, DocumentOptions, ParseOptions, SchemaOptions } from "yaml";
import { LineStarts } from "../text/lines.ts";
import { toEnd } from "../text/steps.ts";
import { YamlDocument, type YamlFault } from "./yaml_document.ts";

/** Limits of the structure of one YAML text. */
export interface YamlLimits {
  /** Length of the text, in UTF-16 units. */
  readonly characters: number;
  /** Scalars, indicators, line ends, and spaces between them; also lines, for a text within it may have many. */
  readonly tokens: number;
  /** Maps and lists inside each other. */
  readonly depth: number;
  /** Anchors, tags, directives and document ends, each. */
  readonly properties: number;
  /** The parser takes milliseconds for a thousand, and a hundred times as long for ten thousand. */
  readonly aliases: number;
  /** Scalars, maps and lists with each alias replaced by what it stands for. */
  readonly values: number;
}

/**
 * An API server takes requests of 3 MiB, and etcd objects of half that, which have some 100,000 tokens at most; the deepest that
 * are known, CustomResourceDefinitions, nest to some 70. The bound of Kubernetes' YAML reader, 10,000 levels, is beyond the stack
 * here.
 */
export const YAML_LIMITS: YamlLimits = {
  characters: 3 * 2 ** 20,
  tokens: 220_000,
  depth: 200,
  properties: 10_000,
  aliases: 1_000,
  values: 1_000_000,
};

/** Some milliseconds of work. */
const LEXEMES_PER_STEP = 1_000;

/** Documents of a text, up to the first fault. */
export interface YamlText {
  readonly documents: readonly YamlDocument[];
  /** Why the text was not read any further. */
  readonly fault: YamlFault | null;
  readonly lines: LineStarts;
}

/** Options of the parser, but for those that this file sets. */
export type YamlOptions = Omit<
  ParseOptions & DocumentOptions & SchemaOptions,
  "lineCounter" | "prettyErrors" | "logLevel" | "uniqueKeys"
>;

/**
 * The documents of a text up to the first fault, be it a bound or what is no YAML. Keys may be repeated: looking for that takes
 * the parser half a minute for 10,000 keys.
 */
export function parseYamlDocuments(
  text: string,
  options: YamlOptions = {},
  limits: YamlLimits = YAML_LIMITS,
): YamlText {
  return toEnd(parsingOf(text, options, limits));
}

/** As {@linkcode parseYamlDocuments}, in steps, between which other work runs. */
export function* parsingOf(
  text: string,
  options: YamlOptions = {},
  limits: YamlLimits = YAML_LIMITS,
): Generator<void, YamlText> {
  const lines = new LineStarts();
  const { documents, fault } = yield* composing(text, { options, limits, lines });
  return { documents: documents.map((document) => new YamlDocument(document, lines)), fault, lines };
}

interface Composed {
  readonly documents: readonly Document.Parsed[];
  readonly fault: YamlFault | null;
}

interface Composing {
  readonly options: YamlOptions;
  readonly limits: YamlLimits;
  /** Called with the start of each line. */
  readonly lines: LineStarts;
}

function* composing(text: string, { options, limits, lines }: Composing): Generator<void, Composed> {
  if (text.length > limits.characters) {
    const message = `a YAML document may have ${limits.characters} characters, found ${text.length}`;
    return { documents: [], fault: { offset: 0, message } };
  }
  const parser = new Parser(lines.add);
  const composer = new Composer({ ...options, prettyErrors: false, logLevel: "error", uniqueKeys: false });
  const documents: Document.Parsed[] = [];
  const meter = new Meter(limits);
  let fault: YamlFault | null = null;
  let lexemes = 0;
  for (const lexeme of new Lexer().lex(text)) {
    if (++lexemes % LEXEMES_PER_STEP === 0) yield;
    fault = meter.take(lexeme, parser.offset);
    if (fault !== null) return { documents, fault };
    for (const token of parser.next(lexeme)) {
      if (token.type === "error") fault ??= { offset: token.offset, message: errorText(token) };
      else documents.push(...composer.next(token));
      // The whole document was composed at once.
      if (token.type === "document") yield;
    }
    const tooMuch = beyond(limits, parser, lines);
    if (tooMuch !== null) return { documents, fault: tooMuch };
    // After an error, each further character may be one more.
    if (fault !== null || documents.at(-1)?.errors.length) break;
  }
  if (fault === null) {
    yield;
    for (const token of parser.end()) documents.push(...composer.next(token));
    yield;
  }
  documents.push(...composer.end());
  return fault === null && meter.hasAliases ? withinExpansion(documents, limits) : { documents, fault };
}

/** The documents before one whose aliases stand for too much. */
function withinExpansion(documents: readonly Document.Parsed[], { values }: YamlLimits): Composed {
  for (const [index, document] of documents.entries()) {
    if (document.errors.length > 0) break;
    const fault = new Expansion(values).faultIn(document);
    if (fault !== null) return { documents: documents.slice(0, index), fault };
  }
  return { documents, fault: null };
}

function errorText({ message, source }: { readonly message: string; readonly source: string }): string {
  return shortened(source === "" ? message : `${message}: ${JSON.stringify(source)}`);
}

/** A message that may have a piece of the text in it, which may be all of that. */
export function shortened(message: string, most = 200): string {
  return message.length <= most ? message : `${message.slice(0, most - 1)}…`;
}

/** Fault of a bound that the token just parsed exceeds, or null. The parser's stack begins with the document itself. */
function beyond({ depth, tokens }: YamlLimits, { stack }: Parser, lines: LineStarts): YamlFault | null {
  const token = stack[depth + 1];
  if (token !== undefined && "items" in token) {
    return { offset: token.offset, message: `nested more than ${depth} levels deep` };
  }
  const offset = lines.startOf(tokens);
  return offset === undefined ? null : { offset, message: `more than ${tokens} lines` };
}

/** Counts the tokens, properties and aliases of a text. */
class Meter {
  readonly #limits: YamlLimits;
  readonly #counts = new Map<string, number>();
  #tokens = 0;
  #isText = false;

  constructor(limits: YamlLimits) {
    this.#limits = limits;
  }

  get hasAliases(): boolean {
    return this.#counts.has(ALIASES);
  }

  /** Counts a lexeme; the fault of a bound that it exceeds, or null. */
  take(lexeme: string, offset: number): YamlFault | null {
    const { tokens, properties, aliases } = this.#limits;
    if (++this.#tokens > tokens) return { offset, message: `more than ${tokens} tokens` };
    const isText = this.#isText;
    this.#isText = lexeme === SCALAR;
    const first = lexeme.charAt(0);
    const property = isText ? undefined : PROPERTIES[first];
    if (property === undefined) return isText || first !== '"' ? null : badEscapes(lexeme, offset);
    const count = (this.#counts.get(property) ?? 0) + 1;
    this.#counts.set(property, count);
    const most = property === ALIASES ? aliases : properties;
    return count > most ? { offset, message: `more than ${most} ${property}` } : null;
  }
}

/** Lexeme before a plain or a block scalar. */
const SCALAR = "\x1f";

const ALIASES = "aliases";
/** Names of bounded tokens, by the character that they begin with. */
const PROPERTIES: Readonly<Record<string, string>> = {
  "&": "anchors",
  "*": ALIASES,
  "!": "tags",
  "%": "directives",
  ".": "document ends",
};

/** Most errors of this sort in one text: the parser reports each of them. */
const MAX_BAD_ESCAPES = 100;

function badEscapes(quoted: string, offset: number): YamlFault | null {
  let count = 0;
  for (const { 1: bad, index } of quoted.matchAll(ESCAPE)) {
    if (bad === undefined || ++count <= MAX_BAD_ESCAPES) continue;
    return { offset: offset + index, message: `more than ${MAX_BAD_ESCAPES} invalid escape sequences` };
  }
  return null;
}

const ESCAPE = /\\(?:[0abefnrtvN_LP /"\\\t\r\n]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|(?<bad>))/g;

/** Finds out how much a document's aliases stand for, without following any of them twice. */
class Expansion {
  readonly #most: number;
  /** Anchor → number of its values; null as long as it is not at its end. */
  readonly #sizes = new Map<string, number | null>();
  #fault: YamlFault | null = null;

  constructor(most: number) {
    this.#most = most;
  }

  faultIn({ contents }: Document): YamlFault | null {
    this.#sizeOf(contents);
    return this.#fault;
  }

  #sizeOf(node: unknown): number {
    if (this.#fault !== null) return 0;
    if (isPair(node)) return this.#sizeOf(node.key) + this.#sizeOf(node.value);
    if (isAlias(node)) return this.#sizeOfAlias(node.source, node.range?.[0] ?? 0);
    if (!isScalar(node) && !isCollection(node)) return 0;
    const { anchor } = node;
    if (anchor !== undefined) this.#sizes.set(anchor, isScalar(node) ? 1 : null);
    if (isScalar(node)) return 1;
    let size = 1;
    for (const item of node.items) size += this.#sizeOf(item);
    if (anchor !== undefined) this.#sizes.set(anchor, size);
    if (size > this.#most) this.#stop(node.range?.[0] ?? 0, `stands for more than ${this.#most} values`);
    return size;
  }

  /** Size of the alias's anchor. An alias without one is reported where the value is needed. */
  #sizeOfAlias(name: string, offset: number): number {
    const size = this.#sizes.get(name);
    if (size === null) this.#stop(offset, `*${name} stands inside of what it stands for`);
    return size ?? 1;
  }

  #stop(offset: number, message: string): void {
    this.#fault ??= { offset, message };
  }
}
