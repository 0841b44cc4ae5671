/**
 * Reads a configuration file.
 *
 * @module
 */
import { ConfigError } from "../errors.ts";
import { parseConfig, type ParsedConfig, type ParseOptions } from "./parse.ts";

/** A configuration file as it was read. */
export interface ConfigFile {
  readonly path: string;
  readonly bytes: Uint8Array;
}

/**
 * Reads a configuration file without looking at its content.
 *
 * @throws {ConfigError} naming the file if it cannot be read
 */
export async function readConfigFile(path: string): Promise<ConfigFile> {
  try {
    return { path, bytes: await Deno.readFile(path) };
  } catch (cause) {
    const message = `cannot read the configuration file: ${reasonOf(cause)}`;
    throw new ConfigError([{ path: "", message }], path, { cause });
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
