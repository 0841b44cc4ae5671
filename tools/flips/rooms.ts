/**
 * Where flips are looked for, and which tests have to notice them.
 *
 * @module
 */

/** Folders of pure code that decides. */
export const ROOMS: readonly string[] = [
  "lib/model",
  ...["iptables", "ipvs", "nftables"].map((mode) => `lib/backend/${mode}/plan`),
  ...["lib/backend/iptables/store", "lib/backend/ipvs/store", "lib/backend/nftables/store"],
];

/** What is copied; the rest of the project is not needed by the tests. */
export const COPIED: readonly string[] = [
  ...[
    "lib",
    "links",
    "tests/flows",
    "tests/golden",
    "tests/support",
    "tools/flips",
    "tests/manifests",
    "tests/cli",
  ],
  ...["deno.json", "deno.lock"],
];

const CASES: readonly string[] = [
  "tests/golden/golden_test.ts",
  "tests/golden/nftables_golden_test.ts",
  "tests/golden/ipvs_golden_test.ts",
  "tests/flows/flows_test.ts",
  "tests/flows/iptables_rules_test.ts",
];

/** The folder of a file. */
export function roomOf(file: string): string {
  return file.slice(0, file.lastIndexOf("/"));
}

/** Test files of a room itself, among the paths of a project. */
export function testsBeside(room: string, paths: readonly string[]): string[] {
  return paths.filter((path) => path.endsWith("_test.ts") && roomOf(path) === room);
}

/** Test files that use the room's code: all of its mode, for the model the rooms of all modes, and the cases of packets and rules. */
export function testsAround(room: string, paths: readonly string[]): string[] {
  const [mode] = /^lib\/backend\/[^/]+/.exec(room) ?? [];
  const parents = mode === undefined ? [room, ...ROOMS, "lib/sync"] : [mode];
  const isAround = (path: string): boolean => parents.some((parent) => path.startsWith(`${parent}/`));
  return [...paths.filter((path) => path.endsWith("_test.ts") && isAround(path)), ...CASES];
}
