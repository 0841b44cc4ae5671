/**
 * Where kproxy does otherwise than kube-proxy with a packet of the flow cases, on purpose: the case's name, and why.
 *
 * @module
 */

/** Flow cases whose words are not what kube-proxy does. */
export const FLOW_DIFFERENCES: Readonly<Record<string, string>> = {};
