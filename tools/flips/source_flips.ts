/**
 * Finds in TypeScript text what can be flipped (operators, conditions, answers, early exits) and writes the text so that each flip
 * can be switched on alone while the program runs. The compiler's own parser finds them; types play no part.
 *
 * @module
 */
import ts from "typescript";
import {
  answersBoolean,
  isConditionOf,
  isEarlyExit,
  isText,
  ownsItsNegation,
  placeOf,
} from "./source_places.ts";

/** One thing to get wrong in one place. */
export interface Flip {
  /** Relative to the project. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** The functions and classes around it, outermost first, with dots between; empty at the top of a file. */
  readonly place: string;
  /** One line: the text as it stands, an arrow, and what takes its place. */
  readonly change: string;
  /** File, place and change, with a number where that is not enough: stays the same when lines move. */
  readonly key: string;
}

/** Operators that work out both sides first, and what stands for them. The second one for an order is its negation. */
const EAGER: Readonly<Record<string, readonly string[]>> = {
  "===": ["!=="],
  "!==": ["==="],
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "+": ["-"],
  "-": ["+"],
  "*": ["/"],
  "/": ["*"],
  "%": ["*"],
  "&": ["|"],
  "|": ["&"],
  "<<": [">>"],
  ">>": ["<<"],
};
const ASSIGNMENTS: Readonly<Record<string, string>> = {
  "+=": "-=",
  "-=": "+=",
  "*=": "/=",
  "/=": "*=",
  "|=": "&=",
  "&=": "|=",
  "??=": "=",
};
const METHODS: ReadonlyMap<string, string> = new Map([
  ["some", "every"],
  ["every", "some"],
  ["min", "max"],
  ["max", "min"],
]);
/** Longer texts are cut in the middle of a `change`. */
const TOLD = 140;

/** Yields the number that switches a flip on, from 1; null leaves it out of the text. */
export type Numbering = (flip: Flip) => number | null;

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, " ");
  return line.length <= TOLD ? line : `${line.slice(0, TOLD / 2)}…${line.slice(-TOLD / 2)}`;
}

/** Writes one file anew. */
class FlipWriter {
  readonly #source: ts.SourceFile;
  readonly #seen = new Map<string, number>();

  constructor(private readonly file: string, text: string, private readonly number: Numbering) {
    this.#source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.TS);
  }

  write(): string {
    return this.#children(this.#source);
  }

  #raw(node: ts.Node): string {
    return this.#source.text.slice(node.getStart(this.#source), node.end);
  }

  #flip(node: ts.Node, after: string): number | null {
    const place = placeOf(node);
    const change = `${oneLine(this.#raw(node))} → ${oneLine(after)}`;
    const name = `${this.file} ${place}: ${change}`;
    const times = (this.#seen.get(name) ?? 0) + 1;
    this.#seen.set(name, times);
    const { line } = this.#source.getLineAndCharacterOfPosition(node.getStart(this.#source));
    const key = times === 1 ? name : `${name} (${times})`;
    return this.number({ file: this.file, line: line + 1, place, change, key });
  }

  /** The node's text with its children written anew. */
  #children(node: ts.Node): string {
    let at = node.getStart(this.#source);
    let text = "";
    ts.forEachChild(node, (child) => {
      if (child.pos === child.end) return;
      text += this.#source.text.slice(at, child.getStart(this.#source)) + this.#write(child);
      at = child.end;
    });
    return text + this.#source.text.slice(at, node.end);
  }

  #write(node: ts.Node): string {
    if (ts.isTypeNode(node)) return this.#raw(node);
    const text = this.#operation(node);
    const isAsked = isConditionOf(node) || answersBoolean(node);
    if (!isAsked || !ts.isExpression(node) || ownsItsNegation(node)) return text;
    return this.#negated(node, text);
  }

  #negated(node: ts.Node, text: string): string {
    const raw = this.#raw(node);
    const opposite = raw === "true" ? "false" : raw === "false" ? "true" : `!(${raw})`;
    const id = this.#flip(node, opposite);
    return id === null ? text : `$n(${id}, ${text})`;
  }

  #operation(node: ts.Node): string {
    if (ts.isBinaryExpression(node)) return this.#binary(node);
    if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken) {
      const id = this.#flip(node, this.#raw(node.operand));
      return id === null ? this.#children(node) : `$n(${id}, ${this.#children(node)})`;
    }
    if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) return this.#step(node);
    if (ts.isPropertyAccessExpression(node)) return this.#method(node);
    if (isEarlyExit(node)) {
      const id = this.#flip(node, "dropped");
      return id === null ? this.#children(node) : `{ if (!$m(${id})) ${this.#children(node)} }`;
    }
    return this.#children(node);
  }

  #binary(node: ts.BinaryExpression): string {
    const operator = this.#raw(node.operatorToken);
    const [left, right] = [this.#raw(node.left), this.#raw(node.right)];
    if (operator === "&&" || operator === "||") return this.#logical(node, operator);
    if (operator === "??") return this.#fallback(node);
    const assignment = ASSIGNMENTS[operator];
    if (assignment !== undefined && !isText(node.right)) {
      const id = this.#flip(node, `${left} ${assignment} ${right}`);
      const text = this.#children(node);
      return id === null ? text : `($m(${id}) ? (${left} ${assignment} ${right}) : (${text}))`;
    }
    const others = EAGER[operator];
    if (others === undefined || operator === "+" && isText(node)) return this.#children(node);
    const cases = others.flatMap((other) => {
      const id = this.#flip(node, `${left} ${other} ${right}`);
      return id === null ? [] : [`${id}, "${other}"`];
    });
    if (cases.length === 0) return this.#children(node);
    const sides = `${this.#write(node.left)}, ${this.#write(node.right)}`;
    return `$b("${operator}", [${cases.join(", ")}], ${sides})`;
  }

  /** The left side is written only once, or long chains would double with each operator. */
  #logical(node: ts.BinaryExpression, operator: "&&" | "||"): string {
    const other = operator === "&&" ? "||" : "&&";
    const id = this.#flip(node, `${this.#raw(node.left)} ${other} ${this.#raw(node.right)}`);
    if (id === null) return this.#children(node);
    const [left, right] = [this.#write(node.left), this.#write(node.right)];
    return `(($t = (${left})), $m(${id}) ? $t ${other} (${right}) : $t ${operator} (${right}))`;
  }

  #fallback(node: ts.BinaryExpression): string {
    const leftOnly = this.#flip(node, this.#raw(node.left));
    const rightOnly = this.#flip(node, this.#raw(node.right));
    const [left, right] = [this.#write(node.left), this.#write(node.right)];
    if (leftOnly === null && rightOnly === null) return `(${left}) ?? (${right})`;
    const withLeft = leftOnly === null
      ? `(${left}) ?? (${right})`
      : `(($t = (${left})), $m(${leftOnly}) ? $t : $t ?? (${right}))`;
    return rightOnly === null ? `(${withLeft})` : `($m(${rightOnly}) ? (${right}) : ${withLeft})`;
  }

  /** Not what counts a loop: that would only run on for ever. */
  #step(node: ts.PrefixUnaryExpression | ts.PostfixUnaryExpression): string {
    const raw = this.#raw(node);
    const isLoop = ts.isForStatement(node.parent) && node.parent.incrementor === node;
    if (isLoop || !/^(\+\+|--)|(\+\+|--)$/.test(raw)) return this.#children(node);
    const other = raw.includes("++") ? raw.replace("++", "--") : raw.replace("--", "++");
    const id = this.#flip(node, other);
    return id === null ? this.#children(node) : `($m(${id}) ? ${other} : ${this.#children(node)})`;
  }

  #method(node: ts.PropertyAccessExpression): string {
    const other = METHODS.get(node.name.text);
    const isCalled = ts.isCallExpression(node.parent) && node.parent.expression === node;
    if (other === undefined || !isCalled) return this.#children(node);
    const id = this.#flip(node, other);
    if (id === null) return this.#children(node);
    const dot = node.questionDotToken === undefined ? "" : "?.";
    return `${this.#write(node.expression)}${dot}[$m(${id}) ? "${other}" : "${node.name.text}"]`;
  }
}

/** All flips of a file, in the order of its text. */
export function findFlips(file: string, text: string): Flip[] {
  const flips: Flip[] = [];
  new FlipWriter(file, text, (flip) => {
    flips.push(flip);
    return null;
  }).write();
  return flips;
}

/**
 * The file's text with the numbered flips in it. It needs `$m`, `$n`, `$b` and `$t` of `test_process.ts` on the global object, and does
 * what the original does while none is on.
 */
export function writeFlips(file: string, text: string, number: Numbering): string {
  return new FlipWriter(file, text, number).write();
}
