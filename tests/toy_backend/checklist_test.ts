/** The checklist of `docs/adding-a-backend.md`, each step proven by the toy. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import fc from "../support/fast_check.ts";
import { removeLeftovers } from "../../lib/backend/node/leftovers.ts";
import { chooseMode } from "../../lib/backend/node/choose_mode.ts";
import { IMPLEMENTED_MODES } from "../../lib/backend/node/registry.ts";
import { defaultConfig } from "../../lib/config/defaults.ts";
import { parseConfig } from "../../lib/config/parse.ts";
import { PROXY_MODES } from "../../lib/config/types.ts";
import { ConfigError, SyncError, UnsupportedError } from "../../lib/errors.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { formatFlow, parsePacket } from "../../lib/sim/flow.ts";
import { Reconciler } from "../../lib/sync/family_runner.ts";
import { PERMISSIONS } from "../../tools/permissions.ts";
import { projectFiles, ROOT } from "../../tools/project_files.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { differences, type FlowBackend, optionsOf } from "../flows/flow_case.ts";
import { stateOf } from "../flows/planner_input.ts";
import { simulatedTable } from "../flows/simulated_table.ts";
import { ARBITRARY_CLUSTER, offerChanges } from "../support/arbitrary_objects.ts";
import { exampleState, exampleTracker } from "../support/golden.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../support/model_objects.ts";
import { modeContext } from "../support/mode_context.ts";
import { ToyMachine } from "./toy_machine.ts";
import { prepareToy, TOY_CLEANUP, ToyProxier } from "./toy_node.ts";
import { committedAfter, diffToy, parseToy, planToy, renderToy, rulesOf, type ToyRules } from "./toy_plan.ts";
import { ToySimulator } from "./toy_simulate.ts";

const PAGE = await Deno.readTextFile(`${ROOT}/docs/adding-a-backend.md`);
const PURE_TEXTS = await Promise.all(
  ["toy_plan.ts", "toy_simulate.ts"].map((file) => Deno.readTextFile(`${ROOT}/tests/toy_backend/${file}`)),
);
const FILES = await projectFiles();
const MODES_PAGE = await Deno.readTextFile(`${ROOT}/docs/modes.md`);
const HEADER = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
/** A machine under load must not take minutes. */
const RUNS = { numRuns: 50, interruptAfterTimeLimit: 20_000 };

function rulesFor(objects: readonly ApiObject[]): ToyRules {
  return rulesOf(committedAfter(planToy(exampleState("IPv4", objects), "all"), new Map()));
}

/** Flow cases that ask for nothing but cluster IPs, their endpoints, and sources that are not masqueraded. */
const SERVED: ReadonlySet<string> = new Set([
  "a cluster IP spreads evenly over its endpoints",
  "a cluster IP with one endpoint always takes it",
  "only a connection's first packet is redirected by rules",
  "ready endpoints on any node take cluster traffic",
  "a draining endpoint takes traffic while none is ready",
  "a draining endpoint takes nothing while another is ready",
  "an endpoint that does not say is ready",
  "zone hints keep traffic in the node's zone",
  "node hints come before zone hints",
]);

const TOY_BACKEND: FlowBackend = {
  name: "toy",
  gaps: Object.fromEntries(
    FLOW_CASES.filter(({ name }) => !SERVED.has(name)).map((
      { name },
    ) => [name, "it serves cluster IPs only"]),
  ),
  load(objects, options) {
    const simulatorOf = (family: "IPv4" | "IPv6"): ToySimulator => {
      const plan = planToy(stateOf(family, objects, options), "all");
      return new ToySimulator(rulesOf(committedAfter(plan, new Map())));
    };
    return simulatedTable({ IPv4: simulatorOf("IPv4"), IPv6: simulatorOf("IPv6") }, options);
  },
};

/** A node with the toy, driven as the program drives a mode. */
function toyNode(objects: readonly ApiObject[]) {
  const machine = new ToyMachine();
  const tracker = exampleTracker("IPv4", objects);
  const proxier = new ToyProxier(machine);
  const syncs: string[] = [];
  const reconciler = new Reconciler({
    tracker,
    proxier,
    nowMs: () => 0,
    observer: {
      synced: ({ full, services }) => void syncs.push(full ? "full" : [...services].sort().join()),
      failed: ({ error }) => void syncs.push(`failed ${error.phase}`),
    },
  });
  return { machine, tracker, proxier, reconciler, syncs };
}

const [BEFORE, AFTER] = [["10.244.0.11"], ["10.244.0.11", "10.244.0.12"]].map((addresses) =>
  clusterOf(["web", "api"], addresses)
) as [readonly ApiObject[], readonly ApiObject[]];

/** Services of these names, the first with endpoints at these addresses, the others with none. */
function clusterOf(names: readonly string[], addresses: readonly string[]): readonly ApiObject[] {
  return names.flatMap((name, index) => [
    testService({ name, clusterIP: `10.96.0.${index + 1}`, ports: [testPort({ port: 80 })] }),
    testSlice({
      name: `${name}-1`,
      serviceName: name,
      ports: [testSlicePort({ port: 8080 })],
      endpoints: index === 0 ? addresses.map((address) => testSliceEndpoint(address)) : [],
    }),
  ]);
}

const WEB = "tcp/10.96.0.1:80";
const API = "tcp/10.96.0.2:80";

/** How each step of the page is proven. Those of the pure half run without any permission. */
const PROOFS: Readonly<
  Record<string, { readonly isPure?: true; readonly prove: () => void | Promise<void> }>
> = {
  Words: {
    isPure: true,
    prove() {
      assertEquals([...rulesFor(BEFORE)], [[API, ""], [WEB, "10.244.0.11:8080"]]);
    },
  },
  Plan: {
    isPure: true,
    prove() {
      const { state } = exampleTracker("IPv4", BEFORE).checkout();
      const { all, services } = planToy(state, new Set(["shop/web", "shop/gone"]));
      assertEquals([all, [...services.keys()]], [false, ["shop/gone", "shop/web"]]);
      assertEquals(services.get("shop/gone"), null);
    },
  },
  Difference: {
    isPure: true,
    prove() {
      assertEquals(diffToy(rulesFor(AFTER), rulesFor(BEFORE)), [
        `set ${WEB} 10.244.0.11:8080,10.244.0.12:8080`,
      ]);
      assertEquals(diffToy(rulesFor(BEFORE.slice(2)), rulesFor(BEFORE)), [`delete ${WEB}`]);
      assertEquals(diffToy(rulesFor(BEFORE), rulesFor(BEFORE)), []);
    },
  },
  Memory: {
    isPure: true,
    prove() {
      const { state } = exampleTracker("IPv4", AFTER).checkout();
      const before = committedAfter(planToy(exampleState("IPv4", BEFORE), "all"), new Map());
      const after = committedAfter(planToy(state, new Set(["shop/web"])), before);
      assertEquals(rulesOf(after), rulesFor(AFTER));
      assertEquals(after.get("shop/api"), before.get("shop/api"));
    },
  },
  Text: {
    isPure: true,
    prove() {
      const rules = rulesFor(AFTER);
      const text = renderToy(rules);
      assertEquals(text, `${WEB} 10.244.0.11:8080,10.244.0.12:8080\n${API} refuse\n`);
      assertEquals(parseToy(text), rules);
      assertEquals(renderToy(new Map([...rules].reverse())), text);
    },
  },
  Simulator: {
    isPure: true,
    prove() {
      const simulator = new ToySimulator(rulesFor(AFTER));
      const around = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };
      const way = (packet: string): string => formatFlow(simulator.send(parsePacket(packet), around));
      assertEquals(
        way("10.244.1.5 → 10.96.0.1:80"),
        "10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade no",
      );
      assertEquals(way("10.244.1.5 → 10.96.0.2:80"), "rejected");
      assertEquals(way("10.244.1.5 → 10.96.0.1:81"), "untranslated");
    },
  },
  Laws: {
    isPure: true,
    prove() {
      fc.assert(
        fc.property(fc.array(ARBITRARY_CLUSTER, { minLength: 2, maxLength: 4 }), (clusters) => {
          const tracker = exampleTracker("IPv4", []);
          let [known, there]: [readonly ApiObject[], ToyRules] = [[], new Map()];
          let committed = committedAfter(planToy(tracker.checkout().state, "all"), new Map());
          for (const cluster of clusters) {
            offerChanges(tracker, known, cluster);
            known = cluster;
            const { state, updatedServices } = tracker.checkout();
            committed = committedAfter(planToy(state, updatedServices), committed);
            const wanted = rulesOf(committed);
            there = applied(there, diffToy(wanted, there));
            assertEquals(there, wanted);
            assertEquals(diffToy(wanted, there), []);
          }
          assertEquals(renderToy(there), renderToy(rulesFor(known)));
          assertEquals(renderToy(rulesFor([...known].reverse())), renderToy(rulesFor(known)));
        }),
        RUNS,
      );
    },
  },
  "Flow cases": {
    isPure: true,
    prove() {
      const run = FLOW_CASES.filter(({ name }) => TOY_BACKEND.gaps[name] === undefined);
      assertEquals(run.length, SERVED.size);
      for (const flowCase of run) {
        const table = TOY_BACKEND.load(flowCase.objects, optionsOf(flowCase));
        assertEquals(differences(table, flowCase.flows, "toy"), [], flowCase.name);
      }
      // What it declares as a gap is one: some case of those asks for what it does not do.
      const beyond = FLOW_CASES.find(({ name }) => name === "with masqueradeAll pods are masqueraded too");
      assert(beyond !== undefined);
      const table = TOY_BACKEND.load(beyond.objects, optionsOf(beyond));
      assert(differences(table, beyond.flows, "toy").length > 0);
    },
  },
  "No permissions": {
    isPure: true,
    prove() {
      assertEquals(Deno.permissions.querySync({ name: "read" }).state === "granted", false);
      for (const text of PURE_TEXTS) {
        assertEquals(/\b(?:Deno|fetch|Date|performance|Math\.random)\b/.exec(text), null);
      }
    },
  },
  Proxier: {
    async prove() {
      const { machine, tracker, reconciler, syncs } = toyNode(BEFORE);
      machine.rules.set("tcp/10.96.9.9:80", "10.244.9.9:8080");
      await reconciler.reconcile();
      assertEquals(new Map(machine.rules), rulesFor(BEFORE));
      machine.loaded.length = 0;
      offerChanges(tracker, BEFORE, AFTER);
      await reconciler.reconcile();
      assertEquals(machine.loaded, [`set ${WEB} 10.244.0.11:8080,10.244.0.12:8080`]);
      assertEquals(syncs, ["full", "shop/web"]);
    },
  },
  "After a failure": {
    async prove() {
      const { machine, tracker, reconciler, syncs } = toyNode(BEFORE);
      await reconciler.reconcile();
      offerChanges(tracker, BEFORE, AFTER);
      machine.refusedLine = `set ${WEB} 10.244.0.11:8080,10.244.0.12:8080`;
      const error = await assertRejects(() => reconciler.reconcile(), SyncError);
      assertEquals([error.mode, error.phase], ["toy", "apply"]);
      // The old way is still open.
      assertEquals(machine.rules.get(WEB), "10.244.0.11:8080");
      machine.refusedLine = null;
      machine.rules.delete(API);
      await reconciler.reconcile();
      assertEquals(new Map(machine.rules), rulesFor(AFTER));
      assertEquals(syncs, ["full", "failed apply", "full"]);
    },
  },
  Damage: {
    async prove() {
      const { machine, proxier, reconciler } = toyNode(BEFORE);
      assertEquals(await proxier.findDamage(), false);
      await reconciler.reconcile();
      assertEquals(await proxier.findDamage(), false);
      machine.rules.set(WEB, "10.244.66.66:8080");
      assertEquals(await proxier.findDamage(), [`set ${WEB} 10.244.0.11:8080`]);
      reconciler.requireFullSync();
      await reconciler.reconcile();
      assertEquals([machine.rules.get(WEB), await proxier.findDamage()], ["10.244.0.11:8080", false]);
    },
  },
  Preparation: {
    async prove() {
      const machine = new ToyMachine();
      const context = { ...await modeContext({ exec: machine, config: defaultConfig(), log: silentLogger }) };
      const { proxiers, refused } = await prepareToy(context);
      assertEquals([proxiers.map(({ family }) => family), refused], [["IPv4"], []]);
      machine.hasProgram = false;
      await assertRejects(() => prepareToy(context), UnsupportedError, "the program toyctl");
    },
  },
  Cleanup: {
    async prove() {
      const machine = new ToyMachine();
      machine.rules.set(WEB, "10.244.0.11:8080");
      const clean = async (dryRun: boolean): Promise<readonly string[]> => {
        const report = await TOY_CLEANUP.removeOthers?.({ exec: machine, families: ["IPv4"], dryRun });
        return report?.removed.map(({ command }) => command) ?? [];
      };
      assertEquals(await clean(true), [`delete ${WEB}`]);
      assertEquals(machine.rules.size, 1);
      assertEquals(await clean(false), [`delete ${WEB}`]);
      assertEquals([await clean(false), machine.rules.size], [[], 0]);
      // Each real mode has its line: a look at all of them on a machine without programs finds nothing and fails at nothing.
      const modes = IMPLEMENTED_MODES.filter((mode) => mode !== "auto");
      for (const mode of modes) {
        const { removed } = await removeLeftovers([mode], { exec: NO_PROGRAMS, families: [], dryRun: true });
        assertEquals(removed, [], mode);
      }
    },
  },
  Programs: {
    prove() {
      const allowed =
        PERMISSIONS.find(({ flag }) => flag === "--allow-run")?.grants.map(({ value }) => value) ?? [];
      for (const program of ["nft", "ipvsadm", "ipset", "iptables-restore"]) {
        assert(allowed.includes(program));
      }
      // The toy's own program is none of them: kproxy could not start it.
      assertEquals(allowed.includes("toyctl"), false);
    },
  },
  Registry: {
    async prove() {
      // The toy stands in the place of a mode that exists, since the names are fixed.
      const machine = new ToyMachine();
      const config = { ...defaultConfig(), mode: "nftables" as const };
      const context = await modeContext({ exec: machine, config, log: silentLogger });
      const chosen = await chooseMode(new Map([["nftables", prepareToy]]), context);
      assertEquals([chosen.mode, chosen.prepared.proxiers.length], ["nftables", 1]);
      machine.hasProgram = false;
      await assertRejects(
        () => chooseMode(new Map([["nftables", prepareToy]]), context),
        UnsupportedError,
        "the program toyctl",
      );
    },
  },
  Name: {
    prove() {
      for (const mode of IMPLEMENTED_MODES) assert(PROXY_MODES.includes(mode), mode);
      try {
        parseConfig(`${HEADER}mode: toy\n`);
      } catch (error) {
        assert(error instanceof ConfigError);
        assertStringIncludes(error.message, "toy");
        return;
      }
      throw new Error("a mode that nobody has named is taken");
    },
  },
  Documentation: {
    prove() {
      for (const mode of IMPLEMENTED_MODES) {
        assert(FILES.includes(`lib/backend/${mode}/README.md`), mode);
        assert(new RegExp(`^## Mode ${mode}$`, "im").test(MODES_PAGE), mode);
      }
    },
  },
};

/** No program is there. */
const NO_PROGRAMS = Object.assign(new ToyMachine(), { hasProgram: false });

/** What the toy's program makes of operations. */
function applied(there: ToyRules, operations: readonly string[]): ToyRules {
  const rules = new Map(there);
  for (const operation of operations) {
    const [verb, ...rest] = operation.split(" ");
    if (verb === "delete") rules.delete(rest.join(" "));
    else for (const [destination, endpoints] of parseToy(rest.join(" "))) rules.set(destination, endpoints);
  }
  return rules;
}

/** Names of the steps, in order. */
function stepsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^- \[ \] \*\*(.+?)\*\*/gm)].map(([, name = ""]) => name);
}

Deno.test("every step of the page has a proof, and every proof a step", { permissions: "none" }, () => {
  const steps = stepsOf(PAGE);
  assertEquals(new Set(steps).size, steps.length);
  assertEquals(steps.filter((step) => PROOFS[step] === undefined), [], "steps without a proof");
  assertEquals(Object.keys(PROOFS).filter((name) => !steps.includes(name)), [], "proofs without a step");
  // What is not written as a step, but looks like one, would be passed over.
  assertEquals(PAGE.match(/^- \[/gm)?.length, steps.length);
});

for (const [step, { isPure = false, prove }] of Object.entries(PROOFS)) {
  Deno.test({
    name: `a toy takes the step "${step}"`,
    ...(isPure ? { permissions: "none" } : {}),
    fn: () => prove(),
  });
}
