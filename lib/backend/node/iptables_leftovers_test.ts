import { assert, assertEquals } from "@std/assert";
import { ExecError } from "../../errors.ts";
import { Iptables, type IptablesVariant } from "../../kernel/iptables.ts";
import { probeIptables } from "../../kernel/iptables_variant.ts";
import type { IpFamily } from "../../model/objects.ts";
import { silentLogger } from "../../observe/log.ts";
import { FakeIptables } from "../../../tests/support/fake_iptables.ts";
import { defaultSettings, stateOf } from "../../../tests/support/fake_iptables_state.ts";
import { IptablesProxier } from "../iptables/apply/proxier.ts";
import { IPVS_CLEANUP } from "../ipvs/node/cleanup.ts";
import {
  cleanupIptables,
  type CleanupNft,
  cleanupTargets,
  IPTABLES_CLEANUP,
  USERSPACE_CLEANUP,
} from "./iptables_leftovers.ts";

/** Kubelet's and a network plugin's rules, as they are on a node before any service proxy starts. */
const FOREIGN = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
:CNI-HOSTPORT - [0:0]
-A KUBE-MARK-DROP -j MARK --or-mark 0x8000
-A CNI-HOSTPORT -m comment --comment "not -j KUBE-SERVICES" -j RETURN
-A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:CNI-FORWARD - [0:0]
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A FORWARD -j CNI-FORWARD
COMMIT
`;

async function setUp(
  fake: FakeIptables,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<{ target: Iptables; before: string; proxy: () => Promise<void> }> {
  const found = await probeIptables(fake, family, variant);
  const target = new Iptables(fake, { ...found, lockDeadlineMs: 0 });
  await target.restore(family === "IPv4" ? FOREIGN : FOREIGN.replace("10.244.0.0/16", "fd00::/8"));
  const settings = { ...defaultSettings(family), localhostNodePorts: false };
  const proxier = new IptablesProxier({
    iptables: target,
    settings,
    interfaceIps: () => [],
    logger: silentLogger,
  });
  return {
    target,
    before: fake.saved(family, undefined, variant),
    proxy: async () => {
      await proxier.sync({ state: stateOf(family, { "s1": 2, "s2-np": 3, "s3": 0 }), changed: "all" });
    },
  };
}

for (const variant of ["nft", "legacy"] as const) {
  for (const family of ["IPv4", "IPv6"] as const) {
    Deno.test(`${variant} ${family}: cleanup leaves what was there before, and finds nothing the second time`, async () => {
      const fake = new FakeIptables();
      const { before, proxy } = await setUp(fake, family, variant);
      await proxy();
      assert(fake.saved(family, undefined, variant) !== before);
      const targets = await cleanupTargets(fake);
      assertEquals(targets.length, 4);
      const dry = await cleanupIptables(targets, { dryRun: true });
      const report = await cleanupIptables(targets);
      assertEquals(report.removed, dry.removed);
      assertEquals([report.failed, report.kept], [[], []]);
      assertEquals(fake.saved(family, undefined, variant), before);
      const chains = report.removed.filter(({ command }) => command.startsWith("-X "));
      const jumps = report.removed.filter(({ command }) => command.startsWith("-D "));
      // 4 + 4 static nat chains and filter ones, canaries, and 2 × SVC, 1 × EXT, 5 × SEP; 12 jumps besides KUBE-FIREWALL's.
      assertEquals([chains.length, jumps.length], [4 + 5 + 3 + 8, 12]);
      const again = await cleanupIptables(targets);
      assertEquals([again.removed, again.failed], [[], []]);
    });
  }
}

Deno.test("a dry run writes nothing", async () => {
  const fake = new FakeIptables();
  const { proxy } = await setUp(fake, "IPv4", "nft");
  await proxy();
  const targets = await cleanupTargets(fake);
  fake.runs.length = 0;
  const report = await cleanupIptables(targets, { dryRun: true });
  assert(report.removed.length > 20);
  assertEquals(fake.runs.filter(({ argv }) => !argv[0]?.endsWith("-save")), []);
});

Deno.test("the rules of both variants go", async () => {
  const fake = new FakeIptables();
  for (const variant of ["nft", "legacy"] as const) await (await setUp(fake, "IPv4", variant)).proxy();
  const report = await cleanupIptables(await cleanupTargets(fake));
  const variants = report.removed.map(({ place }) => place.split(" ")[1]);
  assertEquals(variants.filter((variant) => variant === "nft").length, variants.length / 2);
  for (const variant of ["nft", "legacy"] as const) {
    assert(!fake.saved("IPv4", "nat", variant).includes(":KUBE-SERVICES "));
  }
});

Deno.test("a chain that others jump to stays, emptied unless it marks for them", async () => {
  const fake = new FakeIptables();
  const { target, proxy } = await setUp(fake, "IPv4", "nft");
  await proxy();
  await target.restore(
    "*nat\n-A CNI-HOSTPORT -j KUBE-MARK-MASQ\n-A CNI-HOSTPORT -g KUBE-SERVICES\nCOMMIT\n",
  );
  const report = await cleanupIptables([target]);
  assertEquals(report.failed, []);
  assertEquals(
    report.kept.map(({ command, reason }) => [command, /^chain (\S+) leads there$/.exec(reason)?.[1]]),
    [
      ["-X KUBE-MARK-MASQ", "CNI-HOSTPORT"],
      ["-X KUBE-SERVICES", "CNI-HOSTPORT"],
    ],
  );
  const nat = fake.saved("IPv4", "nat");
  assert(nat.includes("-A KUBE-MARK-MASQ -j MARK"));
  assert(nat.includes(":KUBE-SERVICES ") && !nat.includes("-A KUBE-SERVICES"));
  assert(!nat.includes("KUBE-SVC-"));
});

/** What both modes' jumps into the chain that they share look like, and the chains that only one of them has. */
const SHARED = {
  iptables: {
    cleanup: IPTABLES_CLEANUP,
    services: "-A KUBE-SERVICES -j KUBE-NODEPORTS",
    jump: '-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall"',
  },
  ipvs: {
    cleanup: IPVS_CLEANUP,
    services: "-A KUBE-SERVICES -j KUBE-NODE-PORT",
    jump: '-A INPUT -m comment --comment "kube-proxy firewall rules"',
  },
} as const;

for (const [former, now] of [["iptables", "ipvs"], ["ipvs", "iptables"]] as const) {
  Deno.test(`jumps of mode ${former} into a chain that mode ${now} has filled since go, the chain and other jumps stay`, async () => {
    const fake = new FakeIptables();
    const target = new Iptables(fake, { ...await probeIptables(fake, "IPv4", "nft"), lockDeadlineMs: 0 });
    const jumpOf = (mode: keyof typeof SHARED): string => `${SHARED[mode].jump} -j KUBE-PROXY-FIREWALL`;
    const foreign = '-A INPUT -m comment --comment "another program" -j KUBE-PROXY-FIREWALL';
    await target.restore(`*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-NODE-PORT - [0:0]
${SHARED[now].services}
COMMIT
*filter
:KUBE-PROXY-FIREWALL - [0:0]
${jumpOf("iptables")}
${jumpOf("ipvs")}
${foreign}
-A KUBE-PROXY-FIREWALL -j DROP
COMMIT
`);
    const report = await cleanupIptables([target], { modes: [SHARED[former].cleanup] });
    assertEquals(report.failed, []);
    const rules = fake.saved("IPv4", "filter", "nft").split("\n").filter((line) => line.startsWith("-A"));
    assertEquals(rules, [jumpOf(now), foreign, "-A KUBE-PROXY-FIREWALL -j DROP"]);
  });
}

Deno.test("one table that fails is reported, the others are cleaned", async () => {
  const fake = new FakeIptables();
  const { target, proxy } = await setUp(fake, "IPv4", "nft");
  await proxy();
  fake.failRestores(1);
  const report = await cleanupIptables([target]);
  assertEquals(
    report.failed.map(({ place, error }) => [place.split(" ").at(-1), (error as ExecError).code]),
    [["nat", 1]],
  );
  assertEquals(
    new Set(report.removed.map(({ place }) => place.split(" ").at(-1))),
    new Set(["filter", "mangle"]),
  );
  assert(fake.saved("IPv4", "nat").includes("KUBE-SERVICES"));
  assertEquals((await cleanupIptables([target])).failed, []);
});

Deno.test("programs that are not installed have nothing to clean", async () => {
  const missing = ["iptables-legacy", "ip6tables-legacy", "ip6tables", "ip6tables-nft"];
  const targets = await cleanupTargets(new FakeIptables({ missing }));
  assertEquals(targets.map(({ family, variant }) => [family, variant]), [["IPv4", "nft"]]);
  assertEquals((await cleanupIptables(targets)).removed, []);
});

Deno.test("thousands of chains go in portions, callers first", async () => {
  const fake = new FakeIptables();
  const { target, before } = await setUp(fake, "IPv4", "nft");
  const settings = defaultSettings("IPv4");
  const proxier = new IptablesProxier({
    iptables: target,
    settings: { ...settings, localhostNodePorts: false },
    interfaceIps: () => [],
    logger: silentLogger,
  });
  const sizes = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [i % 2 ? `s${i}` : `s${i}-np`, 6]));
  await proxier.sync({ state: stateOf("IPv4", sizes), changed: "all" });
  let commits = 0;
  fake.onCommit = () => void commits++;
  const report = await cleanupIptables([target]);
  assertEquals(report.failed, []);
  assertEquals(commits, 6, "nat in four portions, filter and mangle in one each");
  assertEquals(fake.saved("IPv4"), before);
});

Deno.test("KUBE-FIREWALL goes with a proxy that made it, and stays where kubelet is or another program wrote into it", async () => {
  const kubelet = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
  const foreignRule = "*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -s 192.0.2.9 -j DROP\nCOMMIT\n";
  const cases = [
    { extra: "", goes: true },
    { extra: kubelet, goes: false },
    { extra: foreignRule, goes: false },
  ];
  for (const { extra, goes } of cases) {
    const fake = new FakeIptables();
    const target = new Iptables(fake, { ...await probeIptables(fake, "IPv4", "nft"), lockDeadlineMs: 0 });
    const settings = { ...defaultSettings("IPv4"), localhostNodePorts: true };
    const proxier = new IptablesProxier({
      iptables: target,
      settings,
      interfaceIps: () => [],
      logger: silentLogger,
    });
    await proxier.sync({ state: stateOf("IPv4", { "s1": 2 }), changed: "all" });
    if (extra !== "") await target.restore(extra);
    const report = await cleanupIptables([target]);
    assertEquals(report.failed, []);
    const commands = report.removed.map(({ command }) => command);
    assertEquals(commands.includes("-X KUBE-FIREWALL"), goes, extra);
    assertEquals(
      commands.filter((command) => command.endsWith("-j KUBE-FIREWALL")).length,
      goes ? 2 : 0,
      extra,
    );
    assertEquals(fake.saved("IPv4", "filter", "nft").includes("KUBE-FIREWALL"), !goes, extra);
  }
});

Deno.test("tables of the nft variant are read only where nft knows of a chain, or cannot tell", async () => {
  const asked: unknown[] = [];
  /** What nft would say of the same kernel. */
  const missing = () => Promise.reject(new ExecError(["nft"], -1, "entity not found"));
  const nftOf = (fake: FakeIptables): CleanupNft => ({
    listTable: missing,
    apply: missing,
    hasNone: (family, { chains = {} }) => {
      asked.push(chains);
      const holds = (table: string, chain: string): boolean =>
        fake.saved(family === "ip" ? "IPv4" : "IPv6", table).includes(`:${chain} `);
      return Promise.resolve(
        !Object.entries(chains).some(([table, names]) => names.some((name) => holds(table, name))),
      );
    },
  });
  const cannotTell: CleanupNft = { hasNone: missing, listTable: missing, apply: missing };
  const modes = [USERSPACE_CLEANUP];
  const fake = new FakeIptables();
  const { target, proxy } = await setUp(fake, "IPv4", "nft");
  await proxy();
  const reads = () => fake.runs.filter(({ argv }) => argv[0]?.endsWith("-save")).length;
  const before = reads();
  assertEquals((await cleanupIptables([target], { modes, nft: nftOf(fake) })).removed, []);
  assertEquals(reads(), before);
  const { nat, filter } = USERSPACE_CLEANUP.chains ?? {};
  assertEquals(asked, [{ nat, filter }]);
  await cleanupIptables([target], { modes, nft: cannotTell });
  assertEquals(reads(), before + 1);
  await target.restore("*nat\n:KUBE-PORTALS-HOST - [0:0]\n-A OUTPUT -j KUBE-PORTALS-HOST\nCOMMIT\n");
  const { removed } = await cleanupIptables([target], { modes, nft: nftOf(fake) });
  assertEquals(removed.map(({ command }) => command), [
    "-D OUTPUT -j KUBE-PORTALS-HOST",
    "-X KUBE-PORTALS-HOST",
  ]);
  // The names of all chains of Services are not known, so it must read.
  await cleanupIptables([target], { modes: [IPTABLES_CLEANUP, ...modes], nft: nftOf(fake) });
  assertEquals(fake.saved("IPv4", "nat").includes(":KUBE-SVC-"), false);
});
