/**
 * The chains of userspace mode and the jumps that lead to them: those of kube-proxy before 1.26, and a firewall for kproxy's own ports.
 *
 * @module
 */
import { jump, type JumpRule, type PerTable } from "../../../netfilter/iptables_jumps.ts";
import type { BaseRules } from "../../iptables/plan/ruleset.ts";

/** Traffic from outside of the node, and of its pods, to addresses of Services. */
export const PORTALS_CONTAINER = "KUBE-PORTALS-CONTAINER";
/** The node's own traffic to addresses of Services. */
export const PORTALS_HOST = "KUBE-PORTALS-HOST";
/** The same two kinds of traffic, to node ports. */
export const NODE_PORTS_CONTAINER = "KUBE-NODEPORT-CONTAINER";
export const NODE_PORTS_HOST = "KUBE-NODEPORT-HOST";
/** Accepts traffic of node ports to kproxy's own ports. */
export const NODE_PORTS_INPUT = "KUBE-NODEPORT-NON-LOCAL";
/** Rejects packets to kproxy's own ports that were not translated, as directly from outside. */
export const PORTALS_FIREWALL = "KUBE-PORTALS-FIREWALL";

/** All chains, by table. */
export const CHAINS: PerTable<readonly string[]> = {
  filter: [PORTALS_FIREWALL, NODE_PORTS_INPUT],
  nat: [PORTALS_CONTAINER, PORTALS_HOST, NODE_PORTS_CONTAINER, NODE_PORTS_HOST],
};

const PORTALS_COMMENT = "handle ClusterIPs; NOTE: this must be before the NodePort rules";
const NODE_PORTS_COMMENT = "handle service NodePorts; NOTE: this must be the last rule in the chain";
const FIREWALL_COMMENT = "portals take what rules translated, and nothing else";
const INPUT_COMMENT = "Ensure that non-local NodePort traffic can flow";

const LOCAL = "-m addrtype --dst-type LOCAL ";
/** Matches packets not translated and of no accepted connection: so few that a long chain costs others nothing. */
const UNTRANSLATED = "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT ";

/** Source: kube-proxy 1.25 `iptablesInit`; differs: it has no firewall, which stands first in INPUT. */
export const JUMPS: readonly JumpRule[] = [
  jump("nat", "PREROUTING", PORTALS_CONTAINER, PORTALS_COMMENT),
  jump("nat", "OUTPUT", PORTALS_HOST, PORTALS_COMMENT),
  { ...jump("nat", "PREROUTING", NODE_PORTS_CONTAINER, NODE_PORTS_COMMENT, LOCAL), isLast: true },
  { ...jump("nat", "OUTPUT", NODE_PORTS_HOST, NODE_PORTS_COMMENT, LOCAL), isLast: true },
  jump("filter", "INPUT", NODE_PORTS_INPUT, INPUT_COMMENT),
  jump("filter", "INPUT", PORTALS_FIREWALL, FIREWALL_COMMENT, UNTRANSLATED),
];

/** The jumps for a node whose iptables has, or has not, what the firewall needs. */
export function jumpsOf({ firewall }: { readonly firewall: boolean }): readonly JumpRule[] {
  return firewall ? JUMPS : JUMPS.filter(({ target }) => target !== PORTALS_FIREWALL);
}

const NONE: PerTable<readonly string[]> = { filter: [], nat: [] };

/** Base rules, which do not depend on Services: empty chains, and the jumps to them. */
export function planBaseRules(has: { readonly firewall: boolean }): BaseRules {
  return {
    chains: CHAINS,
    dispatch: CHAINS,
    ensured: NONE,
    hasServiceChains: false,
    head: NONE,
    tail: NONE,
    jumps: jumpsOf(has),
  };
}
