/**
 * Reads Markdown: links and whether they are broken, anchors, and code. Only links to files of the project are followed.
 *
 * @module
 */
import GithubSlugger from "github-slugger";
import { lexer, type Token, walkTokens } from "marked";

/** A broken link. */
export interface BrokenLink {
  /** File with the link, relative to the project's folder. */
  readonly file: string;
  /** The target as written. */
  readonly target: string;
  /** E.g. `no such file`, `no such heading`. */
  readonly problem: string;
}

function tokensOf(markdown: string): Token[] {
  const tokens: Token[] = [];
  walkTokens(lexer(markdown), (token) => void tokens.push(token));
  return tokens;
}

/** Targets of links, pictures and definitions in a Markdown text. */
export function linksOf(markdown: string): string[] {
  return tokensOf(markdown).flatMap((token) =>
    token.type === "link" || token.type === "image" || token.type === "def" ? [String(token.href)] : []
  );
}

/** Anchors of a Markdown text's headings, as GitHub makes them. */
export function anchorsOf(markdown: string): Set<string> {
  const slugger = new GithubSlugger();
  return new Set(
    tokensOf(markdown).flatMap((token) =>
      token.type === "heading" ? [slugger.slug(plainText(token.tokens ?? []))] : []
    ),
  );
}

/** Code spans, and lines of code blocks, joined at backslashes. */
export function codeOf(markdown: string): string[] {
  return tokensOf(markdown).flatMap((token) => {
    if (token.type === "codespan") return [token.text.replaceAll(/\s+/g, " ")];
    if (token.type !== "code" || token.codeBlockStyle === "indented") return [];
    return token.text.replaceAll("\\\n", " ").split("\n");
  });
}

function plainText(tokens: readonly Token[]): string {
  return tokens.map((token) =>
    "tokens" in token && token.tokens !== undefined
      ? plainText(token.tokens)
      : "text" in token
      ? token.text
      : ""
  ).join("");
}

/**
 * The broken links of Markdown files.
 *
 * @param texts the Markdown files, by their path relative to the project's folder
 * @param files all files of the project, likewise; links to their folders are valid, too
 */
export function brokenLinks(texts: ReadonlyMap<string, string>, files: readonly string[]): BrokenLink[] {
  const places = new Set(["", ...files.flatMap(withFolders)]);
  const anchors = new Map([...texts].map(([file, text]) => [file, anchorsOf(text)]));
  return [...texts].flatMap(([file, text]) =>
    linksOf(text).flatMap((target): BrokenLink[] => {
      const problem = problemOf(target, file, { places, anchors });
      return problem === undefined ? [] : [{ file, target, problem }];
    })
  );
}

interface Places {
  readonly places: ReadonlySet<string>;
  readonly anchors: ReadonlyMap<string, ReadonlySet<string>>;
}

function problemOf(target: string, file: string, { places, anchors }: Places): string | undefined {
  if (/^[a-z][a-z+.-]*:/i.test(target)) return undefined;
  const [path = "", anchor] = target.split("#", 2);
  const place = path === "" ? file : resolved(path, file);
  if (place === undefined || !places.has(place)) return "no such file";
  if (anchor !== undefined && !anchors.get(place)?.has(decodeURIComponent(anchor))) return "no such heading";
  return undefined;
}

/** Path relative to the project's folder; undefined outside of it. */
function resolved(path: string, from: string): string | undefined {
  const parts = path.startsWith("/") ? [] : from.split("/").slice(0, -1);
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.pop() === undefined) return undefined;
  }
  return parts.join("/");
}

/** A file and all folders above it. */
function withFolders(path: string): string[] {
  const parts = path.split("/");
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}
