/**
 * A packet's way in mode ipvs.
 *
 * @module
 */
import { CHAINS, OUT_FILTER_CHAIN } from "../../lib/backend/ipvs/plan/base_rules.ts";
import { DEVICE } from "../../lib/backend/ipvs/plan/ruleset.ts";
import type { Arrow, Box, Picture } from "./picture.ts";
import { down, ENDPOINT, legendOf, NODE_LANE, SOURCES, WAY_WIDTH, WIRE_LANE } from "./way.ts";

/** A name of a chain, which must be one of the code's. */
function chain(table: "nat" | "filter", name: string): string {
  if (!CHAINS[table].includes(name)) throw new RangeError(`Mode ipvs has no chain ${name} in table ${table}`);
  return name;
}

const MARKING = [
  { name: chain("nat", "KUBE-SERVICES"), words: "cluster IPs, external IPs" },
  { name: chain("nat", "KUBE-LOAD-BALANCER"), words: "load-balancer IPs" },
  { name: chain("nat", "KUBE-NODE-PORT"), words: "node ports" },
];

const BOXES: readonly Box[] = [
  ...SOURCES,
  {
    id: "prerouting",
    kind: "chain",
    ...WIRE_LANE,
    y: 150,
    title: "nat PREROUTING: marks",
    lines: MARKING,
    wordsAt: 180,
  },
  {
    id: "output",
    kind: "chain",
    ...NODE_LANE,
    y: 150,
    title: "nat OUTPUT: marks",
    lines: MARKING,
    wordsAt: 180,
  },
  {
    id: "routing",
    kind: "kernel",
    ...WIRE_LANE,
    y: 278,
    title: "Routing: it is for this node",
    lines: [{ words: `the device ${DEVICE} has the Service's address` }],
  },
  {
    id: "input",
    kind: "chain",
    ...WIRE_LANE,
    y: 362,
    title: "filter INPUT",
    lines: [
      { name: chain("filter", "KUBE-IPVS-FILTER"), words: "ports of no Service" },
      { name: chain("filter", "KUBE-PROXY-FIREWALL"), words: "source ranges" },
      { name: chain("filter", "KUBE-NODE-PORT"), words: "health check ports" },
    ],
    wordsAt: 180,
  },
  {
    id: "ipvs",
    kind: "kernel",
    x: 164,
    y: 496,
    width: 848,
    title: "IPVS, the kernel's load balancer: a virtual server for each address and port of a Service",
    lines: [{
      words:
        "its scheduler chooses a real server, an endpoint; the destination is translated; connections go on as they began",
    }],
  },
  {
    id: "sets",
    kind: "data",
    ...NODE_LANE,
    y: 362,
    title: "Sets of ipset, which the rules look into",
    lines: [
      { name: "KUBE-CLUSTER-IP", words: "10.96.10.1,tcp:80" },
      { name: "KUBE-EXTERNAL-IP", words: "203.0.113.7,tcp:80" },
      { name: "KUBE-NODE-PORT-TCP", words: "30080" },
    ],
    wordsAt: 180,
  },
  {
    id: "filter-output",
    kind: "chain",
    x: 164,
    y: 594,
    width: 848,
    title: OUT_FILTER_CHAIN,
    isName: true,
    lines: [{
      words:
        "in filter OUTPUT: source ranges, for packets of the node itself; FORWARD never sees what IPVS sends on",
    }],
  },
  {
    id: "postrouting",
    kind: "chain",
    x: 164,
    y: 678,
    width: 848,
    title: chain("nat", "KUBE-POSTROUTING"),
    isName: true,
    lines: [{
      words:
        "in nat POSTROUTING: what carries the mark, and pods that got themselves, get the node's address as source",
    }],
  },
  { ...ENDPOINT, y: 772 },
];

const ARROWS: readonly Arrow[] = [
  down("wire", "prerouting"),
  down("node", "output"),
  down("prerouting", "routing"),
  down("routing", "input"),
  down("input", "ipvs"),
  {
    from: { box: "output", side: "left" },
    to: { box: "ipvs", side: "top", at: 0.5 },
    via: [[588, 195]],
    label: "IPVS takes it",
    labelAt: [596, 300],
  },
  { from: { box: "sets", side: "left" }, to: { box: "input", side: "right" }, isDashed: true },
  { from: { box: "sets", side: "top" }, to: { box: "output", side: "bottom" }, isDashed: true },
  down("ipvs", "filter-output"),
  down("filter-output", "postrouting"),
  down("postrouting", ENDPOINT.id),
];

/** Names of chains and the device are those of the code. */
export const IPVS_WAY: Picture = {
  file: "docs/way-ipvs.svg",
  title: "A packet's way in mode ipvs",
  subtitle:
    "The kernel's own load balancer chooses and translates; rules of iptables mark what needs the node's address, and filter.",
  description:
    "Rules of nat PREROUTING and OUTPUT mark packets that need the node's address, by sets. A packet from the wire is routed to the node itself, because the device kube-ipvs0 has the Service's address, and passes filter INPUT. IPVS chooses a real server and translates the destination; filter OUTPUT and nat POSTROUTING follow.",
  width: WAY_WIDTH,
  height: 850,
  bands: [
    {
      y: 138,
      height: 110,
      label: "Before routing",
      words: ["table nat: nothing", "is translated here,", "only marked"],
    },
    { y: 264, height: 210, label: "In the node", words: ["to IPVS every packet", "is for the node"] },
    { y: 582, height: 164, label: "Before it leaves", words: ["as a packet of the", "node itself"] },
  ],
  boxes: BOXES,
  arrows: ARROWS,
  legend: legendOf(BOXES),
};
