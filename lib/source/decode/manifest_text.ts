/**
 * The text of a manifest file → its objects, each with the line it stands on.
 *
 * @module
 */
import { toEnd } from "../../text/steps.ts";
import { parseIp } from "../../model/ip.ts";
import { YAML_LIMITS } from "../../config/yaml_documents.ts";
import { countLines, linePieces } from "../../text/lines.ts";
import { JsonPlaces, readLongJson } from "./manifest_json.ts";
import {
  atIndex,
  decodeDocument,
  type ManifestItem,
  type ManifestPart,
  readListItem,
  readYaml,
  segmentsOf,
  splitList,
  type SyntaxProblem,
} from "./manifest_items.ts";
import { quote } from "../../text/quote.ts";

/** More documents than fit into a file with objects; each takes some hundred bytes of memory, however short it is. */
const MAX_DOCUMENTS = 250_000;

/** Some milliseconds of work. */
const ITEMS_PER_STEP = 5_000;

/** Some milliseconds of work, and too short for too many values. */
const SHORT_JSON_CHARACTERS = 2 ** 20;

/** A file's objects; if there is a `problem`, the text is broken and none of them is used. */
export interface Manifest {
  readonly items: readonly ManifestItem[];
  readonly problem?: SyntaxProblem;
  /** The objects of each part of the text, so that an edit costs only the documents it touches. */
  readonly parts: ReadonlyMap<string, ManifestPart>;
}

/** Options for reading a manifest. */
export interface ManifestOptions {
  /** True for `*.json`: it must be JSON. Without it JSON is still understood, being YAML. */
  readonly json?: boolean;
  /** Manifest of the file's former content: unchanged parts of the text are not read again. */
  readonly previous?: Manifest | undefined;
}

/** Reads the objects of a text. Never throws for what is in the text. */
export function readManifest(text: string, options: ManifestOptions = {}): Manifest {
  return toEnd(readingOf(text, options));
}

/** As {@linkcode readManifest}, in steps of some milliseconds, of one document or one object: between them other work may run. */
export function* readingOf(text: string, options: ManifestOptions = {}): Generator<void, Manifest> {
  const items: ManifestItem[] = [];
  const parts = new Map<string, ManifestPart>();
  let line = 1;
  let document = 1;
  const whole = text.startsWith("\uFEFF") ? text.slice(1) : text;
  const starts = yield* documentStarts(whole);
  for (const [index, start] of starts.entries()) {
    const partText = whole.slice(start, starts[index + 1]);
    if (index === MAX_DOCUMENTS) {
      return {
        items: [],
        parts,
        problem: { line, document, message: `more than ${MAX_DOCUMENTS} documents` },
      };
    }
    const known = parts.get(partText) ?? options.previous?.parts.get(partText);
    const part = known ?? (yield* readPart(partText, options, parts));
    parts.set(partText, part);
    if (part.problem !== undefined) return { items: [], parts, problem: shift(part.problem, line, document) };
    for (const item of part.items) {
      if (items.push(shift(item, line, document)) % ITEMS_PER_STEP === 0) yield;
    }
    if (index + 1 < starts.length) line += countLines(partText);
    document += part.documents;
    yield;
  }
  return { items, parts };
}

/** The manifest with Services refused whose cluster IP is one of the node's own addresses, in canonical text; in steps. */
export function* refusingOwnIps(manifest: Manifest, ownIps: ReadonlySet<string>): Generator<void, Manifest> {
  const items: ManifestItem[] = [];
  for (const item of manifest.items) {
    items.push(refuseOwnIp(item, ownIps));
    yield;
  }
  return { ...manifest, items };
}

function refuseOwnIp(item: ManifestItem, ownIps: ReadonlySet<string>): ManifestItem {
  const [object] = item.objects;
  if (object?.kind !== "Service" || object.type === "ExternalName") return item;
  const index = object.clusterIPs.findIndex((ip) => ownIps.has(parseIp(ip)?.text ?? ""));
  if (index < 0) return item;
  const field = index === 0 ? "clusterIP" : `clusterIPs[${index}]`;
  const refusal = `spec.${field}: must not be an address of this node, ` +
    `found ${quote(object.clusterIPs[index])}`;
  return { ...item, objects: [], refusal };
}

function shift<T extends { readonly line: number; readonly document: number }>(
  at: T,
  line: number,
  document: number,
): T {
  return { ...at, line: at.line < 0 ? 0 : at.line + line, document: at.document + document };
}

/**
 * Offsets of documents: at every `---` line. YAML allows that marker nowhere else, not even inside texts; directives need what follows.
 * Offsets beyond {@linkcode MAX_DOCUMENTS} are left out.
 */
function* documentStarts(text: string): Generator<void, readonly number[]> {
  if (looksLikeJson(text)) return [0];
  for (const [, piece] of linePieces(text)) {
    if (/^(%|\.\.\.)/m.test(piece)) return [0];
    yield;
  }
  const starts = [0];
  for (const [offset, piece] of linePieces(text)) {
    for (const { index } of piece.matchAll(/^---(?=[ \t\r\n]|$)/gm)) {
      if (offset + index > 0) starts.push(offset + index);
      if (starts.length > MAX_DOCUMENTS) return starts;
    }
    yield;
  }
  return starts;
}

function looksLikeJson(text: string): boolean {
  return /^\s*[{[]/.test(text);
}

function* readPart(
  text: string,
  options: ManifestOptions,
  parts: Map<string, ManifestPart>,
): Generator<void, ManifestPart> {
  if (options.json === true || looksLikeJson(text)) {
    const part = yield* readJson(text, options.json === true);
    if (part !== undefined) return part;
  }
  return (yield* readList(text, options, parts)) ?? (yield* readYaml(text));
}

/** Reads a list item by item; null if it must be read as a whole. */
function* readList(
  text: string,
  { previous }: ManifestOptions,
  parts: Map<string, ManifestPart>,
): Generator<void, ManifestPart | null> {
  const list = yield* splitList(text);
  if (list === null) return null;
  const items: ManifestItem[] = [];
  // No document begins with this prefix; the kind of an item depends on its list.
  const prefix = `- ${JSON.stringify(list.head)}\n`;
  for (const [index, itemText] of list.items.entries()) {
    const key = prefix + itemText.text;
    const part = parts.get(key) ?? previous?.parts.get(key) ??
      (yield* readListItem(itemText, list.head));
    if (part.problem !== undefined) {
      // A text that is too large cannot be read as a whole, where the item might be valid.
      if (text.length <= YAML_LIMITS.characters) return null;
      return broken(part.problem.line + itemText.line, part.problem.message);
    }
    parts.set(key, part);
    for (const item of atIndex(part.items, index)) {
      items.push({ ...item, line: item.line < 0 ? item.line : item.line + itemText.line });
    }
    yield;
  }
  return { items, documents: 1 };
}

/** Reads a JSON text; undefined if it is not JSON and need not be. */
function* readJson(text: string, required: boolean): Generator<void, ManifestPart | undefined> {
  if (text.length > SHORT_JSON_CHARACTERS) {
    const long = yield* readLongJson(text);
    if (long !== null) return long;
  }
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    if (!required) return undefined;
    if (text.trim() === "") return { items: [], documents: 0 };
    return broken(
      Number(/\(line (\d+) /.exec(error.message)?.[1] ?? countLines(text) + 1) - 1,
      error.message,
    );
  }
  yield;
  const items = yield* decodeDocument(raw, 0, () => -1);
  if (items.every((item) => item.refusal === undefined)) return { items, documents: 1 };
  // Only a refusal needs lines.
  const places = new JsonPlaces(text);
  const placed = yield* decodeDocument(raw, 0, (path) => places.lineOf(segmentsOf(path)));
  return { items: placed, documents: 1 };
}

function broken(line: number, message: string): ManifestPart {
  return { items: [], documents: 1, problem: { line, document: 0, message } };
}
