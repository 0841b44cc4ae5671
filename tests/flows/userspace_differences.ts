/**
 * Why packets fare differently in userspace mode, beyond what all of them have in common: kproxy itself takes them.
 *
 * @module
 */
import type { ModeDifference } from "./mode_difference.ts";

export const USERSPACE_DIFFERENCES: readonly ModeDifference[] = [
  {
    reason: "policy Local without a local endpoint: who is let in finds no endpoint, and is closed",
    explains: ({ usual, found }) => usual === "dropped" && found === "closed",
  },
  {
    reason: "SCTP is not forwarded, so no rule takes it",
    explains: ({ packet, found }) =>
      packet.protocol === "sctp" && (found === "untranslated" || found === "this node"),
  },
  {
    reason: "who is not within the source ranges is led nowhere rather than dropped",
    explains: ({ packet, found, name }) =>
      packet.inInterface !== "" && /source range/.test(name) && /^(?:untranslated|this node)/.test(found),
  },
  {
    reason: "the node reaches its load balancers, whatever their sources are",
    explains: ({ packet, usual, found, name }) =>
      packet.inInterface === "" && /source range/.test(name) && usual === "dropped" && /:\d/.test(found),
  },
  {
    reason: "the node's own packets to an external IP are led to kproxy only where the address is the node's",
    explains: ({ packet, found, name }) =>
      packet.inInterface === "" && found === "untranslated" && name.includes("external IP"),
  },
  {
    reason: "packets of pods on a bridge are led to kproxy only where an external IP is the node's",
    explains: ({ packet, usual, found }) =>
      packet.inInterface === "cni0" && (/:\d/.test(usual) || usual === "rejected") &&
      found === "untranslated",
  },
  {
    reason: "node ports of the node itself are on loopback addresses, too, whatever localhostNodePorts says",
    explains: ({ packet, found }) => packet.source === packet.destination && /:\d/.test(found),
  },
  {
    reason: "no rule keeps packets from outside from loopback addresses: the kernel does",
    explains: ({ packet, usual, found }) =>
      packet.destination.startsWith("127.") && usual === "dropped" && found === "this node",
  },
  {
    reason: "affinity is a portal's: policy Local and the other traffic of a Service have one each",
    explains: ({ name }) => name.includes("across policies"),
  },
  {
    reason: "no rule lets anybody to a health-check node port",
    explains: ({ usual, found }) => usual === "this node" && found === "dropped",
  },
  {
    reason: "there is no rule about packets that connection tracking calls invalid",
    explains: ({ packet }) => packet.state === "INVALID",
  },
  {
    reason: "connections of kproxy's own do not pass FORWARD",
    explains: ({ usual, found, name }) =>
      usual === "dropped" && found === "10.244.1.12:8080, masquerade yes" && name.startsWith("a closed host"),
  },
  {
    reason: "no rule lets packets through FORWARD, whose policy is the node's own",
    explains: ({ usual, found }) => usual.startsWith("untranslated") && found === "dropped",
  },
  {
    reason: "no mark is used, so none is masqueraded for",
    explains: ({ packet, found }) => packet.mark !== 0 && found.endsWith("left"),
  },
];
