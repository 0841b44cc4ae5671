/**
 * `SHA256SUMS`, as `sha256sum --check` reads it.
 *
 * @module
 */
import { createHash } from "node:crypto";

/** One line for each of the files, sorted. `paths` are relative to the folder. */
export async function checksums(folder: string, paths: readonly string[]): Promise<string> {
  const lines: string[] = [];
  for (const path of paths.toSorted()) lines.push(`${await sha256(`${folder}/${path}`)}  ${path}\n`);
  return lines.join("");
}

/** In hexadecimal digits. A program of 100 MB is read in parts. */
async function sha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  using file = await Deno.open(path);
  for await (const part of file.readable) hash.update(part);
  return hash.digest("hex");
}
