/**
 * Files of a bundle that are not read at the start. Deno reads all files that a program may import before it runs the first line, and
 * keeps their text; so imports of what only some commands or clusters need are hidden from it until they run.
 *
 * @module
 */

import { replaced, type ReplacedText } from "./bundle_texts.ts";

/**
 * Source files by name: commands other than `run`, which are loaded at once or never; the modes, of which a node runs one; code for
 * some clusters only (manifests, a snapshot, sign-in with OpenID Connect, SOCKS proxies); the status page and its queries.
 */
const ON_DEMAND: ReadonlySet<string> = new Set([
  "check",
  "cleanup",
  "completion",
  "desired",
  "doctor",
  "file_source",
  "ruleset_snapshot",
  "help",
  "kernel_tables",
  "packet",
  "page_answers",
  "page_files",
  "page_questions",
  "preflight",
  "render",
  "ruleset_simulator",
  "selftest",
  "service",
  "snapshot_source",
  "status",
  "sysdump",
  "tls_transport",
  "trace",
  "trace_report",
  "write_config",
]);

/** A dynamic import as the bundler writes it: `import("./doctor-XVM5HQNM.js")`. */
const IMPORT = /\bimport\(("\.\/(\w+)-\w+\.js")\)/g;

/** True for a file of the bundle that is only read when needed. */
export function isReadOnDemand(file: string): boolean {
  const [, name = ""] = /^(\w+)-\w+\.js$/.exec(file) ?? [];
  return ON_DEMAND.has(name);
}

/** Hides the dynamic imports of one file from Deno. */
export function hideImports(text: string): ReplacedText {
  return replaced(
    text,
    IMPORT,
    (found, path = "", name = "") => ON_DEMAND.has(name) ? `import(import.meta.resolve(${path}))` : found,
  );
}
