/**
 * Flips of mode iptables that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const IPTABLES: Explanations = {
  "lib/backend/iptables/diff/diff_dispatch.ts without: counts.get(textOf(other)) ?? 0 → 0": [
    "performance",
    "a rule that one Service has twice is written again with each change of that Service",
  ],
  "lib/backend/iptables/diff/diff_dispatch.ts dispatchEdits: return; → dropped": [
    "performance",
    "between equal lists there are no edits",
  ],
  "lib/backend/iptables/diff/diff_dispatch.ts damagedDispatch: return []; → dropped": [
    "performance",
    "of no damaged chain the rest makes nothing",
  ],
  "lib/backend/iptables/diff/seen_chains.ts expectedPrint: prints?.[index] ?? Number.NaN → prints?.[index]": [
    "equivalent",
    "what is undefined is handed on as it is, and means the same: nobody has looked",
  ],
  "lib/backend/iptables/diff/shared_prints.ts SharedPrints.changed: (this.#digests.get(key) ?? 0) + (by === 1 ? digest : DIGESTS - digest) → (this.#digests.get(key) ?? 0) - (by === 1 ? digest : DIGESTS - digest)":
    ["equivalent", "all of its sums change in the same way; only whether two are the same matters"],
  "lib/backend/iptables/diff/shared_prints.ts SharedPrints.changed: by === 1 → by !== 1": [
    "equivalent",
    "all of its sums change in the same way; only whether two are the same matters",
  ],
  "lib/backend/iptables/diff/shared_prints.ts SharedPrints.look: ((this.#digests.get(key) ?? 0) + digestOf(rules)) % DIGESTS → ((this.#digests.get(key) ?? 0) + digestOf(rules)) * DIGESTS":
    ["equivalent", "all of its sums change in the same way; only whether two are the same matters"],
  "lib/backend/iptables/diff/shared_prints.ts SharedPrints.look: (this.#digests.get(key) ?? 0) + digestOf(rules) → (this.#digests.get(key) ?? 0) - digestOf(rules)":
    ["equivalent", "all of its sums change in the same way; only whether two are the same matters"],
  "lib/backend/iptables/diff/stages_observe.ts observeTables: start < saveText.length → start <= saveText.length":
    ["equivalent", "behind the end there is no line"],
};
