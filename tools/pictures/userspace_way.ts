/**
 * A packet's way in mode userspace.
 *
 * @module
 */
import * as chains from "../../lib/backend/userspace/plan/chains.ts";
import type { Arrow, Box, Picture } from "./picture.ts";
import { down, ENDPOINT, legendOf, NODE_LANE, SOURCES, WAY_WIDTH, WIRE_LANE } from "./way.ts";

const BOXES: readonly Box[] = [
  ...SOURCES,
  {
    id: "prerouting",
    kind: "chain",
    ...WIRE_LANE,
    y: 150,
    title: "nat PREROUTING",
    lines: [
      { name: chains.PORTALS_CONTAINER, words: "addresses of Services" },
      { name: chains.NODE_PORTS_CONTAINER, words: "node ports" },
    ],
    wordsAt: 204,
  },
  {
    id: "output",
    kind: "chain",
    ...NODE_LANE,
    y: 150,
    title: "nat OUTPUT",
    lines: [
      { name: chains.PORTALS_HOST, words: "addresses of Services" },
      { name: chains.NODE_PORTS_HOST, words: "node ports" },
    ],
    wordsAt: 204,
  },
  {
    id: "input",
    kind: "chain",
    ...WIRE_LANE,
    y: 282,
    title: "filter INPUT",
    lines: [
      { name: chains.PORTALS_FIREWALL, words: "refuses direct packets" },
      { name: chains.NODE_PORTS_INPUT, words: "lets node ports in" },
    ],
    wordsAt: 204,
  },
  {
    id: "portal",
    kind: "code",
    x: 164,
    y: 398,
    width: 848,
    title: "A portal: one port of kproxy's own for each Service port, in a thread that only forwards",
    lines: [
      {
        words: "TCP: each connection is accepted; UDP: each client has a socket of its own until it is idle",
      },
    ],
  },
  {
    id: "balancer",
    kind: "code",
    x: 164,
    y: 484,
    width: 416,
    title: "The balancer",
    lines: [{ words: "endpoints take turns; affinity keeps a client's" }],
  },
  {
    id: "dial",
    kind: "code",
    x: 620,
    y: 484,
    width: 392,
    title: "A connection of the node's own",
    lines: [{ words: "no answer in 250 ms: the next endpoint" }],
  },
  {
    ...ENDPOINT,
    y: 588,
    title: "The endpoint, which sees the node's address; kproxy copies what comes, both ways",
  },
];

const ARROWS: readonly Arrow[] = [
  down("wire", "prerouting"),
  down("node", "output"),
  { ...down("prerouting", "input"), label: "redirected to the portal", labelAt: [364, 270] },
  {
    from: { box: "output", side: "bottom" },
    to: { box: "portal", side: "top", at: 0.776 },
    label: "translated to the portal",
    labelAt: [832, 310],
  },
  down("input", "portal"),
  down("portal", "balancer"),
  { from: { box: "balancer", side: "right" }, to: { box: "dial", side: "left" } },
  down("dial", ENDPOINT.id),
];

/** Names of chains are those of the code. */
export const USERSPACE_WAY: Picture = {
  file: "docs/way-userspace.svg",
  title: "A packet's way in mode userspace",
  subtitle:
    "Rules lead packets to ports of kproxy's own, and kproxy itself forwards: every byte passes through the process.",
  description:
    "Chains of nat PREROUTING and OUTPUT lead packets for Services to a port of kproxy's own, a portal. Its balancer chooses an endpoint, kproxy connects to it from the node's address and copies both ways.",
  width: WAY_WIDTH,
  height: 666,
  bands: [
    { y: 138, height: 98, label: "Before routing", words: ["table nat: to a", "port of kproxy's"] },
    { y: 258, height: 114, label: "In the node", words: ["the port is there", "on the node itself"] },
    {
      y: 386,
      height: 164,
      label: "In kproxy",
      words: ["two connections,", "and bytes copied", "between them"],
    },
  ],
  boxes: BOXES,
  arrows: ARROWS,
  legend: legendOf(BOXES),
};
