/**
 * Flags of `kproxy selftest` and `kproxy sysdump`.
 *
 * @module
 */
import type { Flag } from "./flag.ts";

export const SELFTEST_FLAGS = [
  {
    name: "time-limit",
    type: "duration",
    default: "1m0s",
    group: "Looking",
    commands: ["selftest"],
    doc: "Give up after this time, and take away what was made",
  },
] as const satisfies readonly Flag[];
