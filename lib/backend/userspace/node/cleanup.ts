/**
 * What userspace mode leaves behind, kube-proxy's of before 1.26 or ours: both use the same names. Its rules redirect to a process that
 * is gone, so they catch traffic that nobody answers.
 *
 * @module
 */
import type { ModeCleanup } from "../../node/cleanup.ts";

export const USERSPACE_CLEANUP: ModeCleanup = {
  mode: "userspace",
  tellsApart: [],
  chains: {
    nat: [
      "KUBE-PORTALS-CONTAINER",
      "KUBE-PORTALS-HOST",
      "KUBE-NODEPORT-CONTAINER",
      "KUBE-NODEPORT-HOST",
    ],
    filter: ["KUBE-NODEPORT-NON-LOCAL"],
    mangle: [],
  },
};
