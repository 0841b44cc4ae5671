/**
 * Removes what a test has created if the test cannot do it itself: `deno test` ends at an interrupt without any cleanup,
 * and a killed process cannot clean up at all.
 *
 * @module
 */

/**
 * Outlives its parent, whose end it sees as the end of its input. A line before that end says that nothing is left to do.
 * `$0` is the parent's process id, which is in the names of all that its tests create.
 * Servers go first: they hold files in their folders.
 */
const SCRIPT = `
trap '' INT TERM HUP
if read -r line; then exit 0; fi
for folder in "\${TMPDIR:-/tmp}/kproxy-kapi-$0-"*; do
  [ ! -d "$folder" ] || { "$1/stop.sh" "$folder"; rm -rf "$folder"; }
done
for netns in $(ip netns list | cut -d ' ' -f 1 | grep "^kp$0-"); do
  pids=$(ip netns pids "$netns")
  [ -z "$pids" ] || kill -KILL $pids
  ip netns del "$netns"
done
rm -rf "\${TMPDIR:-/tmp}/kproxy-manifests-$0-"* "/tmp/kproxy-kp$0-"*
`;

/** Folder of the program that ends an API server. */
const KAPI_SOURCES = new URL("../lab/kapi", import.meta.url).pathname;

/** A process that guards this one until it is disposed of. */
export class LabGuard implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;

  constructor() {
    this.#child = new Deno.Command("sh", {
      args: ["-c", SCRIPT, String(Deno.pid), KAPI_SOURCES],
      stdin: "piped",
      stdout: "null",
      stderr: "null",
    }).spawn();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const writer = this.#child.stdin.getWriter();
    await writer.write(new TextEncoder().encode("done\n"));
    await writer.close();
    await this.#child.status;
  }
}
