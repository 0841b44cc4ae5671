/**
 * For which machines programs are built.
 *
 * @module
 */

/** One kind of machine. */
export interface Target {
  /** As `deno compile --target` takes it. */
  readonly triple: string;
  /** The program's file. */
  readonly file: string;
}

/**
 * All that `deno compile` knows. A node runs Linux; the others are for users who print, trace and write configurations at a desk.
 * The ends of names are the ones by which kube-proxy's own downloads are called.
 */
export const TARGETS: readonly Target[] = [
  { triple: "x86_64-unknown-linux-gnu", file: "kproxy-linux-amd64" },
  { triple: "aarch64-unknown-linux-gnu", file: "kproxy-linux-arm64" },
  { triple: "x86_64-apple-darwin", file: "kproxy-darwin-amd64" },
  { triple: "aarch64-apple-darwin", file: "kproxy-darwin-arm64" },
  { triple: "x86_64-pc-windows-msvc", file: "kproxy-windows-amd64.exe" },
  { triple: "aarch64-pc-windows-msvc", file: "kproxy-windows-arm64.exe" },
];

/** The one of this machine; undefined if it is none of them. */
export function hostTarget(triple: string = Deno.build.target): Target | undefined {
  return TARGETS.find((target) => target.triple === triple);
}

/**
 * The targets named; all of them for none.
 *
 * @throws {TypeError} for a name that is none
 */
export function namedTargets(triples: readonly string[]): readonly Target[] {
  if (triples.length === 0) return TARGETS;
  return triples.map((triple) => {
    const target = TARGETS.find((one) => one.triple === triple);
    if (target === undefined) {
      throw new TypeError(
        `Unknown target "${triple}": want ${TARGETS.map((one) => one.triple).join(", ")}`,
      );
    }
    return target;
  });
}
