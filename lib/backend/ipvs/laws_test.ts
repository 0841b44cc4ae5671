/** The laws of docs/architecture.md, and that nothing is ever half there, over random clusters. */
import fc from "../../../tests/support/fast_check.ts";
import { assert, assertEquals } from "@std/assert";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../tests/support/arbitrary_objects.ts";
import { exampleTracker } from "../../../tests/support/golden.ts";
import { exampleIpvsOptions, exampleIpvsPlan } from "../../../tests/support/golden_ipvs.ts";
import { KernelModel, workOf } from "../../../tests/support/ipvs_kernel.ts";
import type { ApiObject, IpFamily } from "../../model/objects.ts";
import { addRealServerLine, addVirtualServerLine } from "../../netfilter/ipvs.ts";
import { planIpvs } from "./plan/plan.ts";
import type { IpvsOptions, IpvsPlan } from "./plan/ruleset.ts";
import { NOTHING_HELD } from "../iptables/store/full_sync.ts";
import type { HeldObjects, Ownership } from "./store/objects.ts";
import { IpvsStore, planTexts, renderPlan } from "./store/store.ts";
import type { IpvsTransaction } from "./store/transaction.ts";

const pure = { permissions: "none" } as const;
const OPTIONS = exampleIpvsOptions("IPv4", {
  // One of the addresses that Services share is the node's own.
  hostIps: ["192.0.2.10", "203.0.113.8"],
  nodePortIps: ["192.0.2.10"],
});

type Cluster = readonly ApiObject[];

function planOf(objects: Cluster): IpvsPlan {
  return exampleIpvsPlan("IPv4", objects, OPTIONS);
}

function syncOver(plan: IpvsPlan, held: HeldObjects, ownership: Ownership): IpvsTransaction {
  return new IpvsStore(plan).fullSync({ ...NOTHING_HELD, ...held }, ownership);
}

/** Transaction of a first start. */
function fresh(plan: IpvsPlan, options: IpvsOptions = OPTIONS): IpvsTransaction {
  return syncOver(plan, new KernelModel().observe(), options);
}

/** Plan of what changed, and of everything. */
function change(before: Cluster, after: Cluster, family: IpFamily = "IPv4") {
  const tracker = exampleTracker(family, before);
  tracker.checkout();
  offerChanges(tracker, before, after);
  const { state, updatedServices } = tracker.checkout();
  return planIpvs(state, updatedServices, OPTIONS);
}

Deno.test("nothing is written where nothing changed", pure, () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, (objects) => {
    const plan = planOf(objects);
    assertEquals(new IpvsStore(plan).change(plan).steps, []);
    assertEquals(syncOver(plan, KernelModel.after(fresh(plan)).observe(), OPTIONS).steps, []);
  }));
});

Deno.test("a difference leads to what a fresh full sync makes, and back again", pure, () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
    const [old, wanted] = [planOf(before), planOf(after)];
    const kernel = KernelModel.after(fresh(old));
    const start = kernel.snapshot();
    const committed = new IpvsStore(old);
    for (const [plan, expected] of [[change(before, after), wanted], [change(after, before), old]] as const) {
      kernel.apply(committed.change(plan));
      assertEquals(kernel.snapshot(), KernelModel.after(fresh(expected)).snapshot());
      assertEquals(committed.change(expected).steps, []);
      assertEquals(committed.counts, new IpvsStore(expected).counts);
    }
    assertEquals(kernel.snapshot(), start);
  }));
});

Deno.test("a full sync over any other state leads to what a fresh one makes", pure, () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
    const plan = planOf(after);
    const kernel = KernelModel.after(fresh(planOf(before)));
    kernel.apply(syncOver(plan, kernel.observe(), OPTIONS));
    assertEquals(kernel.snapshot(), KernelModel.after(fresh(plan)).snapshot());
  }));
});

/** Ends what a process writes after so many of its lines, from the first one again where there are fewer. */
function doSome(kernel: KernelModel, operations: IpvsTransaction, stop: number): void {
  const work = workOf(operations);
  for (const one of work.slice(0, stop % (work.length + 1))) kernel.do(one);
}

Deno.test("killed after any line, the next full sync leaves nothing behind", pure, () => {
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, fc.nat(), (before, after, stop) => {
      const old = planOf(before);
      const plan = planOf(after);
      const kernel = KernelModel.after(fresh(old));
      doSome(kernel, new IpvsStore(old).change(change(before, after)), stop);
      kernel.apply(syncOver(plan, kernel.observe(), OPTIONS));
      assertEquals(kernel.snapshot(), KernelModel.after(fresh(plan)).snapshot());
    }),
    { numRuns: 300 },
  );
});

Deno.test("nor if each process is killed on its way to other Services than the one before", pure, () => {
  const process = fc.record({ objects: ARBITRARY_CLUSTER, stop: fc.nat() });
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, fc.array(process, { minLength: 1, maxLength: 4 }), (first, processes) => {
      const kernel = KernelModel.after(fresh(planOf(first)));
      for (const { objects, stop } of processes) {
        doSome(kernel, syncOver(planOf(objects), kernel.observe(), OPTIONS), stop);
      }
      const last = planOf([]);
      kernel.apply(syncOver(last, kernel.observe(), OPTIONS));
      assertEquals(kernel.snapshot(), KernelModel.after(fresh(last)).snapshot());
    }),
    { numRuns: 300 },
  );
});

Deno.test("at most one step for a program, two where one server goes and another one comes", pure, () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
    for (
      const { steps } of [
        new IpvsStore(planOf(before)).change(change(before, after)),
        fresh(planOf(after)),
      ]
    ) {
      const changes = steps.flatMap(({ changes }) => changes);
      const kinds = new Set(changes.map(({ kind }) => kind));
      const isTwice = kinds.has("deleteServer") && kinds.has("addServer");
      const programs = steps.map(({ program }) => program);
      const times = programs.length - new Set(programs).size;
      assert(times <= (isTwice ? 1 : 0), programs.join(" "));
    }
  }));
});

/** Lines of `ipvsadm` that make each server of a plan, by address. */
function serversByAddress(plan: IpvsPlan): Map<string, Set<string>> {
  const lines = new Map<string, Set<string>>();
  for (const { server, realServers } of new IpvsStore(plan).servers()) {
    const ofAddress = lines.get(server.address) ?? new Set();
    lines.set(server.address, ofAddress);
    ofAddress.add(addVirtualServerLine(server));
    for (const key of realServers) {
      const [address, port] = [
        key.slice(0, key.lastIndexOf(":")),
        Number(key.slice(key.lastIndexOf(":") + 1)),
      ];
      ofAddress.add(addRealServerLine(server, { address, port, weight: 1 }));
    }
  }
  return lines;
}

Deno.test(
  "an address answers only when its servers are in, and its entries and rules with them",
  pure,
  () => {
    fc.assert(fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
      const plan = planOf(after);
      const kernel = KernelModel.after(fresh(planOf(before)));
      const wanted = serversByAddress(plan);
      const finalSets = KernelModel.after(fresh(plan)).sets;
      for (const work of workOf(new IpvsStore(planOf(before)).change(change(before, after)))) {
        kernel.do(work);
        const bound = work.program === "ip" ? /^address add (\S+)\//.exec(work.line)?.[1] : undefined;
        if (bound === undefined) continue;
        const there = new Set((kernel.snapshot() as { servers: string[] }).servers);
        for (const line of wanted.get(bound) ?? []) assert(there.has(line), `${bound} before ${line}`);
        for (const [name, { entries }] of finalSets) {
          for (const entry of entries) {
            if (entry.startsWith(bound)) {
              assert(kernel.sets.get(name)?.entries.has(entry), `${bound}: ${entry}`);
            }
          }
        }
      }
    }));
  },
);

Deno.test("a plan does not depend on the order of events", pure, () => {
  fc.assert(
    fc.property(
      ARBITRARY_CLUSTER.chain((objects) =>
        fc.tuple(fc.constant(objects), fc.shuffledSubarray([...objects], { minLength: objects.length }))
      ),
      ([objects, shuffled]) => {
        assertEquals(renderPlan(planOf(shuffled)), renderPlan(planOf(objects)));
      },
    ),
  );
});

Deno.test("what is written is what its tools' texts say", pure, () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, (objects) => {
    const plan = planOf(objects);
    const kernel = KernelModel.after(fresh(plan));
    const texts = planTexts(plan);
    const { servers } = kernel.snapshot() as { servers: string[] };
    assertEquals(texts.ipvsadm.split("\n").filter((line) => line !== "").sort(), servers);
    const entries = [...kernel.sets].flatMap(([name, set]) =>
      [...set.entries].map((entry) => `add ${name} ${entry}`)
    );
    assertEquals(texts.ipset.split("\n").filter((line) => line.startsWith("add ")).sort(), entries.sort());
  }));
});

Deno.test("foreign virtual servers and addresses of other devices stay through every sync", pure, () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
    const kernel = KernelModel.after(fresh(planOf(before)));
    const foreign = ["-t 192.0.2.10:8443", "-u 198.51.100.250:53", "-t [2001:db8:2::10]:30000"];
    for (const server of foreign) kernel.servers.set(server, { options: "-s wlc", real: new Map() });
    kernel.apply(syncOver(planOf(after), kernel.observe(), OPTIONS));
    kernel.apply(new IpvsStore(planOf(after)).change(change(after, [])));
    kernel.apply(syncOver(planOf([]), kernel.observe(), OPTIONS));
    assertEquals([...kernel.servers.keys()], foreign);
  }));
});
