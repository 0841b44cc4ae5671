import { assertEquals, assertThrows } from "@std/assert";
import fc from "../../../../tests/support/fast_check.ts";
import { ARBITRARY_CLUSTER } from "../../../../tests/support/arbitrary_objects.ts";
import { examplePlan } from "../../../../tests/support/golden.ts";
import { groupByChain } from "../../../netfilter/iptables_chains.ts";
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { hashBodies } from "./chain_bodies.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

Deno.test("each chain's hash and count are those of its lines, whatever stands between them", {
  permissions: PURE,
}, () => {
  const check = (lines: readonly string[], chains: readonly string[]): void => {
    const bodies = groupByChain(lines);
    assertEquals(hashBodies(lines.join("\n"), chains), {
      hashes: chains.map((chain) => hashRules(bodies.get(chain) ?? [])),
      counts: chains.map((chain) => bodies.get(chain)?.length ?? 0),
    });
  };
  check([], []);
  check([], ["A"]);
  // A name may begin as another one does.
  check(["-A AB 1", "-A A 2", "-A AB 3", "-A C 4", "-A A 5"], ["A", "AB", "C"]);
  fc.assert(fc.property(ARBITRARY_CLUSTER, (objects) => {
    for (const rules of examplePlan("IPv4", objects).services.values()) {
      if (rules !== null) check(rules.rules, rules.chains);
    }
  }));
});

Deno.test("a line of another chain is none of theirs", { permissions: PURE }, () => {
  assertThrows(() => hashBodies("-A A 1\n-A B 2", ["A"]), TypeError, "-A B 2");
  assertThrows(() => hashBodies("-A AB 1", ["A"]), TypeError, "none of the chains A");
});
