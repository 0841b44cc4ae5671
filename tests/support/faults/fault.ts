/**
 * What a planted fault is: what is done to a node, which command tells it by its true cause, and what fixes it.
 *
 * @module
 */
import type { FaultLab } from "./fault_lab.ts";

/** The modes that run on any kernel. */
export type FaultMode = "iptables" | "nftables";

export const BOTH: readonly FaultMode[] = ["iptables", "nftables"];

/** One fault. */
export interface PlantedFault {
  readonly name: string;
  readonly modes: readonly FaultMode[];
  /** By commands of the node, or by objects and what a proxy would then make of them. */
  readonly plant: (lab: FaultLab) => Promise<unknown>;
  /** The command that names the cause, without the flags that every command of the lab has. */
  readonly ask: readonly [command: "check" | "trace" | "doctor", ...args: readonly string[]];
  /** Flags that replace those of the lab, as an operator may have given them. */
  readonly flags?: readonly string[] | ((lab: FaultLab) => readonly string[]);
  /** The cause by its name: Service, chain, rule, setting, endpoint, Node. */
  readonly says: RegExp;
  /** Its exit status. @default {1} */
  readonly code?: number;
  /**
   * A packet that comes to grief, as flow cases write it: it arrives before and after the fault, and in between fares as `trace` says
   * of the rules that are there. Without one the fault is about what no packet of this lab meets.
   */
  readonly packet?: string;
  /** What becomes of it in between, if `trace` cannot know that, or if it is served all the same, in words of flow cases. */
  readonly really?: string;
  /**
   * `repair`: `kproxy check --repair` fixes it, as it is ours. Else what its owner does, or what the answer names.
   */
  readonly fix: "repair" | ((lab: FaultLab) => Promise<unknown>);
}
