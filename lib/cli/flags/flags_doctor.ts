/**
 * Flags of `kproxy doctor`.
 *
 * @module
 */
import type { Flag } from "./flag.ts";

export const DOCTOR_FLAGS = [
  {
    name: "migrate-to",
    type: "string",
    default: "",
    group: "Looking",
    commands: ["doctor"],
    doc: "Look whether this node can run that mode, too, and list the Services that would behave differently",
    values: ["iptables", "ipvs", "nftables"],
  },
] as const satisfies readonly Flag[];
