/**
 * What loading a module costs: `deno run -A --v8-flags=--expose-gc tools/load_cost.ts MODULE`. Memory after a collection of all
 * garbage, of a program that has loaded Node's network modules before.
 *
 * @module
 */
import { writeLine } from "./output.ts";

/** Resident memory in MB, as the kernel counts it: all, and what is no file. */
async function memory(): Promise<string> {
  for (let times = 0; times < 2; times++) (globalThis as { gc?: () => void }).gc?.();
  const status = await Deno.readTextFile("/proc/self/status");
  const megabytes = (name: string): string =>
    (Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024).toFixed(1);
  return `${megabytes("VmRSS")} MB resident, ${megabytes("RssAnon")} MB of it anonymous`;
}

if (import.meta.main) {
  const [specifier = ""] = Deno.args;
  await import("node:tls");
  await import("node:http");
  writeLine(`before: ${await memory()}`);
  const startMs = performance.now();
  await import(specifier);
  writeLine(`loaded in ${Math.round(performance.now() - startMs)} ms`);
  writeLine(`after:  ${await memory()}`);
}
