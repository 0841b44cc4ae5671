/**
 * The network namespaces of a benchmark.
 *
 * @module
 */
import { createNetns, type Netns, removeNetns } from "../support/netns.ts";

/** Which programs write the rules. */
export type Variant = "nft" | "legacy";

const open = new Set<Netns>();

/** Runs `work` in a fresh namespace in which kproxy chooses this variant, and removes it whatever happens. */
export async function inVariantNetns<T>(variant: Variant, work: (netns: Netns) => Promise<T>): Promise<T> {
  const netns = await createNetns();
  open.add(netns);
  try {
    // The chain by which kubelet says which variant the node uses.
    if (variant === "legacy") {
      await netns.run(["iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
    }
    return await work(netns);
  } finally {
    open.delete(netns);
    await removeNetns(netns);
  }
}

/** Removes every namespace there is now, with what runs in it: for the way out after a signal. */
export async function removeOpenNetns(): Promise<void> {
  for (const netns of open) await removeNetns(netns);
}
