/**
 * Which files of a bundle are read at the start. Deno reads whatever a program may import before it runs the first line, and keeps the
 * text; what only some commands or clusters need is imported in a way that it does not see until the line is run.
 *
 * @module
 */

import { replaced, type ReplacedText } from "./bundle_texts.ts";

/**
 * By the names of their source: commands other than `run`, which load at once or never; the modes, of which a node runs one; what only
 * some clusters need (manifests, a snapshot, the sign-in with OpenID Connect, SOCKS proxies); the status page and what it can be asked.
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

/** `import("./doctor-XVM5HQNM.js")`, as the bundler writes it. */
const IMPORT = /\bimport\(("\.\/(\w+)-\w+\.js")\)/g;

/** True for a file of the bundle that is read only where it is needed. */
export function isReadOnDemand(file: string): boolean {
  const [, name = ""] = /^(\w+)-\w+\.js$/.exec(file) ?? [];
  return ON_DEMAND.has(name);
}

/** Rewrites the imports of one file. */
export function hideImports(text: string): ReplacedText {
  return replaced(
    text,
    IMPORT,
    (found, path = "", name = "") => ON_DEMAND.has(name) ? `import(import.meta.resolve(${path}))` : found,
  );
}
