/**
 * What `deploy/Dockerfile` says, as far as the project uses of its language.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";

/** A line, joined with those that go on with it. */
export interface Instruction {
  /** `COPY`. */
  readonly name: string;
  readonly words: readonly string[];
}

/** Files and folders of the project, and where an image has them. */
export interface Copy {
  /** Relative to the project's folder. */
  readonly sources: readonly string[];
  /** Absolute: a file or, where there are several sources or one without a name, their folder. */
  readonly target: string;
}

/** Reads it. */
export async function readInstructions(): Promise<Instruction[]> {
  const text = (await Deno.readTextFile(`${ROOT}/deploy/Dockerfile`)).replace(/^#.*\n/gm, "");
  return text.replaceAll("\\\n", " ").split("\n").filter((line) => line !== "").map((line) => {
    const [name = "", ...words] = line.trim().split(/\s+/);
    return { name, words };
  });
}

/** What it is built on, unless the build is told otherwise: each `FROM`, with the values that `ARG` gives before it. */
export function basesIn(instructions: readonly Instruction[]): string[] {
  const values = new Map<string, string>();
  const bases: string[] = [];
  for (const { name, words: [word = ""] } of instructions) {
    const [key = "", value = ""] = word.split("=", 2);
    if (name === "ARG") values.set(key, value);
    if (name === "FROM") bases.push(word.startsWith("$") ? values.get(word.slice(1)) ?? word : word);
  }
  return bases;
}

/** What is copied from the project. */
export function copiesIn(instructions: readonly Instruction[]): Copy[] {
  let folder = "/";
  const copies: Copy[] = [];
  for (const { name, words } of instructions) {
    if (name === "WORKDIR") folder = words[0] ?? "";
    if (name !== "COPY" || words.some((word) => word.startsWith("--from="))) continue;
    const paths = words.filter((word) => !word.startsWith("--"));
    const target = new URL(paths.at(-1) ?? "", `file://${folder}/`).pathname.replace(/\/$/, "");
    copies.push({ sources: paths.slice(0, -1), target });
  }
  return copies;
}
