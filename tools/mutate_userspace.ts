/**
 * What the `mutate` task takes out of, or gets wrong in, userspace mode: its rules, its ports and what it forwards.
 *
 * @module
 */
import type { Mutation } from "./mutate.ts";

const MODE = "lib/backend/userspace";

/** By file below the mode's folder; nothing that would let a test wait for ever. */
const WRONG: Readonly<Record<string, readonly (readonly [name: string, find: string, replace: string])[]>> = {
  "plan/plan.ts": [
    [
      "the node's own packets",
      "this.#addHost({ chain: PORTALS_HOST, match, reach });",
      "",
    ],
    ["external IPs of others", "? [`${to}-m physdev ! --physdev-is-in `, local]", "? [local]"],
    ["external IPs of the node", "--physdev-is-in `, local]", "--physdev-is-in `]"],
    ["sources of a load balancer", 'ranges.length === 0 ? [""]', 'true ? [""]'],
    ["node ports on some addresses", 'nodePortIps === null ? [""]', 'true ? [""]'],
    ["policy Local does not bind pods of the node", "if (own !== null && !hasSource) {", "if (false) {"],
    [
      "policy Local for traffic from outside",
      "this.#reach = policyOf(port.externalPolicyLocal);",
      "this.#reach = policyOf(false);",
    ],
    [
      "policy Local for traffic inside",
      "[this.#to(port.clusterIP), policyOf(port.internalPolicyLocal)]",
      "[this.#to(port.clusterIP), policyOf(false)]",
    ],
    ["no DNAT on the node", "listenIp ?? (dnat ? nodeIp : null)", "listenIp ?? nodeIp"],
    ["nobody comes to a portal directly", "if (options.has.firewall) {", "if (false) {"],
    ["SCTP is told", 'protocol !== "SCTP"', "true"],
  ],
  "plan/balancer.ts": [
    ["turns", "this.#next = (this.#next + 1) % this.#endpoints.length;", ""],
    ["affinity ends", "nowMs - known.usedMs < this.#stickyMs", "true"],
    ["affinity is given up where nobody answers", "isRetry ? undefined : ", ""],
    [
      "an endpoint that is gone loses its clients",
      "if (!keys.has(keyOf(endpoint))) this.#clients.delete(client);",
      "",
    ],
  ],
  "plan/chains.ts": [[
    "rules of a Service keep their order",
    "hasServiceChains: false",
    "hasServiceChains: true",
  ]],
  "plan/port_rules.ts": [
    ["the port of a former run", "if (port !== undefined) ports.set(portal, port);", ""],
    ["flows that go on stay", "old.has(key) === current.has(key) ||", ""],
    ["flows that are led elsewhere begin anew", "old.has(key) === current.has(key) ||", "true ||"],
  ],
  "apply/proxier.ts": [
    [
      "what nothing leads to is closed",
      "await portals.closeUnused(plan, isAll);\n    await restore(closed",
      "await restore(closed",
    ],
    [
      "no portal leads anywhere before it is closed to others",
      'await restore(blocks.find((block) => block.startsWith("*filter")));',
      "",
    ],
    [
      "a refused Service costs no other",
      "refusedServices(this.#options.iptables, candidates, candidates.length)",
      "Promise.resolve([])",
    ],
  ],
  "forward/shared_portals.ts": [
    [
      "the next proxy server takes sockets over",
      "if (this.#left.delete(former)) return this.#open.get(former)!;",
      "",
    ],
    [
      "former ports serve until other rules are in force",
      "left(): void {\n    clearTimeout(this.#timer);",
      "left(): void {\n    this.inForce();",
    ],
  ],
  "apply/listener.ts": [
    ["the Service's last bits", "(0xff >> fixed)", "0xff"],
    [
      "no policy applies",
      "const anywhere = { ...port, internalPolicyLocal: false, externalPolicyLocal: false };",
      "const anywhere = port;",
    ],
    ["who comes second is told", "if (holder !== undefined) {", "if (false) {"],
    ["who waited has its turn", "closed.length === 0 ? [] :", "true ? [] :"],
    ["another port stands in", "opening.port >= FIRST_FREE_PORT) throw error;", "true) throw error;"],
    ["ports without a right first", "isFree(other) - isFree(one)", "isFree(one) - isFree(other)"],
  ],
  "forward/tcp_portal.ts": [
    ["a closed half is passed on", "await to.closeWrite();", "await close();"],
    ["buffers are given back", "this.#giveBack(large);\n      this.#smallInUse--;", ""],
    ["directions that wait hold little", "this.#largeInUse >= MOST_LARGE", "false"],
    [
      "a dead endpoint gives way",
      "const endpoint = this.#balancer.pick(client, tries > 0);",
      "if (tries > 0) break;\n      const endpoint = this.#balancer.pick(client, false);",
    ],
    [
      "no processor is no dead endpoint",
      "timer = setTimeout(() => tooLong.abort(), NOTICE_MS);",
      "tooLong.abort();",
    ],
  ],
  "forward/udp_portal.ts": [
    [
      "strangers do not answer",
      "if (from.port !== endpoint.port || from.address !== endpoint.ip) return;",
      "",
    ],
    ["few end at a time", "if (restMs > 0 || left === 0) {", "if (restMs > 0) {"],
  ],
};

export const USERSPACE_MUTATIONS: readonly Mutation[] = Object.entries(WRONG).flatMap(([file, changes]) =>
  changes.map(([name, find, replace]) => ({
    name: `userspace: ${name}`,
    edits: [{ file: `${MODE}/${file}`, find, replace }],
    unitTests: true,
  }))
);
