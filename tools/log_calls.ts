/**
 * The warnings and errors that the code may write into the log, read off its source.
 *
 * @module
 */
import ts from "typescript";
import { projectFiles, ROOT } from "./project_files.ts";

/** A call of a logger. */
export interface LogCall {
  /** Relative to the project's folder. */
  readonly file: string;
  readonly severity: "warning" | "error";
  /** As it is written, `…` for what is put in; of a message that is made elsewhere the expression, in parentheses. */
  readonly messages: readonly string[];
}

const SEVERITIES: ReadonlyMap<string, LogCall["severity"]> = new Map([["warn", "warning"], [
  "error",
  "error",
]]);
/** What the code calls a logger. */
const LOGGER = /(?:^|[.#])(?:log|logger)$|^err\.log$/;

/** Every warning and error below `lib`, by file, in the order of the text. */
export async function logCalls(root: string = ROOT): Promise<LogCall[]> {
  const files = (await projectFiles(root)).filter((path) =>
    /^lib\/.*\.ts$/.test(path) && !path.endsWith("_test.ts")
  );
  const texts = await Promise.all(files.map((file) => Deno.readTextFile(`${root}/${file}`)));
  return files.flatMap((file, index) => callsOf(file, texts[index] ?? ""));
}

/** The calls of one file. */
export function callsOf(file: string, text: string): LogCall[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const calls: LogCall[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const severity = SEVERITIES.get(node.expression.name.text);
      const [message] = node.arguments;
      if (
        severity !== undefined && message !== undefined && LOGGER.test(node.expression.expression.getText())
      ) {
        calls.push({ file, severity, messages: messagesOf(message) });
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return calls;
}

function messagesOf(node: ts.Expression): readonly string[] {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return [node.text];
  if (ts.isTemplateExpression(node)) {
    return [node.head.text + node.templateSpans.map(({ literal }) => `…${literal.text}`).join("")];
  }
  if (ts.isConditionalExpression(node)) return [...messagesOf(node.whenTrue), ...messagesOf(node.whenFalse)];
  if (ts.isParenthesizedExpression(node)) return messagesOf(node.expression);
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    return [`${messagesOf(node.left).join("")}${messagesOf(node.right).join("")}`];
  }
  return [`(${node.getText()})`];
}
