/**
 * What to say where the packages that kproxy is made with are neither on the machine nor to be had. Imports nothing, because nothing else
 * can be counted on then.
 *
 * @module
 */

/** Deno's words, for any reason that keeps it from having a package. */
const NOT_CACHED = /^Failed caching npm package '([^']+)'/;
/** Deno's words for the reason, from the outermost to the innermost. */
const REASON = /^\s*\d+: (.+)$/gm;

/**
 * One line for an error of loading modules that says which package is missing, why, and what helps; undefined for every other error.
 *
 * @param root the project's folder
 */
export function missingPackageText(error: unknown, root: string): string | undefined {
  const message = error instanceof Error ? error.message : "";
  const name = NOT_CACHED.exec(message)?.[1];
  if (name === undefined) return undefined;
  const innermost = [...message.matchAll(REASON)].at(-1)?.[1] ?? "";
  const reason = /--cached-only/.test(innermost) ? "nothing may be downloaded at a start" : innermost;
  return `The package ${name}, which deno.json names, is not on this machine and cannot be had${
    reason === "" ? "" : ` (${reason})`
  }: run "deno cache --frozen main.ts start.ts" in ${root} where there is a network, with the same DENO_DIR, or take what ` +
    '"deno task bundle" builds there, which needs neither packages nor a network';
}
