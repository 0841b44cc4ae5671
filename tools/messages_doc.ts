/**
 * Tables of Events and log lines in `docs/messages.md`. Messages are read from the code. Advice is written in the tables
 * themselves: a line of the code that the page lacks is an error, one that only the page has is dropped.
 *
 * @module
 */
import ts from "typescript";
import { markdownTable } from "./markdown_table.ts";
import { projectFiles, ROOT } from "./project_files.ts";

const PAGE = "docs/messages.md";
const CATALOG = "lib/observe/events.ts";

/** An Event that kproxy writes. */
export interface EventRow {
  readonly reason: string;
  readonly type: string;
  /** Kind of its object: `Node` or `Service`. */
  readonly about: string;
  /** Occasion of the Event, from the code's comment. */
  readonly when: string;
}

/** A warning or error in the code. */
interface LogCall {
  /** File, relative to the project's folder. */
  readonly file: string;
  readonly severity: "warning" | "error";
  /** Messages as written, `…` for inserted values; for a message made elsewhere its expression, in parentheses. */
  readonly messages: readonly string[];
}

/** Messages by their expression, if they are made elsewhere. */
const MADE_ELSEWHERE: Readonly<Record<string, string>> = {
  "lib/backend/userspace/node/preflight.ts: (problem)":
    "e.g. `The thread that forwards failed`, `Cannot accept connections`, `Sessions run out, shared out by client`",
  "lib/source/kube/connection_state.ts: (message)":
    "why a request to the API server failed, e.g. `Cannot reach the API server`",
  "lib/cli/commands/start.ts: (warning)": "a setting that has no effect, or that is written in an old way",
  "lib/cli/commands/start.ts: (doubt)":
    "a file that others may write or read, or credentials that go over plain HTTP or to a server that is not verified",
  "lib/cli/commands/start.ts: (sentence)": "what `--write-config-to` left out or changed",
  "lib/node/config_reload.ts: (warning)": "a setting of the changed file that has no effect",
};

const AREAS: readonly (readonly [heading: string, folders: RegExp])[] = [
  ["Rules and the kernel", /^lib\/(?:backend|kernel|sync)\//],
  ["Objects and where they come from", /^lib\/source\/|^lib\/observe\/log\.ts|^lib\/node\/wire_node/],
  ["The node, the configuration, other proxies", /^lib\/(?:node|cli|observe)\//],
  ["Servers", /^lib\/serve\//],
];

/** Events of the catalog, in order. */
export function eventRows(text: string): EventRow[] {
  const source = ts.createSourceFile(CATALOG, text, ts.ScriptTarget.Latest, true);
  return source.statements.flatMap((statement) => {
    if (!ts.isFunctionDeclaration(statement) || statement.name?.text.endsWith("Event") !== true) return [];
    const body = statement.body?.getText() ?? "";
    const [, about = "", reason = ""] = /\babout(Node|Service)\(\s*\w+,\s*"(\w+)"/.exec(body) ?? [];
    const [comment] = ts.getJSDocCommentsAndTags(statement).filter(ts.isJSDoc);
    return [{
      reason,
      type: /type: "Normal"/.test(body) ? "Normal" : "Warning",
      about,
      when: ts.getTextOfJSDocComment(comment?.comment) ?? "",
    }];
  });
}

/** The section `events`. */
export async function eventsMarkdown(): Promise<string> {
  const advice = new Advice(await Deno.readTextFile(`${ROOT}/${PAGE}`));
  const rows = eventRows(await Deno.readTextFile(`${ROOT}/${CATALOG}`)).map((
    { reason, type, about, when },
  ) => [`\`${reason}\``, type, about, when, ...advice.on(`\`${reason}\``, CATALOG)]);
  advice.assertComplete();
  return markdownTable(["Event", "Type", "About", "When", "What to do", "What shows more"], rows);
}

/** The section `log-lines`. */
export async function logLinesMarkdown(): Promise<string> {
  const advice = new Advice(await Deno.readTextFile(`${ROOT}/${PAGE}`));
  const areas = AREAS.map(([heading]) => ({ heading, rows: new Map<string, readonly string[]>() }));
  for (const { file, severity, messages } of await logCalls()) {
    const area = areas[AREAS.findIndex(([, folders]) => folders.test(file))];
    if (area === undefined) throw new RangeError(`${file}: its log lines belong to no area`);
    for (const message of messages) {
      const shown = message.startsWith("(") ? MADE_ELSEWHERE[`${file}: ${message}`] : `\`${message}\``;
      if (shown === undefined) throw new RangeError(`${file}: how does ${message} read?`);
      area.rows.set(shown, [shown, severity, ...advice.on(shown, file)]);
    }
  }
  advice.assertComplete();
  return areas.flatMap(({ heading, rows }) => [
    `### ${heading}\n`,
    `${markdownTable(["Line", "Level", "What to do", "What shows more"], [...rows.values()])}\n`,
  ]).join("\n");
}

/** Last two cells of the page's rows, by the first cell, which only the page has: what to do, and what shows more. */
class Advice {
  readonly #known: ReadonlyMap<string, readonly string[]>;
  readonly #missing: string[] = [];

  constructor(page: string) {
    const rows = page.split("\n").filter((line) => line.startsWith("| ")).map((line) =>
      line.split(/(?<!\\)\|/).slice(1, -1).map((cell) => cell.trim().replaceAll("\\|", "|"))
    );
    this.#known = new Map(rows.map(([first = "", ...others]) => [first, others.slice(-2)]));
  }

  on(shown: string, file: string): readonly string[] {
    const advice = this.#known.get(shown);
    if (advice === undefined || advice[0] === "") this.#missing.push(`${file}: ${shown}`);
    return advice ?? [];
  }

  /** @throws {RangeError} if the page lacks rows for messages */
  assertComplete(): void {
    if (this.#missing.length === 0) return;
    throw new RangeError(`Write a row into ${PAGE} that says what to do: ${this.#missing.join("; ")}`);
  }
}

const SEVERITIES: ReadonlyMap<string, LogCall["severity"]> = new Map([["warn", "warning"], [
  "error",
  "error",
]]);
/** Names of loggers in the code. */
const LOGGER = /(?:^|[.#])(?:log|logger)$|^err\.log$/;

/** Warnings and errors below `lib`, by file, in the order of the text. */
async function logCalls(root: string = ROOT): Promise<LogCall[]> {
  const files = (await projectFiles(root)).filter((path) =>
    /^lib\/.*\.ts$/.test(path) && !path.endsWith("_test.ts")
  );
  const texts = await Promise.all(files.map((file) => Deno.readTextFile(`${root}/${file}`)));
  return files.flatMap((file, index) => callsOf(file, texts[index] ?? ""));
}

/** Warnings and errors of one file. */
function callsOf(file: string, text: string): LogCall[] {
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
