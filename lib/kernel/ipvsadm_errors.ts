/**
 * Which lines of `ipvsadm -R` the kernel refuses. The program goes on behind such a line, and what it says does not name it; so the
 * lines are carried out once more, each with one behind it that fails with words of its own.
 *
 * @module
 */
import { type VirtualServerName, virtualServerOption } from "../netfilter/ipvs.ts";
import type { ExecResult } from "./exec.ts";
import type { RefusedLine } from "./refused_line.ts";

/** Of a network for documentation, where no server is. */
const NO_SERVER: VirtualServerName = { address: "198.51.100.0", protocol: "TCP", port: 20_000 };
/** Always fails, with words that no line which adds or changes something can bring about, and changes nothing. */
const MARK_LINE = `-Z ${virtualServerOption(NO_SERVER)}`;
const MARK = "No such service";
const EXISTS_REGEXP = /already exists/;
const NO_VIRTUAL_SERVER_REGEXP = /Service not defined/;
/** Of a line which the program itself does not take: it ends there, and does not read on. */
const UNREADABLE_CODES: readonly number[] = [2, 255];

/** What came of it. */
export interface LineErrors {
  /** Without real servers whose virtual server is refused. */
  readonly refused: readonly RefusedLine[];
  /** Index of the line at which the program ended, so that those behind it were not carried out; null: it read all. */
  readonly end: number | null;
}

/** Lines once more, from the `first` on, so that what the program says tells which of them fail. */
export class MarkedLines {
  readonly #tried: readonly { readonly line: string; readonly index: number }[];

  /** What only goes is left out: where that fails, no line is refused. */
  constructor(lines: readonly string[], first: number) {
    this.#tried = lines.flatMap((line, index) =>
      index < first || /^-[Dd] /.test(line) ? [] : [{ line, index }]
    );
  }

  get text(): readonly string[] {
    return this.#tried.flatMap(({ line }) => [line, MARK_LINE]);
  }

  /**
   * @param failed what came of the lines alone
   * @param marked what came of {@linkcode text}
   * @returns null if the lines are not to blame: others changed the table, or what failed does not fail any more
   */
  errors(failed: ExecResult, marked: ExecResult): LineErrors | null {
    const groups = saidBetweenMarks(marked.stderr);
    // Behind the last mark there is nothing, unless the program ended at a line that it cannot read.
    const rest = groups.at(-1) ?? [];
    const end = rest.length === 0 ? null : this.#tried[groups.length - 1]?.index ?? null;
    const isWhole = end === null
      ? groups.length === this.#tried.length + 1
      : UNREADABLE_CODES.includes(marked.code);
    const said = this.#tried.flatMap((tried, at) => {
      const words = groups[at] ?? [];
      return words.length === 0 || EXISTS_REGEXP.test(words[0] ?? "") ? [] : [{ ...tried, words }];
    });
    const before = linesOf(failed.stderr).join("\n");
    if (!isWhole || said.length === 0 || said.flatMap(({ words }) => words).join("\n") !== before) {
      return null;
    }
    const missing = new Set(said.flatMap(({ line }) => line.startsWith("-A ") ? [serverOf(line)] : []));
    const refused: RefusedLine[] = [];
    for (const { line, index, words: [problem = ""] } of said) {
      if (!NO_VIRTUAL_SERVER_REGEXP.test(problem)) refused.push({ index, problem });
      else if (!missing.has(serverOf(line))) return null;
    }
    return { refused, end };
  }
}

/** What the program said before each mark, and after the last one. */
function saidBetweenMarks(stderr: string): readonly string[][] {
  const groups: string[][] = [[]];
  for (const line of linesOf(stderr)) {
    if (line === MARK) groups.push([]);
    else groups.at(-1)?.push(line);
  }
  return groups;
}

function linesOf(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

/** Protocol and address of a line's virtual server. */
function serverOf(line: string): string {
  return line.split(" ", 3).slice(1).join(" ");
}
