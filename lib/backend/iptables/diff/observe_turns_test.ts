import { assertEquals } from "@std/assert";
import { exampleOptions, exampleState } from "../../../../tests/support/golden.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import { planIptables } from "../plan/plan.ts";
import { CommittedRules } from "./committed.ts";
import { sentinels } from "./observe_canary.ts";
import { lookText } from "./observe_damage.ts";
import { type CheckLimits, type CheckTurn, CheckTurns } from "./observe_turns.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

/** What the kernel holds of Services `shop/a`, `shop/b`, … with so many endpoints each: a chain for each, and one that chooses. */
function committedOf(...endpoints: readonly number[]): CommittedRules {
  const objects = endpoints.flatMap((count, index) => {
    const name = "abcdef"[index]!;
    const ips = Array.from({ length: count }, (_, at) => testSliceEndpoint(`10.1.${index}.${at}`));
    return [
      testService({ name, clusterIP: `10.96.0.${index + 1}`, ports: [testPort()] }),
      testSlice({ name: `${name}-1`, serviceName: name, endpoints: ips }),
    ];
  });
  return CommittedRules.of(planIptables(exampleState("IPv4", objects), "all", exampleOptions("IPv4")));
}

const LIMITS: CheckLimits = { savedChains: 4, mostSavedChains: 100, listedChains: 3, sharedRules: 100 };
const NOTHING = { services: [], shared: false };

/** `whole`, or the letters of Services whose chains are listed, with `+` where the shared chains are. */
function said({ ask, services, shared }: CheckTurn): string {
  if (ask === "whole") return `whole${services.size}`;
  return [...services].map((name) => name.slice("shop/".length)).join("") + (shared ? "+" : "");
}

interface Case {
  readonly endpoints: readonly number[];
  readonly limits: Partial<CheckLimits>;
  /** Of one look after another. */
  readonly turns: readonly string[];
}

const CASES: Readonly<Record<string, Case>> = {
  "few chains: always everything": { endpoints: [1, 1], limits: {}, turns: ["whole2", "whole2"] },
  "twice as many chains: every other look, and between them the shared ones": {
    endpoints: [3, 3],
    limits: {},
    turns: ["whole2", "+", "whole2", "+", "whole2"],
  },
  "one chain more: every third look": {
    endpoints: [3, 4],
    limits: {},
    turns: ["whole2", "+", "+", "whole2", "+"],
  },
  "as many chains as may be read at once": {
    endpoints: [1, 1],
    limits: { mostSavedChains: 4, savedChains: 2 },
    turns: ["whole2", "+", "whole2"],
  },
  "more than that: Services take turns, by their chains, and begin anew at the end": {
    endpoints: [1, 1, 1, 4, 0],
    limits: { mostSavedChains: 4 },
    turns: ["ab+", "cd+", "ea+", "bc+", "d+"],
  },
  "none is looked at twice in one look": {
    endpoints: [1, 1, 1],
    limits: { mostSavedChains: 4, listedChains: 100 },
    turns: ["abc+", "abc+"],
  },
  "none at all, if no chain may be listed": {
    endpoints: [1, 1, 1],
    limits: { mostSavedChains: 4, listedChains: 0 },
    turns: ["+", "+"],
  },
  "shared chains with many rules: every other look": {
    endpoints: [1, 1, 1, 1],
    limits: { mostSavedChains: 4, sharedRules: 2 },
    turns: ["ab+", "cd", "ab+", "cd"],
  },
  "shared chains with one rule more than that: every third": {
    endpoints: [1, 1, 1, 1, 1],
    limits: { mostSavedChains: 4, sharedRules: 2 },
    turns: ["ab+", "cd", "ea", "bc+"],
  },
};

for (const [name, { endpoints, limits, turns }] of Object.entries(CASES)) {
  Deno.test(`what looks are about: ${name}`, { permissions: PURE }, () => {
    const committed = committedOf(...endpoints);
    const checks = new CheckTurns({ ...LIMITS, ...limits });
    assertEquals(turns.map(() => said(checks.next(committed, NOTHING))), turns);
  });
}

Deno.test(
  "after a full sync, and after a look that came to no end, everything is due",
  { permissions: PURE },
  () => {
    const checks = new CheckTurns(LIMITS);
    const committed = committedOf(3, 3);
    const next = (of: CommittedRules): string => said(checks.next(of, NOTHING));
    assertEquals([next(committed), next(committed)], ["whole2", "+"]);
    assertEquals(next(committedOf(3, 3)), "whole2");
    assertEquals(next(committed), "whole2");
    checks.notSeen();
    assertEquals([next(committed), next(committed)], ["whole2", "+"]);
  },
);

Deno.test("what is due again is looked at beside those whose turn it is", { permissions: PURE }, () => {
  const limits = { ...LIMITS, mostSavedChains: 4, listedChains: 1, sharedRules: 1 };
  const checks = new CheckTurns(limits);
  const committed = committedOf(1, 1, 1, 1);
  const next = (services: readonly NamespacedName[], shared: boolean): string =>
    said(checks.next(committed, { services, shared }));
  assertEquals([next([], false), next([], false)], ["a+", "b"]);
  assertEquals(next(["shop/a", "shop/gone"], true), "ac+");
  assertEquals([next([], false), next([], false)], ["d", "a"]);
});

Deno.test("a listing names what a look is about, each chain in its own table", { permissions: PURE }, () => {
  const committed = committedOf(0, 1);
  const wanted = sentinels(committed.base);
  const chains = committed.service("shop/b")!.chains.split(" ");
  assertEquals(chains.length, 2);
  const listed = (services: readonly NamespacedName[], shared: boolean): Record<string, string[]> => {
    const turn = { ask: "chains", services: new Set(services), shared } as const;
    const text = lookText(wanted, turn, committed, ["nat", "filter", "mangle"]);
    return Object.fromEntries(
      text.split("COMMIT\n").slice(0, -1).map((table) => {
        const [name, ...lines] = table.trimEnd().split("\n");
        return [name!, lines.map((line) => line.replace("-S ", ""))];
      }),
    );
  };
  const base = (table: "nat" | "filter"): string[] => ["KUBE-PROXY-CANARY", ...wanted.get(table)!.keys()];
  const canary = { "*mangle": ["KUBE-PROXY-CANARY"] };
  assertEquals(listed(["shop/a", "shop/b"], false), {
    "*nat": [...base("nat"), ...chains],
    "*filter": base("filter"),
    ...canary,
  });
  assertEquals(listed([], true), {
    "*nat": [...base("nat"), "KUBE-SERVICES", "KUBE-NODEPORTS"],
    "*filter": [
      ...base("filter"),
      ...["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"],
    ],
    ...canary,
  });
});
