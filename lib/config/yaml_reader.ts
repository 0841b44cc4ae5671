/**
 * One YAML or JSON document as maps, lists and scalars with their lines, following aliases and merge keys.
 *
 * @module
 */
import { isMap, isScalar, isSeq, type Tags } from "yaml";
import type { Problem } from "../errors.ts";
import { firstLine } from "../text/lines.ts";
import type { YamlDocument } from "./yaml_document.ts";
import { parseYamlDocuments, shortened } from "./yaml_documents.ts";

export interface YamlEntry {
  readonly name: string;
  readonly line: number;
  readonly value: unknown;
}

export type YamlScalar = string | number | boolean | null;

/** A first document, ready to be read. Nodes are handed around as `unknown`: only this class looks into them. */
export class YamlReader {
  /** Syntax errors. If there is one, nothing else is worth reading. */
  readonly problems: readonly Problem[];
  /** Line on which a second document begins, if there is one. */
  readonly secondDocumentLine: number | undefined;
  readonly root: unknown;
  readonly #document: YamlDocument | undefined;

  constructor(text: string) {
    // Kubernetes reads YAML 1.1 (yes/no/on/off are booleans), but knows neither dates nor numbers of base 60.
    const { documents: [document, second], fault, lines } = parseYamlDocuments(text, {
      version: "1.1",
      customTags: (tags) => tags.filter(isKubernetesTag),
    });
    this.#document = document;
    this.root = document?.root ?? null;
    // Only the first document counts.
    const faults = [...document?.faults ?? [], ...fault === null || second !== undefined ? [] : [fault]];
    const syntax = faults.map(({ offset, message }) => ({
      path: "",
      message: shortened(firstLine(message).replace(/ at line \d+, column \d+:?$/, "")),
      line: lines.lineAt(offset) + 1,
    }));
    this.problems = syntax.length > 0 ? syntax : this.#danglingAliases();
    this.secondDocumentLine = second === undefined ? undefined : second.line + 1;
  }

  /** 1-based line of a node; 1 if it has none. */
  lineOf(node: unknown): number {
    return (this.#document?.lineOf(node) ?? 0) + 1;
  }

  /** The entries of a map, merged ones first, or undefined if the node is no map. */
  entries(node: unknown): YamlEntry[] | undefined {
    const map = this.#resolve(node);
    if (!isMap(map)) return undefined;
    const merged = new Map<string, YamlEntry>();
    const own: YamlEntry[] = [];
    for (const pair of map.items) {
      const name = nameOf(pair.key);
      if (name !== "<<") own.push({ name, line: this.lineOf(pair.key), value: pair.value });
      else for (const entry of this.#merged(pair.value, map)) merged.set(entry.name, entry);
    }
    for (const { name } of own) merged.delete(name);
    return [...merged.values(), ...own];
  }

  /** The items of a list, or undefined if the node is no list. */
  items(node: unknown): readonly unknown[] | undefined {
    const list = this.#resolve(node);
    return isSeq(list) ? list.items : undefined;
  }

  /** The value of a scalar (an absent one is null), or undefined if the node is a map or a list. */
  scalar(node: unknown): YamlScalar | undefined {
    const resolved = this.#resolve(node);
    if (resolved === null || resolved === undefined) return null;
    if (!isScalar(resolved)) return undefined;
    const { value } = resolved;
    if (typeof value === "bigint") return Number(value);
    return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
      ? value
      : null;
  }

  /** A scalar as it is written, without quotes. */
  source(node: unknown): string {
    const resolved = this.#resolve(node);
    if (!isScalar(resolved)) return "";
    return resolved.source ?? String(resolved.value);
  }

  /** Description of a node, to follow "found". */
  describe(node: unknown): string {
    if (this.entries(node) !== undefined) return "a map";
    if (this.items(node) !== undefined) return "a list";
    const value = this.scalar(node);
    if (value === null || value === undefined) return "nothing";
    if (typeof value === "string") return `the string ${JSON.stringify(value)}`;
    return typeof value === "number" ? `the number ${this.source(node)}` : `the boolean ${this.source(node)}`;
  }

  #resolve(node: unknown): unknown {
    return this.#document === undefined ? node : this.#document.resolve(node);
  }

  #danglingAliases(): Problem[] {
    return (this.#document?.danglingAliases() ?? []).map((alias) => {
      const message = `*${alias.source} refers to an anchor that is not set before it`;
      return { path: "", message, line: this.lineOf(alias) };
    });
  }

  #merged(node: unknown, into: unknown): YamlEntry[] {
    const sources = this.items(node) ?? [node];
    // Earlier sources win over later ones; a map that merges itself adds nothing.
    return [...sources].reverse().flatMap((source) =>
      this.#resolve(source) === into ? [] : this.entries(source) ?? []
    );
  }
}

function isKubernetesTag(tag: Tags[number]): boolean {
  if (typeof tag === "string") return tag !== "timestamp" && tag !== "intTime" && tag !== "floatTime";
  const format = "format" in tag ? tag.format : undefined;
  return format !== "TIME" && tag.tag !== "tag:yaml.org,2002:timestamp";
}

function nameOf(key: unknown): string {
  if (!isScalar(key)) return String(key);
  if (typeof key.value === "symbol") return "<<";
  return key.source ?? String(key.value);
}
