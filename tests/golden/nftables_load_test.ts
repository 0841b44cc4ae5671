/**
 * The golden tables on the real nft: they load, they read back as planned, a full sync over what is there and a difference end in
 * them.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import fc from "../support/fast_check.ts";
import { TABLE_COMMENT } from "../../lib/backend/nftables/plan/chains.ts";
import { planNftables } from "../../lib/backend/nftables/plan/plan.ts";
import type { NftablesOptions, NftablesPlan } from "../../lib/backend/nftables/plan/ruleset.ts";
import { FullSync, renderPlan } from "../../lib/backend/nftables/store/full_sync.ts";
import type { NftStore } from "../../lib/backend/nftables/store/store.ts";
import type { ApiObject, IpFamily } from "../../lib/model/objects.ts";
import type { NftTransaction } from "../../lib/netfilter/nft_objects.ts";
import { parseTable } from "../../lib/netfilter/nft_listing.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../support/model_objects.ts";
import { ARBITRARY_CLUSTER, offerChanges } from "../support/arbitrary_objects.ts";
import { exampleTracker, goldenNames, loadGolden } from "../support/golden.ts";
import {
  exampleNftablesOptions,
  exampleNftablesPlan,
  loadGoldenNftables,
  syncedStore,
} from "../support/golden_nftables.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("ip"), program("nft")];
const WORDS = { IPv4: "ip", IPv6: "ip6" } as const;

async function load(netns: Netns, text: string): Promise<void> {
  if (text !== "") await netns.run(["nft", "-f", "-"], { stdin: text });
}

async function write(netns: Netns, { family }: NftablesPlan, ...all: NftTransaction[]): Promise<void> {
  await load(netns, all.flatMap((one) => one.lines(`${WORDS[family]} kproxy`)).join("\n"));
}

async function list(netns: Netns, family: IpFamily): Promise<string> {
  return await netns.run(["nft", "-a", "list", "table", WORDS[family], "kproxy"]);
}

/** A full sync over what is there: what it would write, and what is held then. */
async function fullSync(netns: Netns, plan: NftablesPlan): Promise<Resync> {
  const listed = parseTable(await list(netns, plan.family));
  const sync = new FullSync(plan, listed);
  const services = [...sync.services()].map(({ transaction }) => transaction);
  return { comment: listed.comment, written: [sync.base, ...services, sync.leftover()], store: sync.store };
}

interface Resync {
  readonly comment: string;
  readonly written: readonly NftTransaction[];
  readonly store: NftStore;
}

function linesOf({ written }: Resync): readonly string[] {
  return written.flatMap((transaction) => transaction.lines("t"));
}

/** What was read is what was planned, to the letter: a full sync has nothing to do. */
async function assertHolds(netns: Netns, plan: NftablesPlan): Promise<void> {
  const sync = await fullSync(netns, plan);
  assertEquals([sync.comment, linesOf(sync)], [plan.base.comment, []]);
}

for (const family of ["IPv4", "IPv6"] as const) {
  e2eTest(`golden tables on the real nft, ${family}`, NEEDS, async (t) => {
    for (const name of goldenNames()) {
      const text = loadGoldenNftables(name)[family];
      if (text === undefined) continue;
      const { objects, before } = loadGolden(name);
      const plan = exampleNftablesPlan(family, objects);
      await t.step(name, () =>
        withNetns(async (netns) => {
          await netns.run(["nft", "--check", "-f", "-"], { stdin: text });
          await load(netns, text);
          await assertHolds(netns, plan);
          await netns.run(["nft", "delete", "table", WORDS[family], "kproxy"]);
          await checkChange(netns, exampleNftablesPlan(family, before ?? []), plan);
        }));
    }
  });
}

/** By a difference, back by another one, and by a full sync over what is there. */
async function checkChange(netns: Netns, before: NftablesPlan, after: NftablesPlan): Promise<void> {
  const store = syncedStore(before);
  await load(netns, renderPlan(before));
  for (const plan of [after, before]) {
    // A change is of some Services: of those that are gone, too.
    const gone = [...store.serviceNames].filter((name) => !plan.services.has(name));
    const services = new Map([...gone.map((name) => [name, null] as const), ...plan.services]);
    const { transaction, commit } = store.change({ ...plan, services });
    await write(netns, plan, transaction);
    commit();
    const again = await fullSync(netns, plan);
    // Chains that are no longer used stay behind, empty if they were of one Service.
    assertEquals(linesOf(again).filter((line) => !line.startsWith("flush chain")), []);
    assertEquals(again.store.counts.elements, store.counts.elements);
  }
  const full = await fullSync(netns, after);
  await write(netns, after, ...full.written);
  for (const chain of full.written.flatMap(({ flushedChains }) => flushedChains)) {
    await netns.run(["nft", "delete", "chain", WORDS[after.family], "kproxy", chain]);
  }
  await assertHolds(netns, after);
}

e2eTest(
  "generated changes load one after another and read back as planned",
  NEEDS,
  () =>
    withNetns(async (netns) => {
      const options = exampleNftablesOptions("IPv4");
      const [first, ...others] = fc.sample(ARBITRARY_CLUSTER, { numRuns: 40, seed: 7 });
      const tracker = exampleTracker("IPv4", first!);
      const start = planNftables(tracker.checkout().state, "all", options);
      const store = syncedStore(start);
      await load(netns, renderPlan(start));
      let before = first!;
      for (const after of others) {
        offerChanges(tracker, before, after);
        before = after;
        const { state, updatedServices } = tracker.checkout();
        const plan = planNftables(state, updatedServices, options);
        const { transaction, commit } = store.change(plan);
        await write(netns, plan, transaction);
        commit();
        const again = await fullSync(netns, planNftables(state, "all", options));
        // Chains that are no longer used stay behind.
        assertEquals(linesOf(again).filter((line) => !line.startsWith("flush chain")), []);
      }
    }),
);

/** The longest names that the API takes: labels of 63 characters; port names are at most 15, but longer ones are not stopped here. */
function longNames(family: IpFamily): readonly ApiObject[] {
  const namespace = "n".repeat(63);
  const name = "s".repeat(63);
  const ports = ["p".repeat(63), "q".repeat(63)];
  const ip = (last: number): string => family === "IPv4" ? `10.96.0.${last}` : `fd00:10:96::${last}`;
  const pods = family === "IPv4"
    ? ["255.255.255.253", "255.255.255.254"]
    : ["fd00:1111:2222:3333:4444:5555:6666:7777", "fd00:1111:2222:3333:4444:5555:6666:8888"];
  const objects: ApiObject[] = [];
  for (const [index, sessionAffinity] of (["None", "ClientIP"] as const).entries()) {
    const service = `${name.slice(1)}${index}`;
    objects.push(
      testService({
        namespace,
        name: service,
        clusterIP: ip(1 + index),
        ipFamilies: [family],
        type: "LoadBalancer",
        ports: ports.map((portName, at) =>
          testPort({ name: portName, port: 80 + at, nodePort: 30000 + 2 * index + at })
        ),
        loadBalancerIngress: [{ ip: ip(100 + index), ipMode: "VIP" }],
        loadBalancerSourceRanges: family === "IPv4"
          ? ["192.0.2.10/32", "0.0.0.0/1"]
          : ["fd00::/8", "2001:db8::10/128"],
        externalTrafficPolicy: "Local",
        sessionAffinity,
      }),
      testSlice({
        namespace,
        name: `${service}-1`,
        serviceName: service,
        addressType: family,
        // The second port has no endpoints, so its comment is the longest there can be.
        ports: [testSlicePort({ name: ports[0]!, port: 65535 })],
        endpoints: pods.map((pod) => testSliceEndpoint(pod, { nodeName: "node-a" })),
      }),
    );
  }
  return objects;
}

for (const family of ["IPv4", "IPv6"] as const) {
  e2eTest(`the longest legal names load, ${family}`, NEEDS, () =>
    withNetns(async (netns) => {
      const plan = exampleNftablesPlan(family, longNames(family));
      await load(netns, renderPlan(plan));
      await assertHolds(netns, plan);
      assertEquals(syncedStore(plan).counts.sets - plan.base.containers.length, 2);
      await netns.run(["nft", "delete", "table", WORDS[family], "kproxy"]);
      // One of both kinds goes and comes.
      await checkChange(netns, exampleNftablesPlan(family, longNames(family).slice(0, 2)), plan);
    }));
}

const VARIANTS: readonly [name: string, changes: Partial<NftablesOptions>][] = [
  ["masquerade all, other mark", { masqueradeAll: true, masqueradeMark: 0x8000 }],
  ["interface", { detector: { kind: "interface", name: "cni0" } }],
  ["interface prefix", { detector: { kind: "interfacePrefix", prefix: "veth" } }],
  ["no detector, no ServiceCIDRs", { detector: { kind: "none" }, serviceCidrs: [] }],
  ["all node-port addresses", {
    nodePortAddresses: { matchAll: true, containsIPv4Loopback: true, cidrs: [] },
  }],
  ["no comments", { objectComments: false }],
  ["counters", { trafficCounters: true }],
];

for (const family of ["IPv4", "IPv6"] as const) {
  e2eTest(`all settings read back as planned, ${family}`, NEEDS, async (t) => {
    const { objects } = loadGolden("mixed-dual-stack");
    const neighbours = family === "IPv4"
      ? ["10.96.0.0/16", "10.97.0.0/16"]
      : ["fd00:10:96::/112", "fd00:10:97::/112"];
    for (
      const [name, changes] of [...VARIANTS, ["two ServiceCIDRs", { serviceCidrs: neighbours }] as const]
    ) {
      await t.step(name, () =>
        withNetns(async (netns) => {
          const plan = exampleNftablesPlan(family, objects, changes);
          await load(netns, renderPlan(plan));
          await assertHolds(netns, plan);
          // And over the table of the usual settings.
          await netns.run(["nft", "delete", "table", WORDS[family], "kproxy"]);
          await load(netns, renderPlan(exampleNftablesPlan(family, objects)));
          const sync = await fullSync(netns, plan);
          assertEquals(sync.comment, TABLE_COMMENT);
          await write(netns, plan, ...sync.written);
          assertEquals(linesOf(await fullSync(netns, plan)), []);
        }));
    }
  });
}
