/**
 * One part of a manifest file in YAML → its objects, each with its line.
 *
 * @module
 */
import { type Document, isAlias, isMap, isScalar, isSeq, type LineCounter, type Node, visit } from "yaml";
import type { YAMLMap } from "yaml";
import {
  danglingAliases,
  parseYamlDocuments,
  shortened,
  type YamlFault,
} from "../../config/yaml_documents.ts";
import { isAbsent } from "./decode_values.ts";
import { decodeDocument, type ManifestPart, segmentsOf } from "./manifest_items.ts";

/** What one document of a text holds. */
export interface YamlValue {
  readonly document: Document;
  readonly raw: unknown;
}

/** The documents of a text that hold something; if `problem` is there, they are not all. */
export interface YamlValues {
  readonly values: readonly YamlValue[];
  readonly lines: LineCounter;
  readonly problem?: { readonly line: number; readonly message: string };
}

/** Reads all documents of a text, without looking at what they stand for. Lines are counted from 0. */
export function readYamlValues(text: string): YamlValues {
  const { documents, fault, lines } = parseYamlDocuments(text, { merge: true });
  const values: YamlValue[] = [];
  const broken = ({ offset, message }: YamlFault): YamlValues => ({
    values,
    lines,
    problem: { line: lineAt(lines, offset), message: shortened(message) },
  });
  for (const document of documents) {
    const [error] = document.errors;
    const repetition = error === undefined
      ? repetitionIn(document)
      : { offset: error.pos[0], message: error.message };
    if (repetition !== null) return broken(repetition);
    let raw: unknown;
    try {
      raw = document.toJS();
    } catch (thrown) {
      // Too many aliases, a merge of something else than a map: thrown, as one of several classes, not listed.
      if (!(thrown instanceof Error)) throw thrown;
      return broken({ offset: faultOf(document), message: thrown.message });
    }
    if (!isAbsent(raw)) values.push({ document, raw });
  }
  return fault === null ? { values, lines } : broken(fault);
}

/** Reads the objects of a part that may have several documents. */
export function readYaml(text: string): ManifestPart {
  const { values, lines, problem } = readYamlValues(text);
  const documents = values.length;
  if (problem !== undefined) return { items: [], documents, problem: { ...problem, document: documents } };
  const items = values.flatMap(({ document, raw }, index) =>
    decodeDocument(raw, index, (path) => lineOf(document, segmentsOf(path), lines))
  );
  return { items, documents };
}

/** The first key that its map has twice; null if there is none. */
function repetitionIn(document: Document): YamlFault | null {
  let found: YamlFault | null = null;
  visit(document, {
    Map(_, map) {
      found = repeatedKeyOf(map);
      return found === null ? undefined : visit.BREAK;
    },
  });
  return found;
}

function repeatedKeyOf({ items }: YAMLMap): YamlFault | null {
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
  return danglingAliases(document, 1)[0]?.range?.[0] ?? document.range?.[0] ?? 0;
}

/** 0-based. */
function lineAt(lines: LineCounter, offset: number): number {
  return Math.max(0, lines.linePos(offset).line - 1);
}

/** 0-based line of the deepest part of a path that the document has. */
export function lineOf(document: Document, path: readonly string[], lines: LineCounter): number {
  let node: unknown = document.contents;
  let offset = (node as Node | null)?.range?.[0] ?? 0;
  for (const segment of path) {
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
