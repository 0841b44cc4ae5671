/**
 * The network namespaces of a benchmark.
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

/** Removes every namespace there is now, with what runs in it: for the way out after a signal. */
export async function removeOpenNetns(): Promise<void> {
  for (const netns of open) await removeNetns(netns);
}
