/**
 * Judges the Node object: whether it is the one of this machine.
 *
 * @module
 */
import { nodeIps } from "../../../model/node.ts";
import { parseIp } from "../../../model/ip.ts";
import { FAMILIES, type IpFamily, type NodeObject } from "../../../model/objects.ts";
import { nodeUse } from "../../../model/unserved_family.ts";
import { failure, type Finding, ok, warning } from "../finding.ts";
import { few } from "../../../text/words.ts";

const CHECK = "node";

/** What the Node is compared with. */
export interface OwnMachine {
  readonly nodeName: string;
  /** Canonical; null if the runtime does not tell. */
  readonly ownIps: readonly string[] | null;
  /** As configured. */
  readonly bindAddress: string;
  /** Families that the mode cannot serve here. */
  readonly refused: readonly IpFamily[];
  /** Nodes with an address of this machine, if there is none of its name. */
  readonly namesakes: readonly string[];
}

export function judgeNode(node: NodeObject | null, machine: OwnMachine): readonly Finding[] {
  const { nodeName, ownIps, refused } = machine;
  if (node === null) return [unknownNode(machine)];
  const findings: Finding[] = [];
  const addresses = node.addresses.map(({ address }) => parseIp(address)?.text).filter((ip) =>
    ip !== undefined
  );
  if (addresses.length === 0) {
    findings.push(
      warning(
        CHECK,
        `Node ${nodeName} has no address: node ports on primary addresses wait for one`,
        "set it on the kubelet (--node-ip), or name one with --bind-address",
      ),
    );
  } else if (ownIps !== null && !addresses.some((ip) => ownIps.includes(ip))) {
    findings.push(
      warning(
        CHECK,
        `none of the addresses of Node ${nodeName} (${
          few(addresses)
        }) is on this machine: is it another one's?`,
        "if it is, name the right one with --hostname-override; behind a NAT all is well",
      ),
    );
  }
  const uses = refused.map((family) => nodeUse(node, family)).filter((use) => use !== null);
  for (const use of uses) {
    findings.push(
      failure(
        CHECK,
        `${use}, of an IP family that this node cannot serve`,
        "mend what the check of the mode names",
      ),
    );
  }
  if (findings.length > 0) return findings;
  const { primaryFamily } = nodeIps(node, machine.bindAddress);
  const families = FAMILIES.filter((family) => nodeUse(node, family) !== null);
  return [
    ok(CHECK, `Node ${nodeName}: ${addresses.join(", ")}; ${families.join(" and ")}, first ${primaryFamily}`),
  ];
}

function unknownNode({ nodeName, namesakes }: OwnMachine): Finding {
  const what = `the cluster has no Node ${nodeName}: topology, node ports and policy Local go wrong`;
  const [first] = namesakes;
  if (first === undefined) {
    return failure(CHECK, what, "name it as kubectl get nodes does: --hostname-override=NAME");
  }
  return failure(
    CHECK,
    `${what}; Node ${few(namesakes)} has an address of this machine`,
    `--hostname-override=${first}`,
  );
}

/** Why the cluster is known to use IPv6 here, in words; null if nothing says so. */
export function ipv6Use(
  node: NodeObject | null,
  { clusterCIDR, bindAddress }: { readonly clusterCIDR: string; readonly bindAddress: string },
): string | null {
  if (node !== null) return nodeUse(node, "IPv6");
  if (clusterCIDR.includes(":")) return `the cluster CIDR is ${clusterCIDR}`;
  const bind = parseIp(bindAddress);
  return bind?.family === "IPv6" && bind.text !== "::" ? `the node's address is ${bind.text}` : null;
}
