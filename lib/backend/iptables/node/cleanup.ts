/**
 * Leftovers of iptables mode; both proxies use the same names. Chains of Services are removed, too.
 *
 * @module
 */
import type { ModeCleanup } from "../../node/cleanup.ts";
import {
  CANARY_CHAIN,
  EXTERNAL_SERVICES_CHAIN,
  FIREWALL_JUMP_COMMENT,
  NODE_PORTS_CHAIN,
  SERVICES_CHAIN,
} from "../plan/chains.ts";

export const IPTABLES_CLEANUP: ModeCleanup = {
  mode: "iptables",
  distinct: [],
  chains: {
    nat: [NODE_PORTS_CHAIN, CANARY_CHAIN],
    filter: [SERVICES_CHAIN, EXTERNAL_SERVICES_CHAIN, NODE_PORTS_CHAIN, CANARY_CHAIN],
    mangle: [CANARY_CHAIN],
  },
  jumpComments: [FIREWALL_JUMP_COMMENT],
};
