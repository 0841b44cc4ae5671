/**
 * What the pictures of packets' ways have in common.
 *
 * @module
 */
import type { Arrow, Box, BoxKind, Picture } from "./picture.ts";

export const WAY_WIDTH = 1030;

/** Where packets from outside of the node go down, and those of the node itself. */
export const WIRE_LANE: Pick<Box, "x" | "width"> = { x: 164, width: 380 };
export const NODE_LANE: Pick<Box, "x" | "width"> = { x: 632, width: 380 };

/** Where packets come from. */
export const SOURCES: readonly Box[] = [
  { id: "wire", kind: "outside", ...WIRE_LANE, y: 82, title: "A packet from the wire, or of a pod" },
  { id: "node", kind: "outside", ...NODE_LANE, y: 82, title: "A packet of a process on the node" },
];

/** Where they go; each picture says how far down. */
export const ENDPOINT: Omit<Box, "y"> = {
  id: "to",
  kind: "outside",
  x: 164,
  width: 848,
  title: "The endpoint; answers come back the same way, with both translations undone",
};

const KINDS: readonly (readonly [BoxKind, string])[] = [
  ["outside", "outside of the node's rules"],
  ["kernel", "the kernel's own"],
  ["chain", "a chain that kproxy writes"],
  ["data", "a map or set that kproxy writes"],
  ["code", "kproxy itself"],
];

/** What the kinds of boxes mean, as far as there are some. */
export function legendOf(boxes: readonly Box[]): Picture["legend"] {
  return KINDS.filter(([kind]) => boxes.some((box) => box.kind === kind));
}

/** Straight from one box to the one below. */
export function down(from: string, to: string): Arrow {
  return { from: { box: from, side: "bottom" }, to: { box: to, side: "top" } };
}

/** What is alike in modes whose rules translate: from the routing decision to the endpoint. */
export const AFTER_ROUTING: readonly Arrow[] = [
  down("routing", "input"),
  down("routing", "forward"),
  down("routing", "filter-output"),
  down("forward", "postrouting"),
  down("filter-output", "postrouting"),
  down("postrouting", ENDPOINT.id),
];

/** Straight from one box to the one above. */
export function up(from: string, to: string): Arrow {
  return { from: { box: from, side: "top" }, to: { box: to, side: "bottom" } };
}

/** Straight from one box to the one at its right. */
export function right(from: string, to: string): Arrow {
  return { from: { box: from, side: "right" }, to: { box: to, side: "left" } };
}

/** Straight from one box to the one at its left. */
export function left(from: string, to: string): Arrow {
  return { from: { box: from, side: "left" }, to: { box: to, side: "right" } };
}
