/**
 * Reads a configuration file.
 *
 * @module
 */
import { ConfigError } from "../errors.ts";
import { parseConfig, type ParsedConfig } from "./parse.ts";

/**
 * The configuration in a file.
 *
 * @throws {ConfigError} naming the file if it cannot be read, else with every problem of its content
 */
export async function loadConfig(
  path: string,
  options: { readonly lenient?: boolean } = {},
): Promise<ParsedConfig> {
  let bytes: Uint8Array;
  try {
    bytes = await Deno.readFile(path);
  } catch (cause) {
    const message = `cannot read the configuration file: ${reasonOf(cause)}`;
    throw new ConfigError([{ path: "", message }], path, { cause });
  }
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
