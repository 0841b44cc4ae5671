/**
 * Which kernel this is.
 *
 * @module
 */

/** What `uname -r` prints, e.g. `6.1.0-28-amd64`; null where the runtime may not tell (`--allow-sys=osRelease`). */
export function kernelRelease(): string | null {
  const { state } = Deno.permissions.querySync({ name: "sys", kind: "osRelease" });
  return state === "granted" ? Deno.osRelease() : null;
}
