/**
 * `SHA256SUMS`, as `sha256sum --check` reads it, and the signature over it.
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

/**
 * Signs a file with a key of minisign, beside it, under its name and `.minisig`. `comment` is signed, too: minisign shows it to those who
 * verify, so that an old release cannot pass for a new one.
 *
 * @throws {Error} if minisign is missing, or does not take the key
 */
export async function sign(path: string, key: string, comment: string): Promise<void> {
  const args = ["-S", "-s", key, "-m", path, "-t", comment];
  try {
    // It asks for the key's password.
    const { code } = await new Deno.Command("minisign", { args, stdin: "inherit" }).spawn().status;
    if (code !== 0) throw new Error(`${path} is not signed: minisign ended with ${code}`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Error(`${path} is not signed: minisign is missing (apt-get install minisign)`, {
      cause: error,
    });
  }
}
