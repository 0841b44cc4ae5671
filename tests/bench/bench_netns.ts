/**
 * The network namespaces of a benchmark.
 *
 * @module
 */
import { createNetns, type Netns, removeNetns } from "../support/netns.ts";
import { prepareAnswers } from "./answers_process.ts";
import type { BenchMode } from "./mode.ts";

const open = new Set<Netns>();

/** Runs `work` in a fresh namespace prepared for a mode, and removes it whatever happens. */
export async function inBenchNetns<T>(mode: BenchMode, work: (netns: Netns) => Promise<T>): Promise<T> {
  const netns = await createNetns();
  open.add(netns);
  try {
    await mode.prepare(netns);
    return await work(netns);
  } finally {
    open.delete(netns);
    await removeNetns(netns);
  }
}

/** As {@linkcode inBenchNetns}, and Services of the mode can be asked inside. */
export async function inAnsweringNetns<T>(mode: BenchMode, work: (netns: Netns) => Promise<T>): Promise<T> {
  return await inBenchNetns(mode, async (netns) => {
    if (mode.isAnswering) await prepareAnswers(netns);
    return await work(netns);
  });
}

/** Removes every namespace there is now, with what runs in it: for the way out after a signal. */
export async function removeOpenNetns(): Promise<void> {
  for (const netns of open) await removeNetns(netns);
}
