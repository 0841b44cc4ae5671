import fc from "../../../../tests/support/fast_check.ts";
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ARBITRARY_CLUSTER } from "../../../../tests/support/arbitrary_objects.ts";
import { exampleOptions, examplePlan, exampleState } from "../../../../tests/support/golden.ts";
import { RestoredTables } from "../../../../tests/support/fake_iptables.ts";
import { fates, isMasqueradeReady } from "../../../../tests/support/rule_reachability.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { parseIptablesListing, unreadableTables } from "../../../netfilter/iptables_save.ts";
import { planIptables } from "../plan/plan.ts";
import type { IptablesPlan } from "../plan/ruleset.ts";
import { fullSync, type HeldTables, NOTHING_HELD } from "./full_sync.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };
/** Two chains to a block: every Service is a block of its own, and long ones are divided. */
const TINY = 2;
const WHOLE = Infinity;
const FOREIGN = "*nat\n:CNI-HOSTPORT - [0:0]\n:KUBE-PROXY-CANARY - [0:0]\n-A CNI-HOSTPORT -j ACCEPT\n" +
  "-A PREROUTING -j CNI-HOSTPORT\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n";

/** As iptables-save would print it, as far as it is read. */
function saved(tables: RestoredTables): string {
  let text = "";
  for (const table of ["filter", "nat"]) {
    const chains = tables.chains(table);
    text += `*${table}\n`;
    for (const name of chains.keys()) text += `:${name} ${/^[A-Z]+$/.test(name) ? "ACCEPT" : "-"} [0:0]\n`;
    for (const [name, rules] of chains) for (const rule of rules) text += `-A ${name} ${rule}\n`;
    text += "COMMIT\n";
  }
  return text;
}

function heldIn(text: string): HeldTables {
  return { tables: parseIptablesListing(text).tables, unreadable: unreadableTables(text) };
}

const observe = (tables: RestoredTables): HeldTables => heldIn(saved(tables));

/** Blocks that a full sync writes. */
function blocksOf(plan: IptablesPlan, held: HeldTables, mostChains: number): readonly string[] {
  return [...fullSync(plan, held, { family: "IPv4" }).transaction.blocks(mostChains)];
}

function synced(plan: IptablesPlan, start = ""): RestoredTables {
  const tables = new RestoredTables();
  tables.restore(start + blocksOf(plan, NOTHING_HELD, WHOLE).join(""));
  return tables;
}

const stateOf = (tables: RestoredTables): unknown =>
  ["filter", "nat"].map((table) => [...tables.chains(table)].toSorted(([a], [b]) => a < b ? -1 : 1));

for (const [name, mostChains] of [["many blocks", TINY], ["one block per table", WHOLE]] as const) {
  Deno.test(
    `a full sync in ${name} leads from any rules to those of a fresh start`,
    { permissions: PURE },
    () => {
      fc.assert(
        fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
          const tables = synced(examplePlan("IPv4", before), FOREIGN);
          const wanted = synced(examplePlan("IPv4", after), FOREIGN);
          const fatesBefore = fates(tables), fatesAfter = fates(wanted);
          for (const block of blocksOf(examplePlan("IPv4", after), observe(tables), mostChains)) {
            // Refuses a jump to nowhere and the deletion of a chain that is still in use.
            tables.restore(block);
            assert(isMasqueradeReady(tables));
            const now = fates(tables);
            for (const [match, { endpoints }] of fatesBefore) {
              const later = fatesAfter.get(match);
              if (endpoints.size === 0 || later === undefined) continue;
              const fate = now.get(match);
              const served = fate !== undefined && fate.endpoints.size > 0;
              assert(served || (later.endpoints.size === 0 && (fate?.hasVerdict ?? false)), `gap: ${match}`);
            }
          }
          assertEquals(stateOf(tables), stateOf(wanted));
        }),
        { numRuns: 150 },
      );
    },
  );
}

Deno.test(
  "a start on an empty node masquerades before it translates, and translates only to what is planned",
  {
    permissions: PURE,
  },
  () => {
    fc.assert(fc.property(ARBITRARY_CLUSTER, (objects) => {
      const tables = new RestoredTables();
      const plan = examplePlan("IPv4", objects);
      for (const block of blocksOf(plan, NOTHING_HELD, TINY)) {
        tables.restore(block);
        assert(isMasqueradeReady(tables));
        const planned = fates(synced(plan));
        for (const [match, { endpoints, hasVerdict }] of fates(tables)) {
          // A dispatch rule leads to all endpoints from the moment it is there; before that there may be a verdict.
          const wanted = planned.get(match)!;
          if (endpoints.size > 0) assertEquals(endpoints, wanted.endpoints);
          else assertEquals(hasVerdict, wanted.hasVerdict);
        }
      }
    }));
  },
);

const manyEndpoints = (count: number) => [
  testService({ ports: [testPort()] }),
  testSlice({
    endpoints: Array.from(
      { length: count },
      (_, index) => testSliceEndpoint(`10.1.${index >> 8}.${index & 255}`),
    ),
  }),
];

const tableOf = (block: string): string => block.slice(1, block.indexOf("\n"));

const chainLines = (block: string): number => block.match(/^:/gm)?.length ?? 0;

/** A node where no Service is served, but on which some were: full syncs there have all of their blocks. */
const SERVED_ONCE = observe(synced(examplePlan("IPv4", [])));

Deno.test("no block holds more chains than asked for, even of one Service", { permissions: PURE }, () => {
  const plan = examplePlan("IPv4", manyEndpoints(500));
  assertEquals(blocksOf(plan, SERVED_ONCE, 120).map(chainLines), [120, 120, 120, 120, 21, 1]);
  // With no Service served yet, filter and what nat needs anyway come first, with as many Services as one block takes: here none.
  assertEquals(blocksOf(plan, NOTHING_HELD, 120).map(chainLines), [7, 5, 120, 120, 120, 120, 21, 2]);
  // A Service without chains has no block of its own.
  const stale = blocksOf(examplePlan("IPv4", [testService({ name: "other" })]), observe(synced(plan)), 120);
  assertEquals(stale.map(chainLines), [1, 1, 120, 120, 120, 120, 21]);
  // The chain that chooses goes first: until then it jumps to the others.
  assert(stale[2]!.startsWith("*nat\n:KUBE-SVC-"));
});

Deno.test("Services share a block as long as their chains fit into it", { permissions: PURE }, () => {
  const services = [5, 5, 11, 5, 24].flatMap((count, at) => [
    testService({ name: `s${at}`, clusterIP: `10.96.1.${at}`, ports: [testPort()] }),
    testSlice({
      name: `s${at}-1`,
      serviceName: `s${at}`,
      endpoints: Array.from({ length: count }, (_, index) => testSliceEndpoint(`10.1.${at}.${index}`)),
    }),
  ]);
  const plan = examplePlan("IPv4", services);
  const blocks = [6 + 6, 12, 6, 12, 12, 1];
  assertEquals(blocksOf(plan, SERVED_ONCE, 12).map(chainLines), [...blocks, 1]);
  assertEquals(blocksOf(plan, NOTHING_HELD, 12).map(chainLines), [
    7,
    5 + 6 + 6,
    ...blocks.slice(1),
    2,
  ]);
});

/** What a table of nat would translate to. */
const endpointsOf = (tables: RestoredTables): number =>
  [...fates(tables).values()].reduce((sum, { endpoints }) => sum + endpoints.size, 0);

Deno.test(
  "where nothing leads to Services, the first ones are served by the first transaction of nat; else all at once",
  { permissions: PURE },
  () => {
    const services = Array.from({ length: 6 }, (_, at) => [
      testService({ name: `s${at}`, clusterIP: `10.96.1.${at}`, ports: [testPort()] }),
      testSlice({ name: `s${at}-1`, serviceName: `s${at}`, endpoints: [testSliceEndpoint(`10.1.1.${at}`)] }),
    ]).flat();
    const plan = examplePlan("IPv4", services);
    const served = (start: string): number[] => {
      const tables = new RestoredTables();
      tables.restore(start);
      return blocksOf(plan, observe(tables), 4).map((block) => {
        tables.restore(block);
        return endpointsOf(tables);
      });
    };
    assertEquals(served(FOREIGN), [0, 2, 2, 2, 6]);
    for (const chain of ["KUBE-SERVICES", "KUBE-NODEPORTS"]) {
      assertEquals(served(`*nat\n:${chain} - [0:0]\nCOMMIT\n`), [0, 0, 0, 0, 0, 6], chain);
    }
    // Chains that nothing leads to serve no client.
    assertEquals(served("*nat\n:KUBE-SEP-OLD - [0:0]\nCOMMIT\n"), [0, 2, 2, 2, 6, 6]);
    // It is unknown.
    const unreadable = heldIn("# Table `nat' is incompatible, use 'nft' tool.\n");
    assertEquals(blocksOf(plan, unreadable, 4).map(tableOf), [
      ...["nat", "nat", "nat", "nat"],
      "filter",
      "nat",
    ]);
  },
);

Deno.test(
  "each rule counts once as written, and one that is there already not at all",
  { permissions: PURE },
  () => {
    fc.assert(fc.property(ARBITRARY_CLUSTER, (objects) => {
      const plan = examplePlan("IPv4", objects);
      const { transaction, store } = fullSync(plan, NOTHING_HELD, { family: "IPv4" });
      const { counts: { filter, nat } } = transaction;
      const rules = store.ruleCounts.filter + store.ruleCounts.nat;
      assertEquals(filter + nat, rules + plan.base.jumps.length);
      const again = fullSync(plan, observe(synced(plan)), { family: "IPv4" }).transaction;
      assertEquals([again.counts, again.isEmpty], [{ filter: 0, nat: 0 }, true]);
    }));
  },
);

Deno.test("chains that go count against the rules that are written", { permissions: PURE }, () => {
  const held = observe(synced(examplePlan("IPv4", manyEndpoints(3))));
  const { counts } = fullSync(examplePlan("IPv4", []), held, { family: "IPv4" }).transaction;
  // The last rule of KUBE-SERVICES is written again, and four chains go.
  assertEquals(counts, { filter: 0, nat: 1 - 4 });
});

Deno.test("few chains need no blocks, and the legacy variant never has any", { permissions: PURE }, () => {
  const tables = (plan: IptablesPlan, mostChains: number): string[] =>
    blocksOf(plan, NOTHING_HELD, mostChains).map(tableOf);
  const few = examplePlan("IPv4", manyEndpoints(3));
  const [fit, excess] = [11, 12].map((count) => examplePlan("IPv4", manyEndpoints(count)));
  assertEquals(tables(fit!, 12), ["filter", "nat"]);
  assertEquals(tables(excess!, 12).length, 5);
  assertEquals(tables(few, 1_200), ["filter", "nat"]);
  assertEquals(tables(examplePlan("IPv4", manyEndpoints(500)), WHOLE), [
    "filter",
    "nat",
  ]);
});

/** Full sync of no Services over a filter table whose chains hold the given rules. */
function filterAfter(
  rules: Record<string, readonly string[]>,
  family: "IPv4" | "IPv6" = "IPv4",
): RestoredTables {
  const tables = new RestoredTables();
  const targets = ["SERVICES", "EXTERNAL-SERVICES", "NODEPORTS", "FORWARD", "PROXY-FIREWALL", "FIREWALL"];
  const lines = Object.entries(rules).flatMap(([chain, list]) => list.map((rule) => `-A ${chain} ${rule}`));
  const used = targets.filter((target) => lines.some((line) => line.endsWith(`-j KUBE-${target}`)));
  const declared = used.map((target) => `:KUBE-${target} - [0:0]`);
  tables.restore(["*filter", ...declared, ...lines, "COMMIT\n"].join("\n"));
  const plan = planIptables(exampleState(family, []), "all", exampleOptions(family));
  tables.restore([...fullSync(plan, observe(tables), { family }).transaction.blocks(WHOLE)].join(""));
  return tables;
}

const targetsOf = (tables: RestoredTables, table: string, chain: string): string[] =>
  tables.chains(table).get(chain)!.map((rule) => /-j (\S+)$/.exec(rule)![1]!);

Deno.test(
  "jumps end up in kube-proxy's order, before what others have there",
  { permissions: PURE },
  () => {
    const tables = synced(examplePlan("IPv4", []), FOREIGN);
    assertEquals(targetsOf(tables, "filter", "INPUT"), [
      "KUBE-FIREWALL",
      "KUBE-PROXY-FIREWALL",
      "KUBE-NODEPORTS",
      "KUBE-EXTERNAL-SERVICES",
      "ACCEPT",
    ]);
    assertEquals(targetsOf(tables, "filter", "FORWARD"), [
      "KUBE-PROXY-FIREWALL",
      "KUBE-FORWARD",
      "KUBE-SERVICES",
      "KUBE-EXTERNAL-SERVICES",
    ]);
    assertEquals(targetsOf(tables, "filter", "OUTPUT"), [
      "KUBE-FIREWALL",
      "KUBE-PROXY-FIREWALL",
      "KUBE-SERVICES",
    ]);
    assertEquals(targetsOf(tables, "nat", "PREROUTING"), ["KUBE-SERVICES", "CNI-HOSTPORT"]);
    assertEquals(targetsOf(tables, "nat", "OUTPUT"), ["KUBE-SERVICES"]);
    assertEquals(targetsOf(tables, "nat", "POSTROUTING"), ["KUBE-POSTROUTING"]);
  },
);

const FORWARD_RULES = synced(examplePlan("IPv4", [])).chains("filter").get("FORWARD")!;

Deno.test("a lost jump returns to its place, the others stay where they are", { permissions: PURE }, () => {
  for (let lost = 0; lost < FORWARD_RULES.length; lost++) {
    const rest = FORWARD_RULES.filter((_, index) => index !== lost);
    const tables = filterAfter({ FORWARD: ["-j ACCEPT", ...rest] });
    const found = tables.chains("filter").get("FORWARD")!;
    assertEquals(found.filter((rule) => rule !== "-j ACCEPT"), FORWARD_RULES);
  }
});

Deno.test("kubelet's jump behind others' rules does not draw ours behind them", { permissions: PURE }, () => {
  const tables = filterAfter({ INPUT: ["-j ACCEPT", "-j KUBE-FIREWALL"] });
  assertEquals(targetsOf(tables, "filter", "INPUT").slice(-2), ["ACCEPT", "KUBE-FIREWALL"]);
  assertEquals(targetsOf(tables, "filter", "INPUT").length, 5);
});

Deno.test("KUBE-FIREWALL: filled for IPv4 with localhost node ports, else only there; never emptied", {
  permissions: PURE,
}, () => {
  const filled = filterAfter({}).chains("filter").get("KUBE-FIREWALL")!;
  assertEquals(filled.length, 1);
  assertEquals(filterAfter({}, "IPv6").chains("filter").get("KUBE-FIREWALL"), []);
  const kubelets = filterAfter({ "KUBE-FIREWALL": ["-j DROP"], INPUT: ["-j KUBE-FIREWALL"] }, "IPv6");
  assertEquals(kubelets.chains("filter").get("KUBE-FIREWALL"), ["-j DROP"]);
});

Deno.test(
  "leftovers: chains of Services go, the canary and others' chains stay",
  { permissions: PURE },
  () => {
    const leftovers = ["FW", "XLB", "EXT", "SVL", "SVC", "SEP"].map((kind) => `KUBE-${kind}-OLD`);
    // Each jumps to the next, so that they can only be deleted in one order.
    const rules = leftovers.slice(1).map((chain, index) => `-A ${leftovers[index]} -j ${chain}`);
    const start = `*nat\n${leftovers.map((chain) => `:${chain} - [0:0]\n`).join("")}${rules.join("\n")}\n` +
      ":KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j KUBE-FW-OLD\nCOMMIT\n";
    for (const mostChains of [WHOLE, TINY, 1]) {
      const tables = new RestoredTables();
      tables.restore(FOREIGN + start);
      for (const block of blocksOf(examplePlan("IPv4", []), observe(tables), mostChains)) {
        tables.restore(block);
      }
      assertEquals([...tables.chains("nat").keys()].filter((chain) => chain.includes("-")).sort(), [
        "CNI-HOSTPORT",
        "KUBE-MARK-MASQ",
        "KUBE-NODEPORTS",
        "KUBE-POSTROUTING",
        "KUBE-PROXY-CANARY",
        "KUBE-SERVICES",
      ]);
      assertEquals(tables.chains("nat").get("CNI-HOSTPORT"), ["-j ACCEPT"]);
    }
  },
);

Deno.test("a plan of some Services is refused", { permissions: PURE }, () => {
  const plan = planIptables(exampleState("IPv4", []), new Set(["shop/web"]), exampleOptions("IPv4"));
  assertThrows(() => blocksOf(plan, NOTHING_HELD, WHOLE), TypeError, "all Services");
});
