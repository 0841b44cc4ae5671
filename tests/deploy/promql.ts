/**
 * What a PromQL expression names: metrics with the labels that it asks of them, and labels that it groups by. Whether it is one is
 * for promtool to say.
 *
 * @module
 */

/** What an expression names. */
export interface Names {
  readonly metrics: readonly { readonly name: string; readonly labels: readonly string[] }[];
  /** After `by`, `on` and the like. */
  readonly grouping: readonly string[];
}

const TOKEN_REGEXP = /"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][\w:]*|[\d.]+|[{}(),]|[^\s\w]/g;
const GROUPING = new Set(["by", "without", "on", "ignoring", "group_left", "group_right"]);
const OPERATORS = new Set(["and", "or", "unless", "bool", "offset"]);

/** Reads an expression that promtool takes. */
export function namesOf(expression: string): Names {
  const tokens: readonly string[] = expression.match(TOKEN_REGEXP) ?? [];
  const metrics: { name: string; labels: string[] }[] = [];
  const grouping: string[] = [];
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i] ?? "";
    if (!/^[a-zA-Z_:]/.test(token) || OPERATORS.has(token)) continue;
    if (GROUPING.has(token)) {
      const end = tokens.indexOf(")", i);
      grouping.push(...namesBetween(tokens, i + 1, end));
      i = end;
    } else if (tokens[i + 1] === "{") {
      const end = tokens.indexOf("}", i);
      const inner = tokens.slice(i + 2, end);
      // A name before the sign; the value is one token in quotes.
      metrics.push({ name: token, labels: inner.filter((word) => /^[a-zA-Z_]/.test(word)) });
      i = end;
    } else if (tokens[i + 1] !== "(" && !GROUPING.has(tokens[i + 1] ?? "")) {
      metrics.push({ name: token, labels: [] });
    }
  }
  return { metrics, grouping };
}

function namesBetween(tokens: readonly string[], from: number, to: number): string[] {
  return tokens.slice(from, to).filter((word) => /^[a-zA-Z_]/.test(word));
}
