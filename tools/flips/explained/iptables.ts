/**
 * Flips of mode iptables that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const IPTABLES: Explanations = {
  "lib/backend/iptables/store/store.ts without: counts.get(textOf(other)) ?? 0 → 0": [
    "performance",
    "a rule that one Service has twice is written again with each change of that Service",
  ],
  "lib/backend/iptables/store/store.ts changeDispatch: return; → dropped": [
    "performance",
    "between equal lists there are no edits",
  ],
};
