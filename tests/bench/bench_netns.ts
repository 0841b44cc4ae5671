/**
 * The network namespaces of a benchmark, and its folder.
 *
 * @module
 */
import { createNetns, type Netns, removeNetns } from "../support/netns.ts";
import { prepareAnswers } from "./answers_process.ts";
import type { BenchMode } from "./mode.ts";

const open = new Set<Netns>();

/** Makes a namespace that goes with `stack`. */
export async function openNetns(stack: AsyncDisposableStack): Promise<Netns> {
  const netns = await createNetns();
  open.add(netns);
  stack.defer(async () => {
    open.delete(netns);
    await removeNetns(netns);
  });
  return netns;
}

/** Runs `work` in a fresh namespace prepared for a mode, whose Services can be asked inside, and removes it whatever happens. */
export async function inBenchNetns<T>(mode: BenchMode, work: (netns: Netns) => Promise<T>): Promise<T> {
  await using stack = new AsyncDisposableStack();
  const netns = await openNetns(stack);
  await mode.prepare(netns);
  await prepareAnswers(netns);
  return await work(netns);
}

/**
 * Works in a temporary folder, of which nothing stays behind. A signal ends the process with status 130, after the folder and all
 * namespaces are removed, with what runs in them.
 */
export async function inBenchFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-" });
  const stop = async (): Promise<void> => {
    for (const netns of open) await removeNetns(netns);
    await Deno.remove(folder, { recursive: true });
    Deno.exit(130);
  };
  const signals = ["SIGINT", "SIGTERM"] as const;
  for (const signal of signals) Deno.addSignalListener(signal, stop);
  try {
    await work(folder);
  } finally {
    for (const signal of signals) Deno.removeSignalListener(signal, stop);
    await Deno.remove(folder, { recursive: true });
  }
}
