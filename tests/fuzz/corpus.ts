/**
 * What inputs begin with: texts of the project, the targets' own examples, and what was kept of earlier runs.
 *
 * @module
 */
import { projectFiles, ROOT } from "../../tools/project_files.ts";
import { DOCUMENT_TARGETS } from "./document_targets.ts";
import { type FuzzTarget, type Input, inputOf, type Repeated } from "./target.ts";
import { TOOL_TARGETS } from "./tool_targets.ts";

/** All of them. */
export const TARGETS: readonly FuzzTarget[] = [...DOCUMENT_TARGETS, ...TOOL_TARGETS];

/** An input that broke a law once. */
export interface Find {
  /** What it did. */
  readonly was: string;
  readonly input: Input | Repeated;
}

/** Of one target, in `corpus/NAME.json`. */
export interface Kept {
  readonly finds: readonly Find[];
  /** Each went a way through the parser that none before it did. */
  readonly inputs: readonly Input[];
}

function pathOf(name: string): string {
  return `${ROOT}/tests/fuzz/corpus/${name}.json`;
}

/** Nothing, where nothing was kept. */
export async function readKept(name: string): Promise<Kept> {
  try {
    return JSON.parse(await Deno.readTextFile(pathOf(name)));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return { finds: [], inputs: [] };
    throw error;
  }
}

/** One line for each input, so that changes can be read. */
export async function writeKept(name: string, { finds, inputs }: Kept): Promise<void> {
  const list = (values: readonly unknown[]): string =>
    `[\n${values.map((value) => `    ${ascii(value)}`).join(",\n")}\n  ]`;
  await Deno.writeTextFile(pathOf(name), `{\n  "finds": ${list(finds)},\n  "inputs": ${list(inputs)}\n}\n`);
}

/** No byte of an input shows as a control character in the file. */
function ascii(value: unknown): string {
  return JSON.stringify(value).replace(/[\x7f-\xff]/g, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);
}

/** What inputs of a target are made from. */
export async function corpusOf(
  target: FuzzTarget,
): Promise<{ readonly kept: Kept; readonly inputs: readonly Input[] }> {
  const kept = await readKept(target.name);
  const files = target.files === undefined
    ? []
    : (await projectFiles(ROOT)).filter((path) => target.files!.test(path));
  const texts = await Promise.all(files.map((path) => Deno.readFile(`${ROOT}/${path}`)));
  return { kept, inputs: [...texts, ...target.examples ?? []].map(inputOf).concat(kept.inputs) };
}
