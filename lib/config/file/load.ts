/**
 * Reads a configuration file.
 *
 * @module
 */
import { ConfigError } from "../../errors.ts";
import { parseConfig, type ParsedConfig, type ParseOptions } from "../parse.ts";

/** A configuration file as it was read. */
export interface ConfigFile {
  readonly path: string;
  readonly bytes: Uint8Array;
}

/** How long a pipe may take until it was read to its end. */
const PIPE_LIMIT_MS = 30_000;
/** More than any configuration has: a device may never end. */
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * Reads a configuration file without looking at its content. It may be a pipe that is written and closed.
 *
 * @throws {ConfigError} naming the file if it cannot be read
 */
export async function readConfigFile(path: string, pipeLimitMs = PIPE_LIMIT_MS): Promise<ConfigFile> {
  try {
    return { path, bytes: await readSettings(path, pipeLimitMs) };
  } catch (cause) {
    const message = `cannot read the configuration file: ${reasonOf(cause)}`;
    throw new ConfigError([{ path: "", message }], path, { cause });
  }
}

/**
 * The bytes of a file of the configuration: at most 4 MiB. It may be a pipe that is written and closed.
 *
 * @throws {Error} if it is longer or cannot be read
 */
export async function readSettings(path: string, pipeLimitMs = PIPE_LIMIT_MS): Promise<Uint8Array> {
  const { isFile, isDirectory, size } = await Deno.stat(path);
  if (!isFile && !isDirectory) return await readStream(path, pipeLimitMs);
  if (isFile && size > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES} bytes`);
  return await Deno.readFile(path);
}

/** Reads a pipe or a device to its end, which may be far or never come. */
async function readStream(path: string, limitMs: number): Promise<Uint8Array> {
  const end = new AbortController();
  const reading = readToEnd(path, end.signal);
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    end.abort();
    late.reject(new Error(`it is a pipe that was not written and closed within ${limitMs / 1000} s`));
    void letGo(path);
  }, limitMs);
  try {
    return await Promise.race([reading, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function readToEnd(path: string, signal: AbortSignal): Promise<Uint8Array> {
  using file = await Deno.open(path);
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of file.readable) {
    length += chunk.length;
    if (length > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES} bytes`);
    if (signal.aborted) break;
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks as BlobPart[]).arrayBuffer());
}

/** Ends the wait for a pipe's writer, which has no end by itself: opens and closes the pipe as a writer. */
async function letGo(path: string): Promise<void> {
  try {
    (await Deno.open(path, { read: true, write: true })).close();
  } catch (error) {
    // The file may not be writable: then the wait ends with the process.
    if (!(error instanceof Error)) throw error;
  }
}

/**
 * The configuration in a file that was read.
 *
 * @throws {ConfigError} with every problem of its content
 */
export function parseConfigFile(
  { path, bytes }: ConfigFile,
  options: Omit<ParseOptions, "file"> = {},
): ParsedConfig {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new ConfigError([{ path: "", message: "the file is not UTF-8 text" }], path, { cause });
  }
  return parseConfig(text, { file: path, ...options });
}

function reasonOf(error: unknown): string {
  if (error instanceof Deno.errors.NotFound) return "there is no such file";
  if (error instanceof Deno.errors.IsADirectory) return "it is a folder";
  if (error instanceof Deno.errors.PermissionDenied) return "permission denied";
  return error instanceof Error ? error.message : String(error);
}
