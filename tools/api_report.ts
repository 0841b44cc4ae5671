/**
 * The library's API as TypeScript declarations without comments, so that a change of the code shows its effect on users
 * of the library.
 *
 * @module
 */
import ts from "typescript";
import { ROOT } from "./project_files.ts";

/** File of the report. */
export const API_FILE = "docs/api.txt";

const HEADING =
  "The exports of mod.ts. `deno task docs` writes this file; what changes here changes for users of the library.";

/** The report of `mod.ts`' exports, by kind and name. @throws {RangeError} if a file lacks what `mod.ts` exports from it */
export async function apiReport(root: string = ROOT): Promise<string> {
  const found: string[] = [];
  for (const statement of parsed(await Deno.readTextFile(`${root}/mod.ts`)).statements) {
    if (!ts.isExportDeclaration(statement) || !statement.exportClause || !statement.moduleSpecifier) continue;
    if (!ts.isNamedExports(statement.exportClause)) throw new RangeError("mod.ts exports by name only");
    const file = (statement.moduleSpecifier as ts.StringLiteral).text;
    const declared = declarations(await Deno.readTextFile(`${root}/${file}`));
    for (const { name, propertyName } of statement.exportClause.elements) {
      const text = declared.get((propertyName ?? name).text);
      if (text === undefined) throw new RangeError(`${file} does not declare ${name.text}`);
      found.push(text);
    }
  }
  return `${HEADING}\n\n${found.sort().join("\n\n")}\n`;
}

function parsed(text: string): ts.SourceFile {
  return ts.createSourceFile("x.ts", text, ts.ScriptTarget.Latest, true);
}

/** Exported declarations of a file, by name. All have explicit types, which JSR requires, too. */
function declarations(text: string): Map<string, string> {
  const { outputText } = ts.transpileDeclaration(text, { compilerOptions: { removeComments: true } });
  const texts = new Map<string, string>();
  for (const statement of parsed(outputText).statements) {
    const [declared] = ts.isVariableStatement(statement)
      ? statement.declarationList.declarations
      : [statement];
    const { name } = declared as ts.DeclarationStatement;
    if (name === undefined) continue;
    const lines = statement.getText().replace(/^export (?:declare )?/, "").split("\n")
      .filter((line) => !/^\s+(?:#private|private )/.test(line));
    texts.set(
      name.text,
      [texts.get(name.text), lines.join("\n")].filter((one) => one !== undefined).join("\n"),
    );
  }
  return texts;
}
