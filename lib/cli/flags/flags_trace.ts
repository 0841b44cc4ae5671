/**
 * Flags of `kproxy trace` and `kproxy service`.
 *
 * @module
 */
import type { Flag } from "./flag.ts";

const LOOKING = ["trace", "explain", "service", "check", "diff"] as const;

export const TRACE_FLAGS = [
  {
    name: "live-from",
    type: "paths",
    default: "[]",
    group: "Looking",
    commands: LOOKING,
    doc:
      "Read live rules from a file that iptables-save, nft list ruleset, ipvsadm -Sn or ipset save printed; may be repeated",
    files: [],
  },
  {
    name: "no-desired",
    type: "bool",
    default: "false",
    group: "Looking",
    commands: ["trace", "explain"],
    doc: "Look at the live rules only: needs no objects",
  },
  {
    name: "no-live",
    type: "bool",
    default: "false",
    group: "Looking",
    commands: ["trace", "explain", "service"],
    doc: "Look at the objects and the rules that they stand for only: needs no root",
  },
] as const satisfies readonly Flag[];
