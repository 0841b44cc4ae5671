/**
 * A bench's temporary folder.
 *
 * @module
 */
import { removeOpenNetns } from "./bench_netns.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/**
 * Works in a folder of its own, of which nothing stays behind. A signal ends the process with status 130, after what is open
 * and the folder are removed.
 *
 * @param removeOpen removes what the work has open when a signal comes
 */
export async function inBenchFolder(
  work: (folder: string) => Promise<void>,
  removeOpen: () => Promise<void> = removeOpenNetns,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-" });
  const stop = async (): Promise<void> => {
    await removeOpen();
    await Deno.remove(folder, { recursive: true });
    Deno.exit(130);
  };
  for (const signal of SIGNALS) Deno.addSignalListener(signal, stop);
  try {
    await work(folder);
  } finally {
    for (const signal of SIGNALS) Deno.removeSignalListener(signal, stop);
    await Deno.remove(folder, { recursive: true });
  }
}
