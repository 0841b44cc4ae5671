/**
 * Which files of a bundle are read at the start. Deno reads whatever a program may import before it runs the first line, and keeps the
 * text; what only some commands or clusters need is imported in a way that it does not see until the line is run.
 *
 * @module
 */

/**
 * By the names of their source: commands other than `run`, which load at once or never; the modes, of which a node runs one; what only
 * some clusters need (manifests, a snapshot, the sign-in with OpenID Connect, SOCKS proxies); the status page and what it can be asked.
 */
const ON_DEMAND: ReadonlySet<string> = new Set([
  "build",
  "check",
  "cleanup",
  "completion",
  "desired",
  "doctor",
  "files",
  "help",
  "kernel_tables",
  "kube_oidc_issuer",
  "kube_tunnel",
  "oidc_auth",
  "packet",
  "page_answers",
  "page_files",
  "page_questions",
  "proxier",
  "render",
  "selftest",
  "service",
  "simulate",
  "snapshot_source",
  "status",
  "sysdump",
  "trace",
  "trace_json",
  "write_config",
]);

/** `import("./doctor-XVM5HQNM.js")`, as the bundler writes it. */
const IMPORT = /\bimport\(("\.\/(\w+)-\w+\.js")\)/g;

/** True for a file of the bundle that is read only where it is needed. */
export function isReadOnDemand(file: string): boolean {
  const [, name = ""] = /^(\w+)-\w+\.js$/.exec(file) ?? [];
  return ON_DEMAND.has(name);
}

/** A file whose imports on demand are not seen. */
export interface HiddenImports {
  readonly text: string;
  /** Where a column of a line (both from 0 on) of the former text is now. */
  readonly columnNow: (line: number, column: number) => number;
}

/** Rewrites the imports of one file, line by line. */
export function hideImports(text: string): HiddenImports {
  const added: (readonly [column: number, length: number])[][] = [];
  const lines = text.split("\n").map((line, index) => {
    const grown: (readonly [number, number])[] = added[index] = [];
    return line.replace(IMPORT, (found: string, path: string, name: string, column: number) => {
      if (!ON_DEMAND.has(name)) return found;
      const hidden = `import(import.meta.resolve(${path}))`;
      grown.push([column, hidden.length - found.length]);
      return hidden;
    });
  });
  return {
    text: lines.join("\n"),
    columnNow: (line, column) =>
      (added[line] ?? []).reduce((now, [at, length]) => at < column ? now + length : now, column),
  };
}
