/**
 * Finds manifest files and reads their texts.
 *
 * @module
 */
import { within } from "../../kernel/clock.ts";
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

/** A directory entry, of any file type, with the name of a manifest. */
export interface FoundFile extends ManifestFile {
  /** Device and inode: the same for every name of one file. */
  readonly inode: string;
  /** Differs if the content may differ. */
  readonly signature: string;
  /** Why it must not be read, e.g. `is a FIFO`; null if it may be. */
  readonly problem: string | null;
  /** Time of the last change, in milliseconds since the epoch. */
  readonly writtenMs: number;
  /**
   * For content read from this time on (milliseconds since the epoch) every later change alters the signature: the
   * runtime gives the time of a change in whole seconds (Deno 2.9.6).
   */
  readonly settledMs: number;
}

/** Result of {@linkcode listFiles}. */
export interface FoundFiles {
  /** In order of precedence, each file once however many paths lead to it. */
  readonly files: readonly FoundFile[];
  /** Indices of the paths whose folders no longer exist. */
  readonly gone: readonly number[];
  /** Latest change of any file or folder, in milliseconds since the epoch. */
  readonly writtenMs: number;
}

/** Lists the files of all paths: `*.yaml *.yml *.json` directly in a folder, without hidden ones, or the file itself. */
export async function listFiles(paths: readonly ManifestPath[]): Promise<FoundFiles> {
  const files = new Map<string, FoundFile>();
  const gone: number[] = [];
  let writtenMs = 0;
  for (const [index, path] of paths.entries()) {
    if (path.kind === "stdin") continue;
    const folder = await statOrUndefined(path.kind === "folder" ? path.path : parentOf(path.path));
    writtenMs = Math.max(writtenMs, folder?.mtime?.getTime() ?? 0);
    const found = await listPath(path, orderPrefix(index));
    if (found === undefined) gone.push(index);
    for (const file of found ?? []) {
      if (!files.has(file.inode)) files.set(file.inode, file);
      writtenMs = Math.max(writtenMs, file.writtenMs);
    }
  }
  return { files: [...files.values()], gone, writtenMs };
}

function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "." : path.slice(0, slash) || "/";
}

/** Prefix of the `order` of all files of the path with that index. */
export function orderPrefix(index: number): string {
  return `${String(index).padStart(6, "0")}/`;
}

/** The files of one path, sorted by name; undefined if it was a folder and is gone. */
async function listPath({ path, kind }: ManifestPath, prefix: string): Promise<FoundFile[] | undefined> {
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
  const files = await Promise.all(
    names.map((name) => describeFile(`${path}/${name}`, `${prefix}${name}`, nameProblem(name))),
  );
  return files.filter((file) => file !== undefined).sort((one, other) => one.order < other.order ? -1 : 1);
}

/** Why a file is refused by its name: it must stay one word in the log, and lead to the file. */
function nameProblem(name: string): string | null {
  if (/\p{Cc}/u.test(name)) return "has a control character in its name";
  // The character that replaces bytes that are no UTF-8: a path with it leads to no file.
  return name.includes("\uFFFD") ? "has a name that is not UTF-8" : null;
}

/** Describes a file; undefined if there is none. */
async function describeFile(
  path: string,
  order: string,
  badName: string | null = null,
): Promise<FoundFile | undefined> {
  const refused = (problem: string): FoundFile => {
    return { path, order, inode: order, signature: problem, problem, writtenMs: 0, settledMs: 0 };
  };
  if (badName !== null) return refused(badName);
  let info: Deno.FileInfo | undefined;
  try {
    info = await statOrUndefined(path);
  } catch (error) {
    return refused(problemOf(error));
  }
  if (info === undefined) return undefined;
  if (!info.isFile) return refused(`is not a file, but ${whatIs(info)}`);
  if (info.size > MAX_MANIFEST_BYTES) return refused(`is larger than ${MAX_MANIFEST_BYTES / 2 ** 20} MiB`);
  return {
    path,
    order,
    inode: `${info.dev}:${info.ino}`,
    signature: signatureOf(info),
    problem: null,
    writtenMs: info.mtime?.getTime() ?? 0,
    settledMs: (info.ctime?.getTime() ?? 0) + 1_000,
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
  const end = new AbortController();
  try {
    const bytes = await within(read(path, { maxBytes, checkFile }, end.signal), limitMs);
    if (bytes === null) throw new TypeError(`takes longer than ${limitMs / 1000} s to read`);
    return bytes;
  } finally {
    end.abort();
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
