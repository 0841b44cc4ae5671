/**
 * The API of the library as text, one line for each declaration and member, so that a change of the code shows what it does to those
 * who use it. `deno doc --json` knows the declarations; comments and places are left out.
 *
 * @module
 */
import { ROOT } from "./project_files.ts";

/** Where the report is. */
export const API_FILE = "docs/api.txt";

const HEADING =
  "The exports of mod.ts. `deno task docs` writes this file; what changes here changes for users of the library.";

type Json = Readonly<Record<string, unknown>>;

/** The report of what `mod.ts` exports now. */
export async function apiReport(root: string = ROOT): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["doc", "--json", "mod.ts"],
    cwd: root,
    env: { NO_COLOR: "1" },
  }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`deno doc --json mod.ts: ${text.decode(stderr)}`);
  const { nodes } = JSON.parse(text.decode(stdout));
  const modules = Object.values(nodes as Readonly<Record<string, unknown>>).map(objectOf);
  return reportOf(modules.flatMap(({ symbols }) => listOf(symbols)));
}

/**
 * The report of symbols as `deno doc --json` tells them.
 *
 * @throws {TypeError} if one is of a sort that it cannot write
 */
export function reportOf(symbols: readonly Json[]): string {
  const declared = symbols.flatMap(({ name, declarations }) =>
    listOf(declarations).map((declaration) => declarationText(String(name), declaration))
  );
  return `${HEADING}\n\n${declared.sort().join("\n")}`;
}

function declarationText(name: string, { kind, def: given }: Json): string {
  const def = objectOf(given);
  switch (kind) {
    case "function":
      return `function ${name}${signature(def)}\n`;
    case "variable":
      return `const ${name}: ${optionalType(def.tsType)}\n`;
    case "typeAlias":
      return `type ${name}${typeParameters(def)} = ${optionalType(def.tsType)}\n`;
    case "interface":
    case "class":
      return `${kind} ${name}${typeParameters(def)}${heritage(def)}\n${members(def).join("")}`;
    default:
      throw new TypeError(`${name}: cannot write a declaration of kind ${kind}`);
  }
}

function heritage(def: Json): string {
  const texts = (value: unknown): string[] =>
    value === undefined ? [] : Array.isArray(value) ? value.map(typeText) : [String(value)];
  const bases = texts(def.extends);
  const contracts = texts(def.implements);
  return (bases.length > 0 ? ` extends ${bases.join(", ")}` : "") +
    (contracts.length > 0 ? ` implements ${contracts.join(", ")}` : "");
}

function members(def: Json): string[] {
  const lines = [
    ...listOf(def.constructors).map((one) => `constructor(${parameters(one)})`),
    ...listOf(def.properties).filter(isPublic).map(propertyText),
    ...listOf(def.methods).filter(isPublic).map(methodText),
  ];
  return lines.map((line) => `  ${line}\n`);
}

function isPublic({ accessibility }: Json): boolean {
  return accessibility !== "private";
}

function propertyText({ name, readonly, isStatic, optional, tsType }: Json): string {
  const before = `${isStatic === true ? "static " : ""}${readonly === true ? "readonly " : ""}`;
  return `${before}${name}${optional === true ? "?" : ""}: ${optionalType(tsType)}`;
}

/** Of a class (with `functionDef`) or an interface. */
function methodText(method: Json): string {
  const def = method.functionDef === undefined ? method : objectOf(method.functionDef);
  const before = `${method.isStatic === true ? "static " : ""}${method.kind === "getter" ? "get " : ""}`;
  return `${before}${method.name}${method.optional === true ? "?" : ""}${signature(def)}`;
}

function signature(def: Json): string {
  return `${typeParameters(def)}(${parameters(def)}): ${optionalType(def.returnType)}`;
}

function parameters(def: Json): string {
  return listOf(def.params).map(parameterText).join(", ");
}

function parameterText(parameter: Json): string {
  switch (parameter.kind) {
    case "identifier":
      return `${parameter.name}${parameter.optional === true ? "?" : ""}: ${optionalType(parameter.tsType)}`;
    case "assign": {
      // With a default, so that callers may leave it out.
      return parameterText({ ...objectOf(parameter.left), optional: true });
    }
    case "object":
      return `{ … }${parameter.optional === true ? "?" : ""}: ${optionalType(parameter.tsType)}`;
    case "rest":
      return `...${parameterText(objectOf(parameter.arg))}`;
    default:
      throw new TypeError(`cannot write a parameter of kind ${parameter.kind}`);
  }
}

function typeParameters({ typeParams }: Json): string {
  const texts = listOf(typeParams).map(({ name, constraint, default: usual }) =>
    `${name}${constraint === undefined ? "" : ` extends ${typeText(constraint)}`}` +
    (usual === undefined ? "" : ` = ${typeText(usual)}`)
  );
  return texts.length === 0 ? "" : `<${texts.join(", ")}>`;
}

function optionalType(type: unknown): string {
  return type === undefined || type === null ? "(inferred)" : typeText(type);
}

function typeText(given: unknown): string {
  const { kind, value, repr } = objectOf(given);
  switch (kind) {
    case "keyword":
      return String(value);
    case "literal":
      return literalText(objectOf(value), String(repr));
    case "typeRef":
      return referenceText(objectOf(value));
    case "typeQuery":
      return `typeof ${value}`;
    case "array":
      return `${withParentheses(value)}[]`;
    case "union":
      return typesText(value).join(" | ");
    case "intersection":
      return typesText(value).join(" & ");
    case "tuple":
      return `[${typesText(value).join(", ")}]`;
    case "parenthesized":
      return `(${typeText(value)})`;
    case "typeOperator": {
      const { operator, tsType } = objectOf(value);
      return `${operator} ${typeText(tsType)}`;
    }
    case "indexedAccess": {
      const { objType, indexType } = objectOf(value);
      return `${typeText(objType)}[${typeText(indexType)}]`;
    }
    case "fnOrConstructor": {
      const def = objectOf(value);
      return `(${parameters(def)}) => ${optionalType(def.tsType)}`;
    }
    case "typeLiteral": {
      const def = objectOf(value);
      const inside = [...listOf(def.properties).map(propertyText), ...listOf(def.methods).map(methodText)];
      return `{ ${inside.join("; ")} }`;
    }
    default:
      throw new TypeError(`cannot write a type of kind ${kind}`);
  }
}

function referenceText({ typeName, typeParams }: Json): string {
  const given = typesText(typeParams ?? []);
  return `${typeName}${given.length === 0 ? "" : `<${given.join(", ")}>`}`;
}

function literalText({ kind }: Json, repr: string): string {
  return kind === "string" ? JSON.stringify(repr) : repr;
}

function withParentheses(type: unknown): string {
  const text = typeText(type);
  return ["union", "intersection", "fnOrConstructor", "typeOperator"].includes(String(objectOf(type).kind))
    ? `(${text})`
    : text;
}

function typesText(types: unknown): string[] {
  return listOf(types).map(typeText);
}

function objectOf(value: unknown): Json {
  if (typeof value !== "object" || value === null) throw new TypeError(`${value} is no object`);
  return value as Json;
}

function listOf(value: unknown): readonly Json[] {
  return value === undefined ? [] : (value as readonly unknown[]).map(objectOf);
}
