/**
 * Stand-in for the part of `jsr:@std/yaml` that kproxy uses, over `npm:yaml`, for builders that cannot reach JSR.
 * Same names, signatures and output style as the real package; only the options used are there.
 *
 * @module
 */
import { Document, parseAllDocuments, visit } from "yaml";

/** Which words of YAML are understood: `core` is YAML 1.2's, `default` adds timestamps, binary, merge keys and sets. */
export type SchemaType = "failsafe" | "json" | "core" | "default";

/** Options of {@linkcode parse} and {@linkcode parseAll}. */
export interface ParseOptions {
  /** @default {"default"} */
  schema?: SchemaType;
  /** Whether a key may appear twice in a mapping; the last one wins. @default {false} */
  allowDuplicateKeys?: boolean;
}

/** Options of {@linkcode stringify}. */
export type StringifyOptions = {
  /** Spaces per level. @default {2} */
  indent?: number;
  /** Whether items of a list are indented under their key. @default {true} */
  arrayIndent?: boolean;
  /** Whether values YAML cannot hold (undefined, functions, symbols) are left out instead of refused. @default {false} */
  skipInvalid?: boolean;
  /** Whether keys are sorted. @default {false} */
  sortKeys?: boolean;
  /** Longest line before text is folded; -1 never folds. @default {80} */
  lineWidth?: number;
  /** Whether an object that appears twice is written once and referred to. @default {true} */
  useAnchors?: boolean;
  /** Whether words that YAML 1.1 reads as booleans or numbers are quoted. @default {true} */
  compatMode?: boolean;
};

/**
 * The value of a text that holds one YAML document; null if it is empty.
 *
 * @throws {SyntaxError} if the text does not parse or holds more than one document
 */
export function parse(content: string, options: ParseOptions = {}): unknown {
  const documents = parseDocuments(content, options);
  if (documents.length > 1) {
    throw new SyntaxError("Found more than 1 document in the stream: expected a single document");
  }
  return documents[0] ?? null;
}

/**
 * The values of all YAML documents of a text.
 *
 * @throws {SyntaxError} if one of them does not parse
 */
export function parseAll(content: string, options: ParseOptions = {}): unknown {
  return parseDocuments(content, options);
}

function parseDocuments(
  content: string,
  { schema = "default", allowDuplicateKeys = false }: ParseOptions,
): unknown[] {
  const documents = parseAllDocuments(content, {
    uniqueKeys: !allowDuplicateKeys,
    ...(schema === "default"
      ? { schema: "core", customTags: ["timestamp", "binary", "omap", "pairs", "set", "merge"] }
      : { schema }),
  });
  return [...documents].map((document) => {
    const problem = document.errors[0];
    if (problem !== undefined) throw new SyntaxError(problem.message, { cause: problem });
    return document.toJS();
  });
}

/** Characters for which the real package quotes a text, wherever they stand in it. */
const QUOTED = /[:,#[\]{}]/;
/** What nothing but double quotes can hold on one line. */
const UNPRINTABLE = /[^\x20-\x7e\xa1-\u{10ffff}]/u;

/**
 * The YAML text of a value, in block style with single quotes where quotes are needed.
 *
 * @throws {TypeError} on a value YAML cannot hold, unless `skipInvalid` is set
 */
export function stringify(data: unknown, options: StringifyOptions = {}): string {
  const { lineWidth = 80, compatMode = true } = options;
  if (!isStorable(data) && options.skipInvalid) return "";
  const document = new Document(storable(data, options.skipInvalid ?? false, new Map()), {
    sortMapEntries: options.sortKeys ?? false,
    aliasDuplicateObjects: options.useAnchors ?? true,
    ...(compatMode ? { compat: "yaml-1.1" } : {}),
  });
  visit(document, {
    Scalar: (_key, node) => {
      if (typeof node.value !== "string" || UNPRINTABLE.test(node.value) || !QUOTED.test(node.value)) return;
      node.type = "QUOTE_SINGLE";
    },
  });
  return document.toString({
    indent: options.indent ?? 2,
    indentSeq: options.arrayIndent ?? true,
    lineWidth: lineWidth < 0 ? 0 : lineWidth,
    singleQuote: true,
  });
}

function isStorable(value: unknown): boolean {
  return value !== undefined && typeof value !== "function" && typeof value !== "symbol";
}

/** A copy without what YAML cannot hold. `copies` keeps objects that appear twice one object, for the anchors. */
function storable(value: unknown, skipInvalid: boolean, copies: Map<object, unknown>): unknown {
  if (!isStorable(value)) throw new TypeError(`Cannot stringify ${typeof value}`);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  const known = copies.get(value);
  if (known !== undefined) return known;
  if (Array.isArray(value)) {
    const copy: unknown[] = [];
    copies.set(value, copy);
    // The real package writes null for a list's item that it skips, so that the others keep their places.
    for (const item of value) {
      copy.push(!isStorable(item) && skipInvalid ? null : storable(item, skipInvalid, copies));
    }
    return copy;
  }
  const copy: Record<string, unknown> = {};
  copies.set(value, copy);
  for (const [key, entry] of Object.entries(value)) {
    if (!isStorable(entry) && skipInvalid) continue;
    copy[key] = storable(entry, skipInvalid, copies);
  }
  return copy;
}
