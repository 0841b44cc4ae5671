/**
 * Why a packet fares differently in nftables mode. All but the last of these are kube-proxy's too.
 *
 * @module
 */
import type { ModeDifference } from "./mode_difference.ts";

const SERVICE_CIDR = /^(?:10\.9[68]\.|fd00:10:96:)/;

export const NFTABLES_DIFFERENCES: readonly ModeDifference[] = [
  {
    reason: "what is no port of a cluster IP is refused, ICMP included",
    explains: ({ packet, usual, found }) =>
      SERVICE_CIDR.test(packet.destination) && usual === "untranslated" &&
      found === "rejected",
  },
  {
    reason: "what has a network of cluster IPs as its destination, and no Service behind it, is dropped",
    explains: ({ packet, usual, found }) =>
      SERVICE_CIDR.test(packet.destination) && usual === "untranslated" && found === "dropped",
  },
  {
    reason:
      "hairpins are found by a set of this node's endpoints: a remote one that came by another node has none",
    explains: ({ packet, usual, found }) =>
      usual.includes(packet.source) && usual.endsWith("masquerade yes)") && found.endsWith("masquerade no"),
  },
  {
    reason: "without other configuration node ports are served on the node's primary address",
    explains: ({ packet, found }) =>
      /^(?:192\.168\.7\.10|fd00:7::10)$/.test(packet.destination) && packet.port >= 30000 &&
      found === "this node",
  },
  {
    reason: "no packet may leave the node with a loopback address: there are no node ports on localhost",
    explains: ({ packet, found }) =>
      packet.destination.startsWith("127.") && packet.inInterface === "" && found === "this node",
  },
  {
    reason: "no setting lets packets to loopback in, so nothing guards against what another program lets in",
    explains: ({ packet, usual, found }) =>
      packet.destination.startsWith("127.") && packet.inInterface !== "" && usual === "dropped" &&
      found === "this node",
  },
  {
    reason: "source ranges come first, with endpoints or without",
    explains: ({ usual, found }) => usual === "rejected" && found === "dropped",
  },
  {
    reason: "an accepting verdict ends one table's say, not that of the node's own firewall: it must be open",
    explains: ({ found, name }) => found === "dropped" && /closed host firewall|masquerade bit/.test(name),
  },
  {
    reason: "packets that connection tracking calls invalid are left to its own setting",
    explains: ({ packet, found }) => packet.state === "INVALID" && found === "untranslated",
  },
  {
    reason: "dropped all the same, and no rule says of which Service",
    explains: ({ usual, found }) => usual === found,
  },
];
