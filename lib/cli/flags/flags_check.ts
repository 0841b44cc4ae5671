/**
 * Flags of `kproxy check`.
 *
 * @module
 */
import type { Flag } from "./flag.ts";

export const CHECK_FLAGS = [
  {
    name: "repair",
    type: "bool",
    default: "false",
    group: "Looking",
    commands: ["check", "diff"],
    doc:
      "Write the rules of families with damage anew, as kproxy run does when it starts, and compare again; what is not kproxy's stays",
  },
] as const satisfies readonly Flag[];
