/**
 * Finds manifest files and reads their texts.
 *
 * @module
 */
import { GrowingBytes } from "../../text/bytes.ts";
import type { ManifestFile } from "./manifest_store.ts";

/** The path that stands for standard input. */
export const STDIN_PATH = "-";

/** A `--manifests` path, as found at start. */
export interface ManifestPath {
  readonly path: string;
  readonly kind: "file" | "folder" | "stdin";
}

/**
 * Finds out whether each path is a file, a folder or standard input.
 *
 * @throws {Deno.errors.NotFound} if a path does not exist
 * @throws {TypeError} if it is neither a file nor a folder, or cannot be looked at
 */
export async function classifyPaths(paths: readonly string[]): Promise<ManifestPath[]> {
  const classified: ManifestPath[] = [];
  for (const path of new Set(paths)) {
    if (path === STDIN_PATH) {
      classified.push({ path, kind: "stdin" });
      continue;
    }
    const info = await statAtStart(path);
    if (info === undefined) {
      throw new Deno.errors.NotFound(`Cannot read manifests: no such file or folder: "${path}"`);
    }
    if (info.isDirectory) classified.push({ path: path.replace(/(.)\/+$/, "$1"), kind: "folder" });
    else if (info.isFile) classified.push({ path, kind: "file" });
    else {throw new TypeError(
        `Cannot read manifests: neither a file nor a folder, but ${whatIs(info)}: "${path}"`,
      );}
  }
  return classified;
}

async function statAtStart(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await statOrUndefined(path);
  } catch (cause) {
    throw new TypeError(`Cannot read manifests: ${problemOf(cause)}: "${path}"`, { cause });
  }
}

/** A manifest file that exists now. */
export interface FoundFile extends ManifestFile {
  readonly baseName: string;
  /** Device and inode: the same for every name of one file. */
  readonly inode: string;
  /** Differs if the content may differ. */
  readonly signature: string;
}

/** A file system entry with the name of a manifest that is no readable file. */
export interface BadEntry extends ManifestFile {
  readonly baseName: string;
  /** Why it is not read, e.g. `is a FIFO`. */
  readonly problem: string;
}

/** Result of {@linkcode listFiles}. */
export interface FoundFiles {
  /** In order of precedence, each file once however many paths lead to it. */
  readonly files: readonly FoundFile[];
  /** Entries that are skipped, and must be reported. */
  readonly bad: readonly BadEntry[];
  /** Indices of the paths whose folders no longer exist. */
  readonly gone: readonly number[];
}

/** Lists the files of all paths: `*.yaml *.yml *.json` directly in a folder, without hidden ones, or the file itself. */
export async function listFiles(paths: readonly ManifestPath[]): Promise<FoundFiles> {
  const files: FoundFile[] = [];
  const bad: BadEntry[] = [];
  const gone: number[] = [];
  const inodes = new Set<string>();
  for (const [index, path] of paths.entries()) {
    const found = await listPath(path, orderPrefix(index));
    if (found === undefined) gone.push(index);
    for (const entry of found ?? []) {
      if ("problem" in entry) {
        bad.push(entry);
        continue;
      }
      if (inodes.has(entry.inode)) continue;
      inodes.add(entry.inode);
      files.push(entry);
    }
  }
  return { files, bad, gone };
}

/** Prefix of the `order` of all files of the path with that index. */
export function orderPrefix(index: number): string {
  return `${String(index).padStart(6, "0")}/`;
}

type Entry = FoundFile | BadEntry;

/** The files of one path, sorted by name; undefined if it was a folder and is gone. */
async function listPath({ path, kind }: ManifestPath, prefix: string): Promise<Entry[] | undefined> {
  if (kind === "stdin") return [];
  if (kind === "file") {
    const file = await describeFile(path, prefix);
    return file === undefined ? [] : [file];
  }
  const names: string[] = [];
  try {
    for await (const entry of Deno.readDir(path)) {
      if (/^[^.].*\.(ya?ml|json)$/s.test(entry.name)) names.push(entry.name);
    }
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  const files = await Promise.all(names.map((name) => describeEntry(path, name, `${prefix}${name}`)));
  return files.filter((file) => file !== undefined).sort((one, other) => one.order < other.order ? -1 : 1);
}

/** Describes one entry of a folder. */
async function describeEntry(folder: string, name: string, order: string): Promise<Entry | undefined> {
  const path = `${folder}/${name}`;
  const problem = nameProblem(name);
  if (problem !== null) return { path, order, baseName: name, problem };
  return await describeFile(path, order);
}

/** Why a file is refused by its name: it must stay one word in the log, and lead to the file. */
function nameProblem(name: string): string | null {
  if (/\p{Cc}/u.test(name)) return "has a control character in its name";
  // The character that replaces bytes that are no UTF-8: a path with it leads to no file.
  return name.includes("\uFFFD") ? "has a name that is not UTF-8" : null;
}

async function describeFile(path: string, order: string): Promise<Entry | undefined> {
  const baseName = path.slice(path.lastIndexOf("/") + 1);
  let info: Deno.FileInfo | undefined;
  try {
    info = await statOrUndefined(path);
  } catch (error) {
    return { path, order, baseName, problem: problemOf(error) };
  }
  if (info === undefined) return undefined;
  if (!info.isFile) return { path, order, baseName, problem: `is not a file, but ${whatIs(info)}` };
  if (info.size > MAX_MANIFEST_BYTES) {
    return { path, order, baseName, problem: `is larger than ${MAX_MANIFEST_BYTES / 2 ** 20} MiB` };
  }
  return {
    path,
    order,
    baseName,
    inode: `${info.dev}:${info.ino}`,
    signature: signatureOf(info),
  };
}

/** Type of an entry in words, links followed. */
function whatIs({ isDirectory, isFifo, isSocket }: Deno.FileInfo): string {
  if (isDirectory) return "a folder";
  if (isFifo === true) return "a FIFO";
  return isSocket === true ? "a socket" : "a device";
}

/** Why `stat` fails at a path. */
function problemOf(error: unknown): string {
  if (error instanceof Deno.errors.FilesystemLoop) return "is a link that leads to itself";
  return `cannot be looked at: ${error instanceof Error ? error.message : String(error)}`;
}

/** Stat of a path; undefined if there is no such file, or the link there leads nowhere. */
async function statOrUndefined(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) return undefined;
    throw error;
  }
}

function signatureOf({ dev, ino, size, mtime, ctime }: Deno.FileInfo): string {
  return [dev, ino, size, mtime?.getTime(), ctime?.getTime()].join(":");
}

/**
 * The text of a file, or undefined if it changed while it was read.
 *
 * @throws {TypeError} if it is not UTF-8, or has become something that is no manifest
 */
export async function readStableText(file: FoundFile, checkFile?: FileCheck): Promise<string | undefined> {
  const bytes = await readBounded(file.path, undefined, undefined, checkFile);
  const after = await statOrUndefined(file.path);
  if (after === undefined || signatureOf(after) !== file.signature) return undefined;
  return decodeText(bytes);
}

/** @throws {TypeError} if it is not UTF-8 */
export function decodeText(bytes: Uint8Array<ArrayBuffer>): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new TypeError("is not UTF-8 text", { cause: error });
  }
}

/** Standard input to its end. */
export async function readStdin(stdin: ReadableStream<Uint8Array>, signal?: AbortSignal): Promise<string> {
  const reader = stdin.getReader();
  const cancel = (): void => void reader.cancel();
  signal?.addEventListener("abort", cancel);
  try {
    const bytes = new GrowingBytes();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return decodeText(bytes.view());
      bytes.add(value);
    }
  } finally {
    signal?.removeEventListener("abort", cancel);
    reader.releaseLock();
  }
}

/** Longest manifest file: twice the objects of 44,000 Services. */
const MAX_MANIFEST_BYTES = 128 * 2 ** 20;
const PIECE_BYTES = 2 ** 18;
/** Longest read: one of a file that became a FIFO, or lies on a server that is gone, would not end. */
const TIME_LIMIT_MS = 10_000;

/** Reason why an opened file must not be read; null if it may. */
export type FileCheck = (path: string, opened: Deno.FileInfo) => string | null;

/**
 * The bytes of a regular file. `checkFile` gives the reason why an opened file must not be read; null if it may.
 *
 * @throws {TypeError} if it is something else or longer than `maxBytes`, or reading takes longer than 10 s
 */
export async function readBounded(
  path: string,
  maxBytes: number = MAX_MANIFEST_BYTES,
  limitMs: number = TIME_LIMIT_MS,
  checkFile: FileCheck = () => null,
): Promise<Uint8Array<ArrayBuffer>> {
  const giveUp = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => giveUp.reject(new TypeError(`takes longer than ${limitMs / 1000} s to read`)),
    limitMs,
  );
  const end = new AbortController();
  const reading = read(path, { maxBytes, checkFile }, end.signal);
  try {
    return await Promise.race([reading, giveUp.promise]);
  } finally {
    clearTimeout(timer);
    end.abort();
    // A read that was given up may still fail, which is no news.
    reading.catch(() => null);
  }
}

async function read(
  path: string,
  { maxBytes, checkFile }: { readonly maxBytes: number; readonly checkFile: FileCheck },
  until: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  // Opening a FIFO waits for its writer.
  if (!(await Deno.stat(path)).isFile) throw new TypeError("is not a file");
  using file = await Deno.open(path);
  // The file at the path may have been replaced since it was checked.
  const info = await file.stat();
  if (!info.isFile) throw new TypeError("is not a file");
  const problem = checkFile(path, info);
  if (problem !== null) throw new TypeError(problem);
  const bytes = new GrowingBytes();
  const piece = new Uint8Array(PIECE_BYTES);
  while (!until.aborted) {
    const count = await file.read(piece);
    if (count === null) break;
    bytes.add(piece.subarray(0, count));
    // The file may have grown since its size was checked.
    if (bytes.length > maxBytes) throw new TypeError(`is larger than ${maxBytes / 2 ** 20} MiB`);
  }
  return bytes.view();
}
