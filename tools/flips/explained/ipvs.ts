/**
 * Flips of mode ipvs that no test can or need notice.
 *
 * @module
 */
import type { Explanations } from "../explained.ts";

export const IPVS: Explanations = {
  "lib/backend/ipvs/plan/plan.ts planIpvsInSteps: reported.size > 0 → reported.size >= 0": [
    "performance",
    "a Service without problems has an empty list of them instead of none, which is no line of the log either",
  ],
  'lib/backend/ipvs/plan/plan.ts ServiceDraft.#addServer: known.outFilter === "" && outFilter !== "" → known.outFilter === "" || outFilter !== ""':
    [
      "equivalent",
      "address and port make both the server's key and its rule, so two rules of one server are the same",
    ],
  'lib/backend/ipvs/plan/plan.ts hostIps: family === "IPv6" && LINK_LOCAL !== null → family === "IPv6" || LINK_LOCAL !== null':
    ["equivalent", "no IPv4 address is in a network of IPv6"],
};
