/**
 * Leftovers of userspace mode, of kube-proxy before 1.26 or ours: both use the same names. Its rules redirect
 * to a process that is gone, so they catch traffic that gets no answer.
 *
 * @module
 */
import type { ModeCleanup } from "../../node/cleanup.ts";
import { CHAINS } from "../plan/chains.ts";

export const USERSPACE_CLEANUP: ModeCleanup = {
  mode: "userspace",
  distinct: [],
  chains: {
    ...CHAINS,
    mangle: [],
  },
};
