/**
 * Which kproxy this is, and which kube-proxy it follows.
 *
 * @module
 */

/** kproxy's own version, as in `deno.json`. */
export const VERSION = "0.1.0";

/** By what name kproxy asks API servers. */
export const USER_AGENT = `kproxy/${VERSION}`;

/** The kube-proxy minor release whose rule text kproxy writes. */
const RULES_LEVEL = "1.30";

/** The kube-proxy minor release whose decisions (hints, pacing, servers, metrics) kproxy makes. */
export const DECISIONS_LEVEL = "1.36";

/** What a version is told with. */
export interface VersionFacts {
  /** As `builtFrom` yields it. */
  readonly commit: string;
  readonly deno: string;
  /** `linux/x86_64`. */
  readonly platform: string;
}

/** `kproxy 0.1.0 (…)`: what `kproxy --version` prints. */
export function versionLine(): string {
  return `kproxy ${VERSION} (kube-proxy rules ${RULES_LEVEL}, decisions ${DECISIONS_LEVEL})`;
}

/** What `kproxy version` prints: the line, and what this one is made from and runs on. */
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
