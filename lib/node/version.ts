/**
 * Which kproxy this is, and which kube-proxy it follows.
 *
 * @module
 */

/** kproxy's own version, as in `deno.json`. */
export const VERSION = "0.1.0";

/** The kube-proxy minor release whose rule text kproxy writes. */
const RULES_LEVEL = "1.30";

/** The kube-proxy minor release whose decisions (hints, pacing, servers, metrics) kproxy makes. */
export const DECISIONS_LEVEL = "1.36";

/** `kproxy 0.1.0 (…)`: what `kproxy version` prints. */
export function versionLine(): string {
  return `kproxy ${VERSION} (kube-proxy rules ${RULES_LEVEL}, decisions ${DECISIONS_LEVEL})`;
}

/** All parts of the version on one line, for programs: what `--version=raw` prints. */
export function rawVersion(runtime: { readonly deno: string; readonly platform: string }): string {
  return JSON.stringify({
    version: VERSION,
    rulesLevel: RULES_LEVEL,
    decisionsLevel: DECISIONS_LEVEL,
    denoVersion: runtime.deno,
    platform: runtime.platform,
  });
}
