/**
 * The import direction of `lib/`: the row of each file, and rules that its imports break. `docs/architecture.md` shows the
 * same table.
 *
 * @module
 */

/** A row of the table: its files may import files of their own row and of earlier ones. */
export interface Layer {
  readonly row: number;
  readonly name: string;
  /** Folders, ending with `/`, and files, relative to the project's folder; a folder includes its subfolders. */
  readonly paths: readonly string[];
}

const MODES: readonly string[] = ["iptables", "ipvs", "nftables", "userspace"];

/** Folders that write to the kernel and prepare nodes: the modes' own, and shared ones. */
const APPLYING: readonly string[] = ["", ...MODES.map((mode) => `${mode}/`)].flatMap((folder) => [
  `lib/backend/${folder}apply/`,
  `lib/backend/${folder}node/`,
]);

/** The rows. If two have a path, the one with the longer folder counts. */
export const LAYERS: readonly Layer[] = [
  { row: 1, name: "model", paths: ["lib/errors.ts", "lib/text/", "lib/model/"] },
  {
    row: 2,
    name: "words",
    paths: ["lib/netfilter/", "lib/config/", "lib/source/"],
  },
  { row: 3, name: "planning", paths: ["lib/backend/", "lib/sim/"] },
  { row: 4, name: "machine", paths: ["lib/kernel/", "lib/observe/"] },
  {
    row: 5,
    name: "applying",
    paths: [...APPLYING, "lib/backend/userspace/forward/", "lib/config/file/"],
  },
  {
    row: 5,
    name: "sources",
    paths: ["lib/source/files/", "lib/source/kube/", "lib/source/snapshot/"],
  },
  { row: 6, name: "running", paths: ["lib/sync/", "lib/serve/"] },
  { row: 7, name: "node", paths: ["lib/node/", "lib/inspect/"] },
  { row: 8, name: "command line", paths: ["lib/cli/"] },
  { row: 9, name: "doors", paths: ["main.ts", "mod.ts", "start.ts"] },
];

/** Rows up to this one decide and never touch the machine, the network, a clock or chance. */
const LAST_PURE_ROW = 3;

/** Row of a file, by its path relative to the project's folder; undefined if the table lacks it. */
export function rowOf(path: string): number | undefined {
  let found: { readonly row: number; readonly length: number } | undefined;
  for (const { row, paths } of LAYERS) {
    for (const place of paths) {
      const holds = place.endsWith("/") ? path.startsWith(place) : path === place;
      if (holds && place.length > (found?.length ?? 0)) found = { row, length: place.length };
    }
  }
  return found?.row;
}

/** True for files that must be pure: rows 1 to 3, except tests. */
export function isPurePath(path: string): boolean {
  const row = rowOf(path);
  return row !== undefined && row <= LAST_PURE_ROW && !isTestPath(path);
}

/** True for tests and benchmarks, which may import and do more than the code they test. */
export function isTestPath(path: string): boolean {
  return /_(test|bench)\.ts$/.test(path);
}

/** The rule that an import of `specifier` in the file `path`, which is in the table, breaks; undefined if none. */
export function importProblem(path: string, specifier: string): string | undefined {
  if (!specifier.startsWith(".")) return undefined;
  const target = new URL(specifier, `file:///${path}`).pathname.slice(1);
  const [row = 0, targetRow] = [rowOf(path), rowOf(target)];
  if (targetRow === undefined) return `imports ${target}, which belongs to no row`;
  if (isTestPath(target)) return `imports the test ${target}`;
  if (targetRow > row) return `of row ${row} imports ${target} of row ${targetRow}`;
  const [mode, otherMode] = [backendOf(path), backendOf(target)];
  if (
    mode !== undefined && otherMode !== undefined && mode !== otherMode && BUILT_ON.get(mode) !== otherMode
  ) {
    return `of backend ${mode} imports ${target} of backend ${otherMode}`;
  }
  return undefined;
}

/** Mode → the mode whose store, transaction and drift check it uses, because its rules are the same objects. */
const BUILT_ON: ReadonlyMap<string, string> = new Map([["userspace", "iptables"], ["ipvs", "iptables"]]);

function backendOf(path: string): string | undefined {
  const folder = /^lib\/backend\/([^/]+)\//.exec(path)?.[1];
  return folder !== undefined && MODES.includes(folder) ? folder : undefined;
}
