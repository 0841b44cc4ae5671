/**
 * The documents of a text in YAML, as plain values.
 *
 * @module
 */
import type { YamlDocument } from "../../config/yaml_document.ts";
import { parsingOf, shortened } from "../../config/yaml_documents.ts";
import { isAbsent } from "./decode_values.ts";

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

/** Reads all documents of a text, without looking at what they stand for; in steps. */
export function* readYamlValues(text: string): Generator<void, YamlValues> {
  const { documents, fault, lines } = yield* parsingOf(text, { merge: true });
  const values: YamlValue[] = [];
  const broken = (line: number, message: string): YamlValues => ({
    values,
    problem: { line, message: shortened(message) },
  });
  for (const document of documents) {
    const problem = document.faults[0] ?? document.repeatedKey();
    if (problem !== null) return broken(lines.lineAt(problem.offset), problem.message);
    yield;
    let raw: unknown;
    try {
      raw = document.toJs();
    } catch (thrown) {
      if (!(thrown instanceof Error)) throw thrown;
      const [alias] = document.danglingAliases();
      return broken(document.lineOf(alias) ?? document.line, thrown.message);
    }
    if (!isAbsent(raw)) values.push({ document, raw });
    yield;
  }
  return fault === null ? { values } : broken(lines.lineAt(fault.offset), fault.message);
}
