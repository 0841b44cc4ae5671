/**
 * Which kproxy this is, from which commit, and which kube-proxy it follows.
 *
 * @module
 */

/** kproxy's own version, as in `deno.json`. */
export const VERSION = "0.1.0";

/** User agent of kproxy at API servers. */
export const USER_AGENT = `kproxy/${VERSION}`;

/** The kube-proxy minor release whose rule text kproxy writes. */
const RULES_LEVEL = "1.30";

/** The kube-proxy minor release whose decisions (hints, pacing, servers, metrics) kproxy makes. */
export const DECISIONS_LEVEL = "1.36";

export interface VersionFacts {
  /** Commit, as `builtFrom` yields it. */
  readonly commit: string;
  readonly deno: string;
  readonly platform: string;
}

/** `kproxy 0.1.0 (…)`: what `kproxy --version` prints. */
export function versionLine(): string {
  return `kproxy ${VERSION} (kube-proxy rules ${RULES_LEVEL}, decisions ${DECISIONS_LEVEL})`;
}

/** Output of `kproxy version`: the version line, the commit, the runtime and the platform. */
export function versionLines({ commit, deno, platform }: VersionFacts): string[] {
  return [versionLine(), `commit ${commit}`, `Deno ${deno} on ${platform}`];
}

/** All parts of the version on one line, for programs: what `--version=raw` and `version -o json` print. */
export function rawVersion({ commit, deno, platform }: VersionFacts): string {
  return JSON.stringify({
    version: VERSION,
    commit,
    rulesLevel: RULES_LEVEL,
    decisionsLevel: DECISIONS_LEVEL,
    denoVersion: deno,
    platform,
  });
}

/** Key of the global object in which a build embeds its commit. */
const EMBEDDED = Symbol.for("kproxy.build");
/** The file with the commit where the sources are installed without their Git repository, as in an image. */
const COMMIT_FILE = "COMMIT";
/** Stands for an unknown commit. */
export const UNKNOWN_COMMIT = "unknown";

const ROOT = new URL("../../", import.meta.url);
const SHA = /^[0-9a-f]{40}(?:[0-9a-f]{24})?$/;
const COMMIT = /^[0-9a-f]{40}(?:[0-9a-f]{24})?(?:-dirty)?$/;

/** The script that a build puts before the program: every {@linkcode builtFrom} then yields `commit`. */
export function embeddedBuild(commit: string): string {
  return `globalThis[Symbol.for("kproxy.build")]=${JSON.stringify({ commit })};\n`;
}

/**
 * The full hash of the commit that was built, with `-dirty` if files were changed beside it. Sources that run as they are say what
 * `COMMIT` in their folder says, or which commit is checked out there. {@linkcode UNKNOWN_COMMIT} if neither says.
 *
 * @param root of the sources, with a slash at the end
 */
export async function builtFrom(root: URL = ROOT): Promise<string> {
  const embedded = (globalThis as { [EMBEDDED]?: { readonly commit: string } })[EMBEDDED];
  if (embedded !== undefined) return embedded.commit;
  const written = (await textOf(new URL(COMMIT_FILE, root)))?.trim() ?? "";
  if (COMMIT.test(written)) return written;
  return await checkedOut(root) ?? UNKNOWN_COMMIT;
}

/** The checked-out commit, read from Git's files, as kproxy may not start `git`. */
async function checkedOut(root: URL): Promise<string | undefined> {
  // In a linked worktree `.git` is a file that names the folder.
  const link = /^gitdir: (.+)$/m.exec(await textOf(new URL(".git", root)) ?? "")?.[1];
  const own = link === undefined ? new URL(".git/", root) : folderAt(link, root);
  const head = (await textOf(new URL("HEAD", own)))?.trim() ?? "";
  if (SHA.test(head)) return head;
  const ref = /^ref: (refs\/\S+)$/.exec(head)?.[1];
  if (ref === undefined) return undefined;
  const common = await textOf(new URL("commondir", own));
  for (const folder of [own, ...(common === undefined ? [] : [folderAt(common.trim(), own)])]) {
    const loose = (await textOf(new URL(ref, folder)))?.trim() ?? "";
    if (SHA.test(loose)) return loose;
    const packed = await textOf(new URL("packed-refs", folder)) ?? "";
    const line = packed.split("\n").find((one) => one.endsWith(` ${ref}`));
    if (line !== undefined) return line.split(" ")[0];
  }
  return undefined;
}

function folderAt(path: string, base: URL): URL {
  return new URL(`${path}/`, base);
}

async function textOf(url: URL): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(url);
  } catch (error) {
    // Not there, a folder, or closed to this user: then the next source may know.
    void error;
    return undefined;
  }
}
