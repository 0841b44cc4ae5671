/** Whatever the programs refuse: after one sync everything else is in force, and after the next ones that, too. */
import fc from "../../../../tests/support/fast_check.ts";
import { assert, assertEquals } from "@std/assert";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../../tests/support/arbitrary_objects.ts";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { exampleTracker } from "../../../../tests/support/golden.ts";
import { exampleIpvsOptions, exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import { KernelModel } from "../../../../tests/support/ipvs_kernel.ts";
import { ipvsRig, standing } from "../../../../tests/support/ipvs_rig.ts";
import type { ApiObject } from "../../../model/objects.ts";
import { addEntryLine } from "../../../netfilter/ipset.ts";
import { addAddressLine } from "../../../netfilter/ip_batch.ts";
import { addRealServerLine, addVirtualServerLine } from "../../../netfilter/ipvs.ts";
import type { Entry, IpvsPlan, ServiceObjects, WantedServer } from "../plan/ruleset.ts";
import { NOTHING_HELD } from "../../iptables/store/full_sync.ts";
import { realServerOf } from "../store/objects.ts";
import { IpvsStore } from "../store/store.ts";

const NONE = { permissions: "none" } as const;
const OPTIONS = exampleIpvsOptions("IPv4");

type Program = "ipset" | "ip" | "ipvsadm" | "iptables";
/** Refused lines: those that add something and contain these words. */
type Refusing = readonly (readonly [program: Program, words: string])[];

/** What may be refused: endpoints, virtual servers by address or port, entries, addresses, rules. */
const WORDS: Refusing = [
  ["ipvsadm", "-r 10.244.0.1:"],
  ["ipvsadm", "-r 10.244.1.2:"],
  ["ipvsadm", ":5353 "],
  ["ipvsadm", "-A -t 10.96.1.1:80 "],
  ["ipvsadm", "-A -u 203.0.113.9:"],
  ["ipvsadm", "-A -t 192.0.2.10:3"],
  ["ipset", "KUBE-CLUSTER-IP 10.96.2."],
  ["ipset", "KUBE-IPVS-IPS 198.51.100.1"],
  ["ipset", "KUBE-LOOP-BACK 10.244.0.2"],
  ["ipset", "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.8"],
  ["ipset", "KUBE-NODE-PORT-UDP "],
  ["ip", "10.96.0.2/32"],
  ["ip", "203.0.113.9/32"],
  ["iptables", "--vaddr 203.0.113.8 "],
];
const REFUSING: fc.Arbitrary<Refusing> = fc.subarray([...WORDS], { minLength: 1, maxLength: 4 });

function refuses(refusing: Refusing, program: Program, line: string): boolean {
  return /^(add|address add|-a|-A) /.test(line) &&
    refusing.some(([one, words]) => one === program && line.includes(words));
}

function refuse({ kernel }: FakeIpvs, refusing: Refusing): void {
  kernel.refuse = (program, line) => refuses(refusing, program, line) ? "Unknown error -1" : undefined;
}

/** The objects that such a kernel can hold, found by the lines that each of them becomes. */
function possible(claims: ServiceObjects, refusing: Refusing): ServiceObjects {
  const takesEntry = (entry: Entry): boolean => {
    const [set = "", text = ""] = entry.split(" ");
    return !refuses(refusing, "ipset", addEntryLine(set, text));
  };
  const takesServer = ({ server, entries, bind, outFilter }: WantedServer): boolean =>
    !refuses(refusing, "ipvsadm", addVirtualServerLine(server)) && entries.every(takesEntry) &&
    (outFilter === "" || !refuses(refusing, "iptables", `-A KUBE-IPVS-OUT-FILTER ${outFilter}`)) &&
    (!bind || takesEntry(`KUBE-IPVS-IPS ${server.address}`) &&
        !refuses(refusing, "ip", addAddressLine("kube-ipvs0", server.address)));
  return {
    servers: claims.servers.filter(takesServer).map((wanted) => ({
      ...wanted,
      realServers: wanted.realServers.filter((key) =>
        !refuses(refusing, "ipvsadm", addRealServerLine(wanted.server, realServerOf(key)))
      ),
    })),
    entries: claims.entries.filter(takesEntry),
  };
}

/** The kernel after a sync of these objects where lines are refused, and the Services that lack something. */
function expected(objects: readonly ApiObject[], refusing: Refusing) {
  const plan = exampleIpvsPlan("IPv4", objects);
  const services = new Map(
    [...plan.services].map(([name, claims]) =>
      [name, claims === null ? null : possible(claims, refusing)] as const
    ),
  );
  const reached: IpvsPlan = { ...plan, services };
  const fake = new FakeIpvs();
  fake.kernel.apply(
    new IpvsStore(reached).fullSync({ ...NOTHING_HELD, ...new KernelModel().observe() }, OPTIONS),
  );
  const lacking = [...plan.services].filter(([name, claims]) =>
    JSON.stringify(claims) !== JSON.stringify(services.get(name))
  );
  return { kernel: standing(fake), lacking: lacking.map(([name]) => name) };
}

/** Quarantined Services, which must lack something: one that lost an address to another Service was not tried there. */
function namesOf(
  quarantined: readonly { readonly service: string }[] | undefined,
  lacking: readonly string[],
) {
  const names = quarantined?.map(({ service }) => service) ?? [];
  for (const name of names) assert(lacking.includes(name), `${name} is quarantined for nothing`);
  return names;
}

Deno.test(
  "one full sync brings in everything that is not refused, and reads no more later",
  NONE,
  async () => {
    await fc.assert(
      fc.asyncProperty(ARBITRARY_CLUSTER, REFUSING, async (objects, refusing) => {
        const { fake, proxier, sync } = ipvsRig();
        refuse(fake, refusing);
        const { quarantined, commands } = await sync(objects);
        const { kernel, lacking } = expected(objects, refusing);
        assertEquals(standing(fake), kernel);
        namesOf(quarantined, lacking);
        assertEquals(fake.runs.length, commands);
        assertEquals(await proxier.findDamage(), false);
        fake.runs.length = 0;
        await sync(objects, []);
        assertEquals(fake.runs, []);
      }),
      { numRuns: 150 },
    );
  },
);

Deno.test(
  "so does one sync of what changed; and what is refused no longer comes in a minute later",
  NONE,
  async () => {
    await fc.assert(
      fc.asyncProperty(
        ARBITRARY_CLUSTER,
        ARBITRARY_CLUSTER,
        REFUSING,
        REFUSING,
        async (before, after, first, then) => {
          const { fake, proxier, clock, syncState } = ipvsRig();
          const tracker = exampleTracker("IPv4", before);
          refuse(fake, first);
          await syncState(tracker.checkout().state, "all");
          offerChanges(tracker, before, after);
          const { state, updatedServices } = tracker.checkout();
          const { quarantined } = await syncState(state, updatedServices);
          const reached = expected(after, first);
          assertEquals(standing(fake), reached.kernel);
          namesOf(quarantined, reached.lacking);
          assertEquals(await proxier.findDamage(), false);

          refuse(fake, then.filter((one) => first.includes(one)));
          clock.nowMs += 60_000;
          const last = await syncState(state, new Set());
          const rest = expected(after, then.filter((one) => first.includes(one)));
          assertEquals(standing(fake), rest.kernel);
          namesOf(last.quarantined, rest.lacking);
          if (rest.lacking.length === 0) assertEquals(last.quarantined, []);
        },
      ),
      { numRuns: 150 },
    );
  },
);
