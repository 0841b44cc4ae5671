/**
 * One part of a manifest file in YAML → its objects, each with its line.
 *
 * @module
 */
import type { YamlDocument } from "../../config/yaml_document.ts";
import { parseYamlDocuments, shortened } from "../../config/yaml_documents.ts";
import { isAbsent } from "./decode_values.ts";
import { decodeDocument, type ManifestPart, segmentsOf } from "./manifest_items.ts";

/** What one document of a text holds. */
export interface YamlValue {
  readonly document: YamlDocument;
  readonly raw: unknown;
}

/** The documents of a text that hold something; if `problem` is there, they are not all. Lines are counted from 0. */
export interface YamlValues {
  readonly values: readonly YamlValue[];
  readonly problem?: { readonly line: number; readonly message: string };
}

/** Reads all documents of a text, without looking at what they stand for. */
export function readYamlValues(text: string): YamlValues {
  const { documents, fault, lines } = parseYamlDocuments(text, { merge: true });
  const values: YamlValue[] = [];
  const broken = (line: number, message: string): YamlValues => ({
    values,
    problem: { line, message: shortened(message) },
  });
  for (const document of documents) {
    const problem = document.faults[0] ?? document.repeatedKey();
    if (problem !== null) return broken(lines.lineAt(problem.offset), problem.message);
    let raw: unknown;
    try {
      raw = document.toJs();
    } catch (thrown) {
      if (!(thrown instanceof Error)) throw thrown;
      const [alias] = document.danglingAliases(1);
      return broken(document.lineOf(alias) ?? document.line, thrown.message);
    }
    if (!isAbsent(raw)) values.push({ document, raw });
  }
  return fault === null ? { values } : broken(lines.lineAt(fault.offset), fault.message);
}

/** Reads the objects of a part that may have several documents. */
export function readYaml(text: string): ManifestPart {
  const { values, problem } = readYamlValues(text);
  const documents = values.length;
  if (problem !== undefined) return { items: [], documents, problem: { ...problem, document: documents } };
  const items = values.flatMap(({ document, raw }, index) =>
    decodeDocument(raw, index, (path) => document.lineOfPath(segmentsOf(path)))
  );
  return { items, documents };
}
