/**
 * What flow cases guard, by number: rules that mode iptables writes for a Service, and decisions of the model. Cases, unit tests and
 * `deno task mutate` name them `iptables N` and `vector N`.
 *
 * @module
 */

/** Rules of one port of a Service, in the order in which kube-proxy writes them; those with ′ take the place of the one before. */
export const IPTABLES_RULES: Readonly<Record<string, string>> = {
  "1": "cluster IP, to the chain of the internal policy",
  "2": "cluster IP without usable endpoints: REJECT or DROP",
  "3": "external IP, to KUBE-EXT",
  "4": "external IP without usable endpoints: REJECT or DROP",
  "5": "load balancer IP, to KUBE-EXT or, with source ranges, KUBE-FW",
  "6": "load balancer IP: what KUBE-FW did not accept is dropped",
  "7": "load balancer IP without usable endpoints: REJECT or DROP",
  "8": "node port, to KUBE-EXT",
  "9": "node port without usable endpoints: REJECT or DROP",
  "10": "health check node port: ACCEPT",
  "12": "cluster IP: everything is masqueraded",
  "12′": "cluster IP: what comes from elsewhere is masqueraded",
  "13": "KUBE-EXT, external policy Cluster: everything is masqueraded",
  "14": "KUBE-EXT, external policy Local: pods of the node reach all endpoints",
  "15": "KUBE-EXT, external policy Local: the node itself is masqueraded",
  "16": "KUBE-EXT, external policy Local: the node itself reaches all endpoints",
  "17": "KUBE-EXT, to the chain of the external policy",
  "18": "KUBE-FW: a source range, to KUBE-EXT",
  "19": "KUBE-FW: the load balancer IP as a source, where a range holds the node, to KUBE-EXT",
  "20": "KUBE-FW: what is left, counted only",
  "21": "KUBE-SVC, to each endpoint for all nodes",
  "22": "KUBE-SVL, to each endpoint of the node",
  "23": "KUBE-SEP: hairpin masquerading, affinity and translation",
};

/** Decisions about the endpoints of a Service. */
export const TEST_VECTORS: readonly string[] = [
  "1: all ready endpoints are used",
  "2: without ready ones, those that terminate and still serve are",
  "3: hints of zones: those for the own zone",
  "4: one endpoint without a hint, and zones do not count",
  "5: no endpoint for the own zone, and zones do not count",
  "6: hints count on ready endpoints only",
  "7: hints of nodes come before those of zones",
  "8: no endpoint for the own node, and zones count",
  "9: external policy Local takes a terminating endpoint of the node",
  "10: external policy Local without endpoints of the node",
  "11: internal policy Local without endpoints of the node",
  "12: internal policy Local leaves the external one alone",
  "13: external policy Local counts only where something external is",
  "14: no endpoints at all",
  "15: of equal endpoints in two slices the one that does not terminate wins",
  "16: a slice's port without a name leads nowhere",
  "17: hints do not count for internal policy Local",
  "18: hints do not count for external policy Local",
];
