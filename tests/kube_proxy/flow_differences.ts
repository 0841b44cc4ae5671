/**
 * Where kproxy does otherwise than kube-proxy with a packet of the flow cases, on purpose: the case's name, and why.
 *
 * @module
 */

const CHANCE =
  "kube-proxy writes rules for all Services that want the same address and port, and chance decides whose come first; " +
  "kproxy gives it to the oldest";
const CLUSTER_IP =
  "kube-proxy lets an external IP take a cluster IP, by chance; with kproxy that stays its Service's";

/** Flow cases whose words are not, or not always, what kube-proxy does. */
export const FLOW_DIFFERENCES: Readonly<Record<string, string>> = {
  "no Service takes another one's cluster IP, not even an older one that is first by name": CLUSTER_IP,
  "no Service takes the cluster IP of a Service without endpoints": CLUSTER_IP,
  "of Services without creation times the first by name has what several want": CHANCE,
  "the older of two Services has what both want, and one that has no creation time is younger than any":
    CHANCE,
  "the next one takes over when the Service goes that had what several want": CHANCE,
  "the next one takes over what a Service does not want any more": CHANCE,
  "of two Services with one cluster IP the older is served, and the other not at all": CHANCE,
  "load-balancer IPs of special use are not served":
    "kube-proxy serves 169.254.169.254, which is where a cloud answers its machines; kproxy refuses it",
};
