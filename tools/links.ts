/**
 * Links of the documentation: which of them lead nowhere. Only links to files of the project are followed.
 *
 * @module
 */

/** A link that leads nowhere. */
export interface BrokenLink {
  /** Relative to the project's folder. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** As it is written. */
  readonly target: string;
  /** `no such file`, `no such heading`. */
  readonly problem: string;
}

/** A link as it stands in a text. */
export interface Link {
  /** From 1. */
  readonly line: number;
  readonly target: string;
}

/** `[text](target)` and `![text](target)`; the text may go over the end of a line, the target may have a title behind it. */
const LINK_REGEXP = /\[[^\]]*\]\(\s*<?([^)\s>]*)>?(?:\s+"[^"]*")?\s*\)/g;
/** `[name]: target`. */
const DEFINITION_REGEXP = /^\[[^\]]+\]:\s+(\S+)/gm;
const FENCE_REGEXP = /^(`{3,}|~{3,}).*?^\1[ \t]*$/gms;
const CODE_REGEXP = /(`+)(?!`)[^]*?(?<!`)\1(?!`)/g;
const COMMENT_REGEXP = /<!--[^]*?-->/g;

/** The links of a Markdown text, without what stands in code or in comments. */
export function linksOf(markdown: string): Link[] {
  const text = withoutCode(markdown);
  const found = [...text.matchAll(LINK_REGEXP), ...text.matchAll(DEFINITION_REGEXP)];
  return found.map(({ index, 1: target = "" }) => ({ line: lineAt(text, index), target }));
}

/** The anchors of a Markdown text's headings, as GitHub makes them. */
export function anchorsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  // Headings may have code, which counts: only whole blocks are left out.
  const text = blank(blank(markdown, FENCE_REGEXP), COMMENT_REGEXP);
  for (const [, heading = ""] of text.matchAll(/^#{1,6}[ \t]+(.*?)[ \t]*#*$/gm)) {
    const anchor = anchorOf(heading);
    let name = anchor;
    for (let count = 1; anchors.has(name); count++) name = `${anchor}-${count}`;
    anchors.add(name);
  }
  return anchors;
}

/**
 * The links that lead nowhere.
 *
 * @param texts the Markdown files, by their path relative to the project's folder
 * @param files all files of the project, likewise; a link to a folder of theirs is good, too
 */
export function brokenLinks(texts: ReadonlyMap<string, string>, files: readonly string[]): BrokenLink[] {
  const places = new Set(["", ...files.flatMap(withFolders)]);
  const anchors = new Map([...texts].map(([file, text]) => [file, anchorsOf(text)]));
  return [...texts].flatMap(([file, text]) =>
    linksOf(text).flatMap(({ line, target }): BrokenLink[] => {
      const problem = problemOf(target, file, { places, anchors });
      return problem === undefined ? [] : [{ file, line, target, problem }];
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

/** The path relative to the project's folder; undefined if it leads out of it. */
function resolved(path: string, from: string): string | undefined {
  const parts = path.startsWith("/") ? [] : from.split("/").slice(0, -1);
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.pop() === undefined) return undefined;
  }
  return parts.join("/");
}

/** A file and all the folders that it is in. */
function withFolders(path: string): string[] {
  const parts = path.split("/");
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** Lower case, no punctuation, hyphens for blanks; links count by their text. */
function anchorOf(heading: string): string {
  return heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}\p{Pc} -]/gu, "").replaceAll(" ", "-");
}

function withoutCode(markdown: string): string {
  return [FENCE_REGEXP, COMMENT_REGEXP, CODE_REGEXP].reduce(blank, markdown);
}

/** Ends of lines stay, so that lines keep their numbers. */
function blank(text: string, pattern: RegExp): string {
  return text.replace(pattern, (found) => found.replace(/[^\n]/g, " "));
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split("\n").length;
}
