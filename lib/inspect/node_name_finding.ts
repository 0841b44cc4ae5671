/**
 * Whether the objects know the node by the name that kproxy goes by.
 *
 * @module
 */
import type { DesiredState } from "./desired/desired.ts";

/** By the name of the node it is decided which endpoints are its own, and by its Node's labels which hints are for it. */
export function nodeNameFinding(
  { nodeName, node, otherNodes }: Pick<DesiredState, "nodeName" | "node" | "otherNodes">,
  nodeAddresses: readonly string[],
): readonly string[] {
  if (node !== null || otherNodes.length === 0) return [];
  const mine = otherNodes.find(({ addresses }) =>
    addresses.some(({ address }) => nodeAddresses.includes(address))
  );
  const lack = `There is no Node ${nodeName}, by whose name policies and hints are decided here`;
  return [
    mine === undefined
      ? lack
      : `${lack}; Node ${mine.name} has an address of this machine: --hostname-override=${mine.name}`,
  ];
}
