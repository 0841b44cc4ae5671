/** A program that reports success and has written nothing, or a part: the next drift check sees it. */
import fc from "../../../../tests/support/fast_check.ts";
import { assert, assertEquals } from "@std/assert";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import { stateOf } from "../../../../tests/support/fake_iptables_state.ts";
import { iptablesProxier } from "../../../../tests/support/iptables_rig.ts";
import type { Exec } from "../../../kernel/exec.ts";
import type { IptablesVariant } from "../../../kernel/iptables.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../../model/state.ts";
import { silentLogger } from "../../../observe/log.ts";
import type { IptablesProxier } from "./proxier.ts";

/** Two Services, of which the first is changed a bit. */
function stateWith(change: Partial<ServicePort>, family: IpFamily = "IPv4"): ProxyState {
  const state = stateOf(family, { "s5-np": 2, "s7": 1 });
  const services = new Map(state.services);
  services.set("shop/s5-np", state.services.get("shop/s5-np")!.map((port) => ({ ...port, ...change })));
  return { ...state, services };
}

/** How an iptables lies. */
interface Lies {
  /** Changes the text for iptables-restore; null: nothing is written, and the status is 0. */
  restored: (text: string) => string | null;
  /** Changes the printed text. */
  printed: (text: string) => string;
}

/** An iptables that can lie, and a proxier over it. */
interface Rig extends Lies {
  readonly variant: IptablesVariant;
  readonly fake: FakeIptables;
  readonly proxier: IptablesProxier;
  /** Errors that were logged. */
  readonly told: string[];
  sync(change: Partial<ServicePort>, full?: boolean): Promise<void>;
}

const HONEST = (text: string): string => text;
const NOTHING = (): null => null;

async function rig(
  variant: IptablesVariant,
  family: IpFamily = "IPv4",
): Promise<Rig> {
  const fake = new FakeIptables();
  const told: string[] = [];
  const lies: Lies = { restored: HONEST, printed: HONEST };
  const exec: Exec = {
    run: async (argv, options) => {
      let stdin = typeof options?.stdin === "function" ? [...options.stdin()].join("") : options?.stdin;
      // What only lists chains is no write.
      const isWrite = argv[0]?.includes("restore") === true && !/^-S /m.test(String(stdin));
      const instead = isWrite ? lies.restored(String(stdin)) : undefined;
      if (instead === null) return { code: 0, stdout: "", stderr: "" };
      stdin = instead ?? stdin;
      const result = await fake.run(argv, { ...options, ...stdin === undefined ? {} : { stdin } });
      return { ...result, stdout: lies.printed(result.stdout) };
    },
  };
  const proxier = await iptablesProxier(exec, {
    family,
    variant,
    logger: { ...silentLogger, error: (message) => void told.push(message) },
  });
  return Object.assign(lies, {
    variant,
    fake,
    proxier,
    told,
    sync: async (change: Partial<ServicePort>, full = false) => {
      const state = stateWith(change, family);
      await proxier.sync({ state, changed: full ? "all" : new Set(["shop/s5-np"]) });
    },
  });
}

/** One drift check, and the sync that it asks for. @returns what was found */
async function lookAndRepair(rigged: Rig, change: Partial<ServicePort>): Promise<readonly string[]> {
  const damage = await rigged.proxier.findDamage();
  if (!damage) return [];
  await rigged.proxier.sync({ state: stateWith(change, rigged.proxier.family), changed: "all" });
  return damage;
}

/** The rules, as a proxier writes them that begins with nothing. */
async function freshRules(change: Partial<ServicePort>, family: IpFamily, variant: IptablesVariant) {
  const fresh = await rig(variant, family);
  await fresh.sync(change, true);
  return linesOf(fresh);
}

function linesOf({ fake, variant, proxier: { family } }: Rig): string[] {
  return fake.saved(family, undefined, variant).split("\n").filter((line) => line.startsWith("-A "))
    .toSorted();
}

const LB = { loadBalancerVIPs: ["203.0.113.5"] };
const LB6 = { loadBalancerVIPs: ["2001:db8::5"] };
type Change = readonly [what: string, before: Partial<ServicePort>, after: Partial<ServicePort>];
const CHANGES: Readonly<Record<IpFamily, readonly Change[]>> = {
  IPv4: [
    ["an affinity's timeout", { stickyMaxAgeSeconds: 60 }, { stickyMaxAgeSeconds: 3_600 }],
    ["a source range", { ...LB, loadBalancerSourceRanges: ["192.0.2.0/24"] }, {
      ...LB,
      loadBalancerSourceRanges: ["198.51.100.0/24"],
    }],
    ["an external IP", { externalIPs: ["198.51.100.1"] }, { externalIPs: ["198.51.100.2"] }],
    ["the cluster IP", { clusterIP: "10.96.0.5" }, { clusterIP: "10.96.0.6" }],
  ],
  IPv6: [
    ["an affinity's timeout", { stickyMaxAgeSeconds: 60 }, { stickyMaxAgeSeconds: 3_600 }],
    ["a source range", { ...LB6, loadBalancerSourceRanges: ["2001:db8:1::/64"] }, {
      ...LB6,
      loadBalancerSourceRanges: ["2001:db8:2::/64"],
    }],
  ],
};

/** Only the transactions of this table, or all others, are written. */
const without = (table: string) => (text: string): string =>
  text.split(/(?<=^COMMIT\n)/m).filter((block) => !block.startsWith(`*${table}\n`)).join("");

for (const variant of ["nft", "legacy"] as const) {
  for (const family of ["IPv4", "IPv6"] as const) {
    for (const [what, before, after] of CHANGES[family]) {
      for (
        const [part, lie] of [["that was not written", NOTHING], [
          "without table nat",
          without("nat"),
        ]] as const
      ) {
        Deno.test(`${variant}, ${family}: a change of ${what} ${part} is seen by the next look`, async () => {
          const one = await rig(variant, family);
          await one.sync(before, true);
          assertEquals(await one.proxier.findDamage(), false);
          one.restored = lie;
          await one.sync(after);
          one.restored = HONEST;
          assert((await lookAndRepair(one, after)).length > 0, "nothing is seen");
          assertEquals(await one.proxier.findDamage(), false);
          assertEquals(linesOf(one), await freshRules(after, family, variant));
          assertEquals(one.told, []);
        });
      }
    }
  }

  Deno.test(`${variant}: a shared chain of table filter that was not written is seen by the next look`, async () => {
    const one = await rig(variant);
    const [before, after] = [{ clusterIP: "10.96.0.5" }, { clusterIP: "10.96.0.6" }];
    const none = async (change: Partial<ServicePort>, full: boolean): Promise<void> => {
      const state = { ...stateWith(change), endpoints: new Map() };
      await one.proxier.sync({ state, changed: full ? "all" : new Set(["shop/s5-np"]) });
    };
    await none(before, true);
    assertEquals(await one.proxier.findDamage(), false);
    one.restored = without("filter");
    await none(after, false);
    one.restored = HONEST;
    const damage = await one.proxier.findDamage();
    assertEquals(damage, ["filter KUBE-SERVICES"]);
    await one.proxier.sync({ state: { ...stateWith(after), endpoints: new Map() }, changed: "all" });
    assertEquals(await one.proxier.findDamage(), false);
    assert(one.fake.saved("IPv4", "filter", variant).includes("10.96.0.6"));
  });

  Deno.test(`${variant}: a full sync after a failure that writes nothing is seen by the next look`, async () => {
    const one = await rig(variant);
    const [before, after] = [{ stickyMaxAgeSeconds: 60 }, { stickyMaxAgeSeconds: 3_600 }];
    await one.sync(before, true);
    assertEquals(await one.proxier.findDamage(), false);
    one.fake.failRestores(1, 0, 137, "Killed\n");
    let failures = 0;
    await one.sync(after).catch(() => failures++);
    assertEquals(failures, 1);
    one.restored = NOTHING;
    await one.sync(after);
    one.restored = HONEST;
    assert((await lookAndRepair(one, after)).length > 0, "nothing is seen");
    assertEquals(await one.proxier.findDamage(), false);
    assertEquals(linesOf(one), await freshRules(after, "IPv4", variant));
  });

  Deno.test(`${variant}: a repair of a foreign rule that was not made is reported, and not tried for ever`, async () => {
    const one = await rig(variant);
    const change = {};
    await one.sync(change, true);
    assertEquals(await one.proxier.findDamage(), false);
    const [endpoint] = /KUBE-SEP-\w+/.exec(linesOf(one).join())!;
    const rule = ["-p", "tcp", "-j", "DNAT", "--to-destination", "10.9.9.9:1"];
    await one.fake.run([`iptables-${variant}`, "-t", "nat", "-R", endpoint, "2", ...rule]);
    one.restored = NOTHING;
    assertEquals(await lookAndRepair(one, change), [`nat ${endpoint}`]);
    assertEquals(await one.proxier.findDamage(), false);
    assertEquals(one.told.length, 1, one.told.join());
  });

  Deno.test(`${variant}: where two rules are printed alike, one repair is made, and that is reported once`, async () => {
    const one = await rig(variant);
    one.printed = (text) => text.replace(/--seconds \d+/g, "--seconds 1");
    const [before, after] = [{ stickyMaxAgeSeconds: 60 }, { stickyMaxAgeSeconds: 3_600 }];
    await one.sync(before, true);
    assert((await lookAndRepair(one, before)).length > 0);
    assertEquals(await one.proxier.findDamage(), false);
    await one.sync(after);
    assertEquals(linesOf(one), await freshRules(after, "IPv4", variant));
    for (let looks = 0; looks < 4; looks++) assertEquals(await one.proxier.findDamage(), false);
    // A full sync, as after a failure, changes nothing in that.
    await one.sync(after, true);
    assertEquals(await one.proxier.findDamage(), false);
    assertEquals(one.told.length, 1, one.told.join());
    // What others do to such a chain is seen all the same.
    const chain = /-A (KUBE-SVC-\w+) .*--seconds/.exec(linesOf(one).join("\n"))![1]!;
    await one.fake.run([`iptables-${variant}`, "-t", "nat", "-F", chain]);
    assertEquals(await lookAndRepair(one, after), [`nat ${chain}`]);
    assertEquals(await one.proxier.findDamage(), false);
    assertEquals(one.told.length, 1);
  });

  Deno.test(`${variant}: a program that goes on lying is reported once; once it writes again, it is silent`, async () => {
    const one = await rig(variant);
    const [before, after] = [{ clusterIP: "10.96.0.5" }, { clusterIP: "10.96.0.6" }];
    await one.sync(before, true);
    assertEquals(await one.proxier.findDamage(), false);
    one.restored = NOTHING;
    await one.sync(after);
    assert((await lookAndRepair(one, after)).length > 0);
    for (let looks = 0; looks < 4; looks++) assertEquals(await one.proxier.findDamage(), false);
    assertEquals(one.told.length, 1, one.told.join());
    one.restored = HONEST;
    await one.sync(after, true);
    for (let looks = 0; looks < 2; looks++) assertEquals(await one.proxier.findDamage(), false);
    assertEquals(linesOf(one), await freshRules(after, "IPv4", variant));
    assertEquals(one.told.length, 1, one.told.join());
  });

  Deno.test(`${variant}: whatever changes, and back, between looks: what was written is no damage`, async () => {
    const changes: readonly Partial<ServicePort>[] = [
      {},
      { clusterIP: "10.96.0.9" },
      { stickyMaxAgeSeconds: 60 },
      { stickyMaxAgeSeconds: 61 },
      { externalIPs: ["198.51.100.1"] },
      { externalIPs: ["198.51.100.1", "198.51.100.2"] },
      { externalIPs: ["198.51.100.2", "198.51.100.1"] },
      { ...LB, loadBalancerSourceRanges: ["192.0.2.0/24"] },
    ];
    const step = fc.record({
      change: fc.constantFrom(...changes),
      looks: fc.boolean(),
      full: fc.boolean(),
      fails: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 8 }), async (steps) => {
        const one = await rig(variant);
        await one.sync({}, true);
        for (const { change, looks, full, fails } of steps) {
          if (fails) one.fake.failRestores(1);
          await one.sync(change, full).catch(() => one.sync(change));
          if (looks) assertEquals(await one.proxier.findDamage(), false);
          // A change may need no restore.
          one.fake.healRestores();
        }
        assertEquals(await one.proxier.findDamage(), false);
        assertEquals(one.told, []);
      }),
      { numRuns: 60 },
    );
  });
}
