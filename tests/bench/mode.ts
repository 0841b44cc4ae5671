/**
 * What differs between proxy modes when they are measured.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import type { ClusterSize } from "./fake_objects.ts";
import type { KernelWatch } from "./kernel_watch.ts";
import type { RecordedRun } from "./recorded_programs.ts";

/** A mode that can be measured. */
export interface BenchMode {
  readonly proxyMode: "iptables" | "nftables";
  /** For the report, e.g. `iptables (nft)`. */
  readonly title: string;
  /** Makes a fresh namespace one in which kproxy runs this mode as wanted. */
  readonly prepare: (netns: Netns) => Promise<void>;
  /** Of all programs of a start, those that write IPv4's rules. */
  readonly fullSync: (start: readonly RecordedRun[]) => readonly RecordedRun[];
  readonly openWatch: (netns: Netns) => Promise<KernelWatch>;
  /** The rules in the kernel, such that two namespaces with the same rules compare as equal. */
  readonly readRules: (netns: Netns) => Promise<string>;
  /** How many Services and endpoints are in the kernel. */
  readonly countProgrammed: (netns: Netns) => Promise<ClusterSizeInKernel>;
}

/** A list of 1,000,000 elements takes a minute. */
export const LIST_TIMEOUT_MS = 900_000;

/** What of a cluster is in the kernel. */
export interface ClusterSizeInKernel {
  readonly services: number;
  /** Of all Services together. */
  readonly endpoints: number;
}

/** Asks the kernel: the log line that ends the first sync comes after the last commit, so everything must be there. */
export async function assertProgrammed(mode: BenchMode, netns: Netns, size: ClusterSize): Promise<void> {
  const { services, endpoints } = await mode.countProgrammed(netns);
  if (services !== size.services || endpoints !== size.services * size.endpoints) {
    throw new Error(`Only ${services} Services and ${endpoints} endpoints are in the kernel`);
  }
}

/** Both must have written the same, or the comparison means nothing. */
export async function assertSameRules(mode: BenchMode, left: Netns, right: Netns): Promise<void> {
  const [ours, theirs] = [await mode.readRules(left), await mode.readRules(right)];
  if (ours !== theirs) throw new Error("The bare program did not write the same rules");
}
