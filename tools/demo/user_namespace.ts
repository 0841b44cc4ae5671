/**
 * The demo without root: again, as root of a user namespace of its own, where the kernel lets users make them.
 *
 * @module
 */
import { writeErrorLine, writeLine } from "../output.ts";

const UNSHARE = ["--user", "--map-root-user", "--net", "--mount"];
const SIGNALS = ["SIGHUP", "SIGINT", "SIGTERM"] as const;

/**
 * Runs this program again in a user namespace, and returns its exit status; 2 if this machine does not allow it.
 *
 * @param script the file this program was started with
 */
export async function runInUserNamespace(script: string): Promise<number> {
  const probe = await new Deno.Command("unshare", { args: [...UNSHARE, "true"], stdin: "null" }).output();
  if (!probe.success) {
    const why = new TextDecoder().decode(probe.stderr).trim();
    writeErrorLine("The demo makes network namespaces, which takes root: run it again as root");
    writeErrorLine(`(A user namespace of its own would do too, but: ${why})`);
    return 2;
  }
  writeLine("Not root: everything happens in a user namespace too\n");
  // iproute2 keeps its namespaces in /run, which is not ours to write: it gets one of its own there.
  const inside = 'mount -t tmpfs tmpfs /run && exec "$0" "$@"';
  const child = new Deno.Command("unshare", {
    args: [...UNSHARE, "sh", "-c", inside, Deno.execPath(), "run", "-A", "-q", script],
    stdin: "inherit",
    stdout: "inherit",
    stderr: "inherit",
  }).spawn();
  // unshare and sh become the program itself, so that a signal to the child is one to the demo.
  const handlers = SIGNALS.map((name) => [name, () => child.kill(name)] as const);
  for (const [name, handler] of handlers) Deno.addSignalListener(name, handler);
  try {
    return (await child.status).code;
  } finally {
    for (const [name, handler] of handlers) Deno.removeSignalListener(name, handler);
  }
}
