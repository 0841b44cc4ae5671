/**
 * What the whole machine's kernel holds: the kernel does not say whose it is.
 *
 * @module
 */

const KINDS: readonly string[] = ["Slab", "VmallocUsed", "Percpu"];

/** Megabytes (10⁶ bytes) of kernel memory in use. */
export async function kernelMb(): Promise<number> {
  const text = await Deno.readTextFile("/proc/meminfo");
  const kilobytes = KINDS.map((kind) => Number(new RegExp(`^${kind}:\\s+(\\d+) kB`, "m").exec(text)?.[1]));
  return kilobytes.reduce((sum, kb) => sum + kb, 0) * 1024 / 1e6;
}
