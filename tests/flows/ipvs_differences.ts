/**
 * Why a packet fares differently in IPVS mode: the reasons behind every `instead` of the flow cases. All of them are
 * kube-proxy's too, since they follow from how IPVS works or from rules that kube-proxy's users know.
 *
 * @module
 */
import type { ModeDifference } from "./mode_difference.ts";

const endpointsIn = (text: string): number => text.match(/:\d+/g)?.length ?? 0;

export const IPVS_DIFFERENCES: readonly ModeDifference[] = [
  {
    reason: "a virtual address is one of the node's own: what is no port of a Service on it is refused by us",
    explains: ({ usual, found }) => usual === "untranslated" && found === "rejected",
  },
  {
    reason: "a virtual address is one of the node's own: a packet of no known connection gets there",
    explains: ({ packet, found }) => packet.state === "ESTABLISHED" && found === "this node",
  },
  {
    reason: "internal policy Local without a local endpoint: a virtual server without real ones refuses",
    explains: ({ usual, found, name }) =>
      usual === "dropped" && found === "rejected" && name.includes("internal policy Local"),
  },
  {
    reason:
      "policy Local without a local endpoint: one server answers pods and the world, so it keeps the others",
    explains: ({ usual, found, packet }) =>
      usual === "dropped" && endpointsIn(found) > 0 && packet.inInterface.startsWith("eth"),
  },
  {
    reason:
      "external policy Local: pods and the node get the same endpoints as the world, and keep their address",
    explains: ({ usual, found, packet }) =>
      endpointsIn(usual) > 0 && endpointsIn(found) === 1 && !packet.source.startsWith("198."),
  },
  {
    reason: "internal policy Local, and the port is reachable from outside: other endpoints answer",
    explains: ({ usual, found, name }) =>
      usual === "dropped" && endpointsIn(found) > 0 && /internal policy Local|both policies Local/.test(name),
  },
  {
    reason:
      "a port that is nowhere but on localhost has no virtual server: no node ports on loopback addresses",
    explains: ({ packet, found }) => packet.destination.startsWith("127.") && found === "this node",
  },
  {
    reason:
      "hairpins are found by a set of this node's endpoints: a remote one that came by another node has none",
    explains: ({ usual, found }) =>
      usual.endsWith("masquerade yes)") && endpointsIn(found) === endpointsIn(usual) &&
      found.endsWith("masquerade no"),
  },
  {
    reason: "hairpins are found by a set, whether a Service led there or not",
    explains: ({ packet, found }) =>
      packet.source === packet.destination && found === "untranslated, masquerade yes",
  },
  {
    reason: "a rule of sets marks before another takes the packet: the mark is seen by nobody after it",
    explains: ({ found }) => found.endsWith("mark 0x4000 left"),
  },
  {
    reason: "affinity is one virtual server's: every address and port of a Service has its own",
    explains: ({ name }) => name.includes("across cluster IP, node port and load-balancer IP"),
  },
  {
    reason: "source ranges guard INPUT; the node itself is told by the virtual address as its source",
    explains: ({ packet, usual, found }) =>
      packet.inInterface === "" && usual === "dropped" && endpointsIn(found) > 0,
  },
  {
    reason: "source ranges come before the virtual server, with endpoints or without",
    explains: ({ usual, found }) => usual === "rejected" && found === "dropped",
  },
  {
    reason: "the set of health-check node ports has no protocol",
    explains: ({ packet, usual, found }) =>
      packet.protocol === "udp" && usual === "dropped" && found === "this node",
  },
  {
    reason: "kube-proxy's IPVS mode has no rule about packets that connection tracking calls invalid",
    explains: ({ packet }) => packet.state === "INVALID",
  },
  {
    reason: "IPVS sends on by itself: what a virtual server takes never comes through FORWARD",
    explains: ({ usual, found, name }) =>
      usual === "dropped" && endpointsIn(found) === 1 && name.startsWith("a closed host firewall"),
  },
  {
    reason: "dropped all the same, by a rule for all Services: it counts for none of them alone",
    explains: ({ usual, found }) => usual === found,
  },
];
