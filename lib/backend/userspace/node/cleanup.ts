/**
 * What kube-proxy's userspace mode (before 1.26) leaves behind. Its rules redirect to a process that is gone, so they
 * catch traffic that nobody answers.
 *
 * @module
 */
import type { ModeCleanup } from "../../node/cleanup.ts";

export const USERSPACE_CLEANUP: ModeCleanup = {
  mode: "userspace",
  tellsApart: ["kube-proxy"],
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
