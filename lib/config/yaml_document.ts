/**
 * One document of a YAML text: its nodes with their lines, aliases followed.
 *
 * @module
 */
import { type Alias, type Document, isAlias, isMap, isScalar, isSeq, type Node, visit } from "yaml";
import type { LineStarts } from "../text/lines.ts";

/** A fault in a text, with its place. */
export interface YamlFault {
  readonly offset: number;
  readonly message: string;
}

/** A parsed document. Lines count from 0, in its whole text. Nodes may be any value; one that is no node has no line. */
export class YamlDocument {
  readonly #document: Document.Parsed;
  readonly #lines: LineStarts;
  #targets: ReadonlyMap<Alias, Node | undefined> | undefined;

  constructor(document: Document.Parsed, lines: LineStarts) {
    this.#document = document;
    this.#lines = lines;
  }

  /** Null if the document holds nothing. */
  get root(): unknown {
    return this.#document.contents;
  }

  /** Line on which the document begins. */
  get line(): number {
    return this.#lines.lineAt(this.#document.range[0]);
  }

  /** Faults that the parser found. If there is one, nothing else is worth reading. */
  get faults(): readonly YamlFault[] {
    return this.#document.errors.map(({ pos: [offset], message }) => ({ offset, message }));
  }

  /** Line of a node; undefined if it has none. */
  lineOf(node: unknown): number | undefined {
    const offset = offsetOf(node);
    return offset === undefined ? undefined : this.#lines.lineAt(offset);
  }

  /** The node that an alias refers to, undefined if there is none; any other node itself. */
  resolve(node: unknown): unknown {
    return isAlias(node) ? this.#aliases.get(node) : node;
  }

  /** Aliases without an anchor, in the order of the text. */
  danglingAliases(): readonly Alias[] {
    return [...this.#aliases].flatMap(([alias, target]) => target === undefined ? [alias] : []);
  }

  /** Line of the deepest part of a path that the document has: of a field's name, or of where an element begins. */
  lineOfPath(path: readonly string[]): number {
    let node = this.root;
    let offset = offsetOf(node) ?? 0;
    for (const segment of path) {
      node = this.resolve(node);
      if (isSeq(node)) {
        node = node.items[Number(segment)];
        offset = offsetOf(node) ?? offset;
      } else if (isMap(node)) {
        const pair = node.items.find(({ key }) => isScalar(key) && key.value === segment);
        if (pair === undefined) break;
        offset = offsetOf(pair.key) ?? offset;
        node = pair.value;
      } else {
        break;
      }
    }
    return this.#lines.lineAt(offset);
  }

  /** The first key that its map has twice; null if there is none. */
  repeatedKey(): YamlFault | null {
    let found: YamlFault | null = null;
    visit(this.#document, {
      Map(_, { items }) {
        const keys = new Set<unknown>();
        for (const { key } of items) {
          if (!isScalar(key)) continue;
          if (keys.has(key.value)) {
            found = { offset: offsetOf(key) ?? 0, message: "Map keys must be unique" };
            return visit.BREAK;
          }
          keys.add(key.value);
        }
        return undefined;
      },
    });
    return found;
  }

  /**
   * The document's value.
   *
   * @throws {Error} of several classes, for an anchor that is used too often, an alias without anchor, a merge of no map
   */
  toJs(): unknown {
    return this.#document.toJS();
  }

  /** Each alias with its anchor's node, the last one of the name before it: the parser would walk the document for each alias. */
  get #aliases(): ReadonlyMap<Alias, Node | undefined> {
    if (this.#targets !== undefined) return this.#targets;
    const targets = new Map<Alias, Node | undefined>();
    const anchors = new Map<string, Node>();
    visit(this.#document, {
      Node: (_, node) => {
        if (isAlias(node)) targets.set(node, anchors.get(node.source));
        else if (node.anchor !== undefined) anchors.set(node.anchor, node);
      },
    });
    return this.#targets = targets;
  }
}

function offsetOf(node: unknown): number | undefined {
  return (node as { readonly range?: readonly number[] | null } | null | undefined)?.range?.[0];
}
