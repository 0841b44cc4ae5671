/**
 * The import direction of `lib/`: which row a file belongs to, and what its imports break. `docs/architecture.md` shows the
 * same table.
 *
 * @module
 */

/** A row of the table: its files import their own row and earlier ones. */
export interface Layer {
  readonly row: number;
  readonly name: string;
  /** Folders, which end with `/`, and files, relative to the project's folder; a folder stands for all below it. */
  readonly paths: readonly string[];
}

const MODES: readonly string[] = ["iptables", "ipvs", "nftables", "userspace"];

/** Folders where kernels are written and nodes prepared: the modes' own, and what modes share. */
const APPLYING: readonly string[] = ["", ...MODES.map((mode) => `${mode}/`)].flatMap((folder) => [
  `lib/backend/${folder}apply/`,
  `lib/backend/${folder}node/`,
]);

/** The rows. Of two that hold a path, the one with the longer folder has it. */
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

/** The row of a file, by its path relative to the project's folder; undefined if the table does not know it. */
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

/** True for files that must be pure: rows 1 to 3, without their tests. */
export function isPurePath(path: string): boolean {
  const row = rowOf(path);
  return row !== undefined && row <= LAST_PURE_ROW && !isTestPath(path);
}

/** True for tests and benchmarks, which may import and do more than what they test. */
export function isTestPath(path: string): boolean {
  return /_(test|bench)\.ts$/.test(path);
}

/** What is wrong with an import of `specifier` in the file of `path`, which is in the table; undefined if nothing is. */
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

/** Mode → the one of which it has the store, the transaction and the drift check, because its rules are the same objects. */
const BUILT_ON: ReadonlyMap<string, string> = new Map([["userspace", "iptables"], ["ipvs", "iptables"]]);

function backendOf(path: string): string | undefined {
  const folder = /^lib\/backend\/([^/]+)\//.exec(path)?.[1];
  return folder !== undefined && MODES.includes(folder) ? folder : undefined;
}
