/**
 * Flags of `kproxy status`.
 *
 * @module
 */
import type { Flag } from "./flag.ts";

export const STATUS_FLAGS = [
  {
    name: "interval",
    type: "duration",
    default: "2s",
    group: "Looking",
    commands: ["status"],
    doc: "With --watch: ask this often",
  },
  {
    name: "watch",
    short: "w",
    type: "bool",
    default: "false",
    group: "Looking",
    commands: ["status"],
    doc:
      "Ask again and again, and draw the answers in the same place; where output is no terminal, one after the other",
  },
] as const satisfies readonly Flag[];
