/**
 * The text of a manifest file → its objects, each with the line it stands on.
 *
 * @module
 */
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseAllDocuments,
  visit,
  type YAMLMap,
} from "yaml";
import { parseIp } from "../model/ip.ts";
import type { ApiObject } from "../model/objects.ts";
import { decodeItem, describeItem, foreignKind, isSelected, itemsOf, type RawItem } from "./decode.ts";
import { DecodeError, isAbsent, quote, type RawObject } from "./decode_values.ts";

/** One object of a file: read, or refused with a reason. */
export interface ManifestItem {
  /** `Service shop/web`: identity among all files; null if the object does not say. */
  readonly key: string | null;
  /** `Service shop/web`, as far as known. */
  readonly object: string;
  /** 1-based; 0 if not known. */
  readonly line: number;
  /** 1-based, counting documents that hold something. */
  readonly document: number;
  /** What it decodes to; empty if refused. */
  readonly objects: readonly ApiObject[];
  /** False if kube-proxy's selectors would keep it from the proxy. */
  readonly selected: boolean;
  /** Why it is refused. */
  readonly refusal?: string;
  /** Its kind, if that is one the proxy does not read. */
  readonly foreign?: string;
}

/** Where and why a text cannot be read at all. */
export interface SyntaxProblem {
  readonly line: number;
  readonly document: number;
  readonly message: string;
}

/** A file's objects; if `problem` is there, the text is broken and nothing of it counts. */
export interface Manifest {
  readonly items: readonly ManifestItem[];
  readonly problem?: SyntaxProblem;
  /** What each part of the text gave, so that an edit costs only the documents it touches. */
  readonly parts: ReadonlyMap<string, ManifestPart>;
}

/** One part of a text, with lines and documents counted from its own start (the first is 0). */
export interface ManifestPart {
  readonly items: readonly ManifestItem[];
  readonly documents: number;
  readonly problem?: SyntaxProblem;
}

/** How a text is read. */
export interface ManifestOptions {
  /** True for `*.json`: it must be JSON. Without it JSON is still understood, being YAML. */
  readonly json?: boolean;
  /** The same file's former content: parts of it that are still there are not read again. */
  readonly previous?: Manifest | undefined;
}

/** Reads the objects of a text. Never throws for what is in the text. */
export function readManifest(text: string, options: ManifestOptions = {}): Manifest {
  const items: ManifestItem[] = [];
  const parts = new Map<string, ManifestPart>();
  let line = 1;
  let document = 1;
  for (const partText of splitDocuments(text.startsWith("\uFEFF") ? text.slice(1) : text)) {
    const part = parts.get(partText) ?? options.previous?.parts.get(partText) ?? readPart(partText, options);
    parts.set(partText, part);
    if (part.problem !== undefined) return { items: [], parts, problem: shift(part.problem, line, document) };
    for (const item of part.items) items.push(shift(item, line, document));
    line += countLines(partText);
    document += part.documents;
  }
  return { items, parts };
}

/** The manifest with Services refused whose cluster IP is one of the node's own addresses, in canonical text. */
export function refuseOwnIps(manifest: Manifest, ownIps: ReadonlySet<string>): Manifest {
  const items = manifest.items.map((item) => {
    const [object] = item.objects;
    if (object?.kind !== "Service" || object.type === "ExternalName") return item;
    const index = object.clusterIPs.findIndex((ip) => ownIps.has(parseIp(ip)?.text ?? ""));
    if (index < 0) return item;
    const field = index === 0 ? "clusterIP" : `clusterIPs[${index}]`;
    const refusal = `spec.${field}: must not be an address of this node, ` +
      `found ${quote(object.clusterIPs[index])}`;
    return { ...item, objects: [], selected: false, refusal };
  });
  return { ...manifest, items };
}

function shift<T extends { readonly line: number; readonly document: number }>(
  at: T,
  line: number,
  document: number,
): T {
  return { ...at, line: at.line < 0 ? 0 : at.line + line, document: at.document + document };
}

function countLines(text: string): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

/** Cuts before every `---` line. YAML allows that marker nowhere else, not even inside texts; directives need what follows. */
function splitDocuments(text: string): string[] {
  if (looksLikeJson(text) || /^(%|\.\.\.)/m.test(text)) return [text];
  const starts = [...text.matchAll(/^---(?=[ \t\r\n]|$)/gm)].map((match) => match.index);
  if (starts[0] !== 0) starts.unshift(0);
  return starts.map((start, index) => text.slice(start, starts[index + 1]));
}

function looksLikeJson(text: string): boolean {
  return /^\s*[{[]/.test(text);
}

function readPart(text: string, options: ManifestOptions): ManifestPart {
  if (options.json === true || looksLikeJson(text)) {
    const part = readJson(text, options.json === true);
    if (part !== undefined) return part;
  }
  return readYaml(text);
}

/** Undefined if the text is not JSON and need not be. */
function readJson(text: string, required: boolean): ManifestPart | undefined {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    if (!required) return undefined;
    if (text.trim() === "") return { items: [], documents: 0 };
    const line = Number(/\(line (\d+) /.exec(error.message)?.[1] ?? countLines(text) + 1) - 1;
    return { items: [], documents: 1, problem: { line, document: 0, message: error.message } };
  }
  const items = decodeDocument(raw, 0, () => -1);
  if (items.every((item) => item.refusal === undefined)) return { items, documents: 1 };
  // Only a refusal needs lines, and only the slower reader knows them.
  const lines = new LineCounter();
  const [document] = parse(text, lines);
  if (document === undefined || document.errors.length > 0) return { items, documents: 1 };
  return { items: decodeDocument(raw, 0, (path) => lineOf(document, path, lines)), documents: 1 };
}

function parse(text: string, lineCounter: LineCounter): Document[] {
  const documents = parseAllDocuments(text, {
    lineCounter,
    merge: true,
    prettyErrors: false,
    logLevel: "error",
    // Each key would be compared with all others of its map: half a minute for 10,000. See repetitionIn().
    uniqueKeys: false,
  });
  return [...documents] as Document[];
}

function readYaml(text: string): ManifestPart {
  const lines = new LineCounter();
  const read: { readonly document: Document; readonly raw: unknown }[] = [];
  let current: Document | undefined;
  try {
    for (const document of parse(text, lines)) {
      current = document;
      const [error] = document.errors;
      if (error !== undefined) return syntaxProblem(lineAt(lines, error.pos[0]), read.length, error.message);
      const repetition = repetitionIn(document);
      if (repetition !== null) {
        return syntaxProblem(lineAt(lines, repetition.offset), read.length, repetition.message);
      }
      const raw: unknown = document.toJS();
      if (!isAbsent(raw)) read.push({ document, raw });
    }
  } catch (error) {
    // Too many aliases, too deep nesting, a merge of something else than a map: thrown, as one of several classes, not listed.
    if (!(error instanceof Error)) throw error;
    const line = lineAt(lines, current === undefined ? 0 : faultOf(current));
    return syntaxProblem(line, read.length, error.message);
  }
  const items = read.flatMap(({ document, raw }, index) =>
    decodeDocument(raw, index, (path) => lineOf(document, path, lines))
  );
  return { items, documents: read.length };
}

/** As many are resolved in no time; it grows with their square. */
const MAX_ALIASES = 10_000;

/** A place in a text, and what is wrong there. */
interface Fault {
  readonly offset: number;
  readonly message: string;
}

/** The first key that its map has twice, or the first alias that is one too many; null if there is neither. */
function repetitionIn(document: Document): Fault | null {
  let found: Fault | null = null;
  let aliases = 0;
  visit(document, {
    Map(_, map) {
      found = repeatedKeyOf(map);
      return found === null ? undefined : visit.BREAK;
    },
    Alias(_, { range }) {
      if (++aliases <= MAX_ALIASES) return undefined;
      found = { offset: range?.[0] ?? 0, message: `There are more than ${MAX_ALIASES} aliases` };
      return visit.BREAK;
    },
  });
  return found;
}

function repeatedKeyOf({ items }: YAMLMap): Fault | null {
  const keys = new Set<unknown>();
  for (const { key } of items) {
    if (!isScalar(key)) continue;
    if (keys.has(key.value)) return { offset: key.range?.[0] ?? 0, message: "Map keys must be unique" };
    keys.add(key.value);
  }
  return null;
}

/** Where the alias is that leads nowhere; else where the document begins. */
function faultOf(document: Document): number {
  let offset = document.range?.[0] ?? 0;
  visit(document, {
    Alias(_, alias) {
      if (alias.resolve(document) !== undefined) return;
      offset = alias.range?.[0] ?? offset;
      return visit.BREAK;
    },
  });
  return offset;
}

function syntaxProblem(line: number, document: number, message: string): ManifestPart {
  return { items: [], documents: document, problem: { line, document, message } };
}

/** 0-based. */
function lineAt(lines: LineCounter, offset: number): number {
  return Math.max(0, lines.linePos(offset).line - 1);
}

function decodeDocument(raw: unknown, document: number, line: (path: string) => number): ManifestItem[] {
  const items: ManifestItem[] = [];
  for (const item of itemsOf(raw)) {
    const foreign = foreignKind(item);
    if (foreign !== undefined) {
      const object = describeWritten(item);
      items.push({ key: null, object, document, line: -1, objects: [], selected: false, foreign });
      continue;
    }
    const base = { key: keyOf(item), object: describeWritten(item), document };
    try {
      const objects = decodeItem(item, { manifest: true });
      const selected = isSelected(item.raw as RawObject, String(item.kind));
      items.push({ ...base, line: line(item.path), objects, selected });
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      items.push({
        ...base,
        line: line(error.path),
        objects: [],
        selected: false,
        refusal: error.message,
      });
    }
  }
  return items;
}

/** `default` stands in for a namespace that is not written. */
function keyOf({ raw, kind }: RawItem): string | null {
  const { name, namespace = "default" } = metadataOf(raw);
  if (typeof kind !== "string" || kind === "" || typeof name !== "string" || name === "") return null;
  if (isClusterScoped(kind)) return `${kind} ${name}`;
  return typeof namespace === "string" ? `${kind} ${namespace}/${name}` : null;
}

function describeWritten({ raw, kind }: RawItem): string {
  const { namespace = "default", name } = metadataOf(raw);
  return describeItem({ kind, raw: { metadata: isClusterScoped(kind) ? { name } : { namespace, name } } });
}

function isClusterScoped(kind: unknown): boolean {
  return kind === "Node" || kind === "ServiceCIDR";
}

function metadataOf(raw: unknown): { readonly name?: unknown; readonly namespace?: unknown } {
  const metadata = (raw as RawObject | null | undefined)?.["metadata"] as RawObject | null | undefined;
  const { name, namespace } = metadata ?? {};
  return { name, ...(isAbsent(namespace) ? {} : { namespace }) };
}

/** 0-based line of the deepest part of `path` (`items[0].spec.ports[1].port`) that the document has. */
function lineOf(document: Document, path: string, lines: LineCounter): number {
  let node: unknown = document.contents;
  let offset = (node as Node | null)?.range?.[0] ?? 0;
  for (const segment of segmentsOf(path)) {
    if (isAlias(node)) node = node.resolve(document);
    if (isSeq(node)) {
      node = node.items[Number(segment)];
      offset = (node as Node | undefined)?.range?.[0] ?? offset;
    } else if (isMap(node)) {
      const pair = node.items.find((entry) => isScalar(entry.key) && entry.key.value === segment);
      if (pair === undefined) break;
      offset = (pair.key as Node).range?.[0] ?? offset;
      node = pair.value;
    } else {
      break;
    }
  }
  return lineAt(lines, offset);
}

function segmentsOf(path: string): string[] {
  return [...path.matchAll(/\["([^"]*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map((match) =>
    match[1] ?? match[2] ?? match[3] ?? ""
  );
}
