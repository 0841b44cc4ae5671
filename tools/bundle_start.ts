/**
 * The code of every start of `kproxy run`, as one file. The bundler makes a file of the code that the same commands share, more than a
 * hundred for a start; the runtime keeps some 25 kB for each, and takes its time to read them.
 *
 * @module
 */
import { replaced, type ReplacedText } from "./bundle_texts.ts";

/** Name of the start file; the entry (`kproxy.js`) and all others import it. */
export const START_FILE = "start.js";

/**
 * Source files that every start imports by `import()`, by name. Their static imports go with them; code of only some starts
 * stays in files of its own.
 */
const STARTED: ReadonlySet<string> = new Set([
  "api_access",
  "event_recorder",
  "kube_client",
  "kube_source",
  "leftovers",
  "run",
  "start",
]);

const STATIC = /\bimport(?:\{([^}]*)\}from)?"\.\/([\w-]+\.js)"/g;
const DYNAMIC = /\bimport\("\.\/([\w-]+\.js)"\)/g;

/** Plan for the files that become one. */
export interface StartPlan {
  readonly files: ReadonlySet<string>;
  /** Text of the module from which the bundler makes the start file. */
  readonly entry: string;
  /** A file's text, with imports of joined files redirected to the start file. */
  readonly redirected: (file: string) => ReplacedText;
  /** The start file's text, where imports that the runtime has to see are visible again. */
  readonly restored: (text: string) => ReplacedText;
}

/** @param texts the bundler's files by name; the program begins in `door`, which stays a file of its own */
export function planStart(texts: ReadonlyMap<string, string>, door: string): StartPlan {
  const files = startFiles(texts, door);
  const exports = new Exports();
  const redirectedTexts = new Map<string, ReplacedText>();
  for (const [file, text] of texts) {
    redirectedTexts.set(file, redirect(text, files.has(file), files, exports));
  }
  const seen = new Set([START_FILE]);
  for (const file of files) for (const [, path = ""] of texts.get(file)!.matchAll(DYNAMIC)) seen.add(path);
  return {
    files,
    entry: [...[...files].map((file) => `import"./${file}";`), ...exports.lines].join("\n"),
    redirected: (file) => redirectedTexts.get(file)!,
    restored: (text) =>
      replaced(
        text,
        /\bimport\(import\.meta\.resolve\("\.\/([\w-]+\.js)"\)\)/g,
        (found, path = "") => seen.has(path) ? `import("./${path}")` : found,
      ),
  };
}

/** Files to join, in their order of execution. */
function startFiles(texts: ReadonlyMap<string, string>, door: string): ReadonlySet<string> {
  const files = new Set<string>();
  const visited = new Set<string>();
  const add = (file: string): void => {
    const text = texts.get(file);
    if (text === undefined || visited.has(file)) return;
    visited.add(file);
    for (const [, , path = ""] of text.matchAll(STATIC)) add(path);
    if (file !== door) files.add(file);
  };
  add(door);
  for (const file of [...texts.keys()].toSorted()) if (STARTED.has(sourceName(file))) add(file);
  return files;
}

/** Source name of `run-GCY5ZTJ7.js`; `""` if it has none. */
function sourceName(file: string): string {
  return /^(\w+)-\w+\.js$/.exec(file)?.[1] ?? "";
}

/** Exports of the start file for other files, under unique names. */
class Exports {
  readonly #names = new Map<string, string>();
  readonly lines: string[] = [];

  /** Name of an export of a joined file. */
  nameOf(file: string, exported: string): string {
    return this.#name(`${exported} ${file}`, (name) => `export{${exported} as ${name}}from"./${file}";`);
  }

  /** Name of all exports of a joined file, as a namespace. */
  allOf(file: string): string {
    return this.#name(`* ${file}`, (name) => `export*as ${name} from"./${file}";`);
  }

  #name(key: string, line: (name: string) => string): string {
    let name = this.#names.get(key);
    if (name === undefined) {
      name = `s${this.#names.size}`;
      this.#names.set(key, name);
      this.lines.push(line(name));
    }
    return name;
  }
}

const ANY_IMPORT = /\bimport(?:\{([^}]*)\}from)?"\.\/([\w-]+\.js)"|\bimport\("\.\/([\w-]+\.js)"\)/g;

function redirect(text: string, isPart: boolean, files: ReadonlySet<string>, exports: Exports): ReplacedText {
  return replaced(text, ANY_IMPORT, (found, names, path, dynamicPath) => {
    if (dynamicPath !== undefined) {
      const isInside = files.has(dynamicPath);
      if (!isInside && !isPart) return found;
      const file = isInside ? START_FILE : dynamicPath;
      // Hidden from the bundler, so that it leaves the import alone.
      const now = isPart ? `import(import.meta.resolve("./${file}"))` : `import("./${file}")`;
      return isInside ? `${now}.then(e=>e.${exports.allOf(dynamicPath)})` : now;
    }
    if (isPart || !files.has(path!)) return found;
    if (names === undefined) return `import"./${START_FILE}"`;
    const renamed = names.split(",").map((each) => {
      const [exported = "", local = exported] = each.split(" as ");
      return `${exports.nameOf(path!, exported)} as ${local}`;
    });
    return `import{${renamed.join(",")}}from"./${START_FILE}"`;
  });
}
