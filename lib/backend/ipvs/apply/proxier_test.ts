import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { A, B, service } from "../../../../tests/support/nftables_rig.ts";
import { ipvsRig, standing } from "../../../../tests/support/ipvs_rig.ts";
import { stateOf } from "../../../../tests/support/fake_iptables_state.ts";
import { ExecError, SyncError } from "../../../errors.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import type { ApplyReport } from "../../backend.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";

const NONE = { permissions: "none" } as const;
/** A rig whose syncs take the number of endpoints of each Service. */
function rig(fake = new FakeIpvs(), cheapToList?: number) {
  const { syncState, sync: _, ...rest } = ipvsRig(fake, cheapToList === undefined ? {} : { cheapToList });
  return {
    ...rest,
    sync: (sizes: Readonly<Record<string, number>>, changed: Changed = "all"): Promise<ApplyReport> =>
      syncState(
        stateOf("IPv4", sizes),
        changed === "all" ? changed : new Set([...changed].map((name) => `shop/${name}`)),
      ),
  };
}

async function freshSnapshot(sizes: Readonly<Record<string, number>>): Promise<unknown> {
  const { fake, sync } = rig();
  await sync(sizes);
  return fake.kernel.snapshot();
}

Deno.test(
  "a full sync reads once and writes once with each program, a change reads nothing",
  NONE,
  async () => {
    const { fake, sync } = rig();
    await sync({ s1: 2 });
    assertEquals(fake.runs, [
      "ipvsadm -Sn",
      "ipset save",
      "ip -json",
      "iptables-save",
      "ipset restore",
      "iptables-restore -w",
      "ipvsadm -R",
      "ip -force",
    ]);
    fake.runs.length = 0;
    const report = await sync({ s1: 2, s2: 1 }, new Set(["s2"]));
    assertEquals(fake.runs, ["ipset restore", "ipvsadm -R", "ip -force"]);
    assertEquals([report.commands, report.written["servers"]], [3, 2]);
    assertEquals(fake.kernel.snapshot(), await freshSnapshot({ s1: 2, s2: 1 }));
    fake.runs.length = 0;
    await sync({ s1: 2, s2: 1 }, new Set(["s1", "s2"]));
    assertEquals(fake.runs, []);
  },
);

Deno.test(
  "each scheduler that a sync names for the first time is tried in a run of its own, which counts",
  NONE,
  async () => {
    const { fake, proxier } = rig();
    fake.missingSchedulers.add("twos");
    const wishing = (...schedulers: readonly string[]): ProxyState => {
      const state = stateOf("IPv4", Object.fromEntries(schedulers.map((_, index) => [`s${index + 1}`, 1])));
      const services = [...state.services].map(([name, ports], index) =>
        [
          name,
          ports.map((port) => ({ ...port, ipvs: { scheduler: schedulers[index]!, graceful: true } })),
        ] as const
      );
      return { ...state, services: new Map(services) };
    };
    const first = await proxier.sync({ state: wishing("lc", "twos", "wlc", "twos"), changed: "all" });
    assertEquals([first.commands, fake.runs.filter((run) => run === "ipvsadm -R").length], [11, 4]);
    assertEquals(
      [...fake.kernel.servers.values()].map(({ options }) => options),
      ["-s lc", "-s rr", "-s wlc", "-s rr"],
    );
    fake.runs.length = 0;
    const state = wishing("wlc", "lc", "sh", "twos");
    const second = await proxier.sync({
      state,
      changed: new Set(["shop/s1", "shop/s2", "shop/s3", "shop/s4"]),
    });
    assertEquals([second.commands, fake.runs], [2, ["ipvsadm -R", "ipvsadm -R"]]);
    fake.runs.length = 0;
    const third = await proxier.sync({
      state: wishing("sh", "lc", "sh", "twos"),
      changed: new Set(["shop/s1"]),
    });
    assertEquals([third.commands, fake.runs], [1, ["ipvsadm -R"]]);
  },
);

Deno.test(
  "whichever program fails, the next sync reads everything and ends where a first one does",
  NONE,
  async (t) => {
    for (const program of ["ipset restore", "iptables-restore -w", "ipvsadm -R", "ip -force"]) {
      await t.step(program, async () => {
        const { fake, sync } = rig();
        fake.fail = (argv) =>
          argv.slice(0, 2).join(" ") === program ? { code: 1, stdout: "", stderr: "it broke\n" } : undefined;
        await assertRejects(() => sync({ s1: 2, "s3-np": 1 }), SyncError, "it broke");
        fake.fail = () => undefined;
        fake.runs.length = 0;
        await sync({ s1: 1, "s3-np": 1 }, new Set(["s1"]));
        assertEquals(fake.runs.slice(0, 4), ["ipvsadm -Sn", "ipset save", "ip -json", "iptables-save"]);
        const left = JSON.stringify(fake.kernel.snapshot());
        // Its endpoint that has left waits for its connections.
        assertEquals(
          left.replace(/"-a -t 10\.96\.0\.1:80 -r \S+ -m -w 0",/, ""),
          JSON.stringify(await freshSnapshot({ s1: 1, "s3-np": 1 })),
        );
      });
    }
  },
);

/** Damage to objects that others may take away. */
const DAMAGES: Readonly<Record<string, (kernel: FakeIpvs["kernel"]) => void>> = {
  "a jump": (kernel) => kernel.edit("nat", "PREROUTING", (rules) => rules.splice(0)),
  "a chain's rules": (kernel) => kernel.edit("filter", "KUBE-IPVS-FILTER", (rules) => rules.splice(0)),
  "all entries of a set": ({ sets }) => sets.get("KUBE-CLUSTER-IP")?.entries.clear(),
  "one entry": ({ sets }) => sets.get("KUBE-IPVS-IPS")?.entries.delete("10.96.0.1"),
  "all virtual servers": ({ servers }) => servers.clear(),
  "the last virtual server": ({ servers }) => servers.delete([...servers.keys()].at(-1) ?? ""),
  "a real server": ({ servers }) => servers.get("-t 10.96.0.1:80")?.real.clear(),
  "a real server's weight": ({ servers }) => {
    const real = servers.get("-t 10.96.0.1:80")?.real;
    for (const key of real?.keys() ?? []) real?.set(key, "-m -w 0");
  },
  "a virtual server's scheduler": ({ servers }) => {
    const server = servers.get("-t 10.96.0.1:80");
    if (server !== undefined) server.options = "-s wlc";
  },
  "the device": (kernel) => {
    kernel.addresses = null;
  },
  "an address": ({ addresses }) => addresses?.delete("10.96.0.2"),
  "an entry that took the place of another": ({ sets }) => {
    const entries = sets.get("KUBE-CLUSTER-IP")?.entries;
    entries?.delete("10.96.0.1,tcp:80");
    entries?.add("10.96.0.1,tcp:81");
  },
  "an entry more": ({ sets }) => sets.get("KUBE-CLUSTER-IP")?.entries.add("10.96.9.9,tcp:1"),
  "one rule": (kernel) => kernel.edit("nat", "KUBE-SERVICES", (rules) => rules.splice(1, 1)),
  "a rule more": (kernel) => kernel.edit("nat", "KUBE-SERVICES", (rules) => rules.unshift("-j RETURN")),
  "a rule that took the place of another": (kernel) =>
    kernel.edit("filter", "KUBE-IPVS-FILTER", (rules) => rules.splice(0, 1, "-j RETURN")),
  "the order of rules": (kernel) => kernel.edit("nat", "KUBE-SERVICES", (rules) => rules.reverse()),
  "another real server": ({ servers }) => servers.get("-t 10.96.0.1:80")?.real.set("10.9.9.9:80", "-m -w 1"),
  "the way to a real server": ({ servers }) => {
    const real = servers.get("-t 10.96.0.1:80")?.real;
    for (const key of real?.keys() ?? []) real?.set(key, "-g -w 1");
  },
  "another virtual server on an address of ours": (kernel) =>
    kernel.do({ program: "ipvsadm", line: "-A -t 10.96.0.1:9999 -s rr" }),
  "an address more": ({ addresses }) => addresses?.add("10.96.9.9"),
};

/** The kernel after a first sync, without real servers that leave. */
async function freshStanding(sizes: Readonly<Record<string, number>>): Promise<unknown> {
  const { fake, sync } = rig();
  await sync(sizes);
  return standing(fake);
}

Deno.test("the check sees whatever is taken away, and a full sync brings it back", NONE, async (t) => {
  const sizes = { s1: 2, s2: 1, "s3-np": 1 };
  const wanted = JSON.stringify(await freshStanding(sizes));
  for (const [what, damage] of Object.entries(DAMAGES)) {
    await t.step(what, async () => {
      const { fake, proxier, sync } = rig();
      await sync(sizes);
      assertEquals(await proxier.findDamage(), false);
      damage(fake.kernel);
      assert(JSON.stringify(standing(fake)) !== wanted, "nothing was damaged");
      const found = await proxier.findDamage();
      assert(found && found.length > 0);
      await sync(sizes);
      assertEquals([await proxier.findDamage(), JSON.stringify(standing(fake))], [false, wanted]);
    });
  }
});

Deno.test(
  "the check minds neither what others add nor endpoints that leave, nor a sync meanwhile",
  NONE,
  async () => {
    const { fake, proxier, sync } = rig();
    assertEquals(await proxier.findDamage(), false);
    await sync({ s1: 2 });
    fake.kernel.do({ program: "ipvsadm", line: "-A -t 203.0.113.9:80 -s rr" });
    fake.kernel.do({ program: "ipvsadm", line: "-A -u 192.0.2.10:53 -s rr" });
    fake.kernel.sets.set("OTHERS", fake.kernel.sets.get("KUBE-CLUSTER-IP")!);
    fake.kernel.addresses?.add("fe80::1").add("fd00::1");
    fake.kernel.restore("filter", ["-I INPUT -p tcp -m tcp --dport 22 -j ACCEPT"]);
    fake.kernel.restore("nat", [
      ":CNI-MASQ - [0:0]",
      "-A CNI-MASQ -j MASQUERADE",
      // As older kubelets do it.
      "-A KUBE-POSTROUTING -j MASQUERADE",
      "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
    ]);
    assertEquals(await proxier.findDamage(), false);
    await sync({ s1: 1 }, new Set(["s1"]));
    assertEquals(await proxier.findDamage(), false);
    fake.afterRun = async (argv) => {
      if (argv[0] !== "ipset") return;
      fake.afterRun = () => Promise.resolve();
      await sync({ s1: 1, s2: 1 }, new Set(["s2"]));
    };
    assertEquals(await proxier.findDamage(), false);
    assertEquals(fake.kernel.servers.has("-t 10.96.0.2:80"), true);
  },
);

Deno.test("the check names what is damaged, and sees the rules that Services write", NONE, async () => {
  const { fake, proxier, sync } = ipvsRig();
  const guarded = service("s1", ["10.244.1.1"], {
    type: "LoadBalancer",
    loadBalancerIngress: ["203.0.113.5", "203.0.113.6"].map((ip) => ({ ip, ipMode: "VIP" })),
    loadBalancerSourceRanges: ["198.51.100.0/24"],
  });
  await sync(guarded);
  assertEquals(await proxier.findDamage(), false);
  const write = (rules: readonly string[]): void =>
    fake.kernel.edit("filter", "KUBE-IPVS-OUT-FILTER", (old) => old.splice(0, old.length, ...rules));
  const rules = fake.kernel.tables.get("filter")!.get("KUBE-IPVS-OUT-FILTER")!.rules;
  assertEquals(rules.length, 2);
  const asWritten = [...rules];
  const others: readonly (readonly string[])[] = [
    asWritten.slice(1),
    [...asWritten, "-j ACCEPT"],
    [asWritten[0]!, asWritten[0]!],
    [asWritten[0]!, asWritten[1]!.replace("DROP", "ACCEPT")],
  ];
  for (const other of others) {
    write(other);
    assertEquals(await proxier.findDamage(), ["filter KUBE-IPVS-OUT-FILTER"]);
  }
  write(asWritten.toReversed());
  assertEquals(await proxier.findDamage(), false);
  fake.kernel.edit("nat", "OUTPUT", (old) => old.splice(0));
  fake.kernel.sets.get("KUBE-LOAD-BALANCER")?.entries.clear();
  fake.kernel.servers.delete("-t 203.0.113.5:80");
  for (const ip of ["203.0.113.5", "203.0.113.6"]) fake.kernel.addresses?.delete(ip);
  fake.kernel.addresses?.add("10.96.9.9");
  assertEquals(await proxier.findDamage(), [
    "nat OUTPUT",
    "KUBE-LOAD-BALANCER",
    "203.0.113.5:80/TCP",
    "kube-ipvs0 203.0.113.5",
    "kube-ipvs0 203.0.113.6",
    "and 1 more",
  ]);
});

/** Damage that a check of everything finds at once, a check of what packets cannot do without only later. */
const SMALL_DAMAGES: readonly string[] = [
  "the last virtual server",
  "a virtual server's scheduler",
  "an entry that took the place of another",
];

Deno.test(
  "where listing all of it is not cheap, each check sees what packets cannot do without, one an hour the rest",
  NONE,
  async (t) => {
    const sizes = { s1: 2, s2: 1, "s3-np": 1 };
    for (const [what, damage] of Object.entries(DAMAGES)) {
      await t.step(what, async () => {
        const { fake, proxier, clock, sync } = rig(new FakeIpvs(), 0);
        await sync(sizes);
        assertEquals(await proxier.findDamage(), false);
        damage(fake.kernel);
        fake.runs.length = 0;
        const isSmall = SMALL_DAMAGES.includes(what) ||
          what === "another virtual server on an address of ours";
        assertEquals(await proxier.findDamage() === false, isSmall);
        assertEquals(fake.runs.includes("ipvsadm -Sn") || fake.runs.includes("ipset save"), false);
        clock.nowMs += 3_600_000;
        assert(await proxier.findDamage() !== false);
        // Until there is no damage, each check is of everything.
        assert(await proxier.findDamage() !== false);
        await sync(sizes);
        fake.runs.length = 0;
        assertEquals([await proxier.findDamage(), fake.runs.includes("ipvsadm -Sn")], [false, true]);
      });
    }
  },
);

Deno.test(
  "a look at everything that fails is made up for by the next check, two in a row a while later",
  NONE,
  async () => {
    const { fake, proxier, clock, sync } = rig(new FakeIpvs(), 0);
    await sync({ s1: 1, s2: 1 });
    assertEquals(await proxier.findDamage(), false);
    fake.kernel.servers.get("-t 10.96.0.2:80")!.options = "-s wlc";
    const failing = async (): Promise<void> => {
      fake.fail = (argv) => argv[1] === "save" ? { code: 1, stdout: "", stderr: "busy\n" } : undefined;
      await assertRejects(() => proxier.findDamage(), ExecError);
      fake.fail = () => undefined;
    };
    clock.nowMs += 3_600_000;
    await failing();
    assertEquals(await proxier.findDamage(), ["10.96.0.2:80/TCP"]);
    await failing();
    clock.nowMs += 30_000;
    await failing();
    clock.nowMs += 30_000;
    assertEquals(await proxier.findDamage(), false);
    clock.nowMs += 30_000;
    assertEquals(await proxier.findDamage(), ["10.96.0.2:80/TCP"]);
  },
);

Deno.test("a set whose size an old ipset does not tell is no damage", NONE, async () => {
  const { fake, proxier, sync } = rig(new FakeIpvs(), 0);
  await sync({ s1: 1 });
  assertEquals(await proxier.findDamage(), false);
  const run = fake.run.bind(fake);
  fake.run = async (argv, options) => {
    const result = await run(argv, options);
    return { ...result, stdout: result.stdout.replaceAll(/^Number of entries: .*\n/gm, "") };
  };
  assertEquals(await proxier.findDamage(), false);
  fake.kernel.sets.delete("KUBE-CLUSTER-IP");
  assertEquals(await proxier.findDamage(), ["KUBE-CLUSTER-IP"]);
});

Deno.test("a failed sync does not forget servers on an address that the node loses then", NONE, async () => {
  const { fake, own, sync } = rig();
  own.push("198.51.100.7");
  await sync({ "s3-np": 1 });
  assert(fake.kernel.servers.has("-t 198.51.100.7:30003"));
  own.pop();
  fake.fail = (argv) => argv[1] === "-R" ? { code: 1, stdout: "", stderr: "busy\n" } : undefined;
  await assertRejects(() => sync({ "s3-np": 1 }, new Set()), SyncError);
  fake.fail = () => undefined;
  await sync({ "s3-np": 1 });
  assertEquals([...fake.kernel.servers.keys()].sort(), ["-t 10.96.0.3:80", "-t 192.0.2.10:30003"]);
});

Deno.test(
  "an address that the node gains or loses makes the rules outdated until the next sync",
  NONE,
  async () => {
    const { fake, own, proxier, sync } = rig();
    assertEquals(proxier.isOutdated(), false);
    await sync({ "s3-np": 1 });
    assertEquals(proxier.isOutdated(), false);
    for (const change of [() => own.push("198.51.100.7"), () => own.pop()]) {
      change();
      assertEquals(proxier.isOutdated(), true);
      await sync({ "s3-np": 1 }, new Set());
      assertEquals(proxier.isOutdated(), false);
      assertEquals(
        [...fake.kernel.servers.keys()].filter((key) => key.endsWith(":30003")),
        own.map((ip) => `-t ${ip}:30003`),
      );
    }
  },
);

Deno.test("Services that come and go with the same wish are warned of each time", NONE, async () => {
  const { log, lines } = recordingLog();
  const { fake, syncState } = ipvsRig(undefined, { log });
  fake.missingSchedulers.add("twos");
  const wishing = (...names: readonly string[]): ProxyState => {
    const state = stateOf("IPv4", Object.fromEntries(names.map((name) => [name, 1])));
    const services = [...state.services].map(([name, ports]) =>
      [name, ports.map((port) => ({ ...port, ipvs: { scheduler: "twos", graceful: true } }))] as const
    );
    return { ...state, services: new Map(services) };
  };
  const warnings = (): number =>
    lines.filter((line) => line.includes("does not get what it asks for")).length;
  const steps: readonly [names: readonly string[], changed: Changed, warnings: number][] = [
    [["s1"], "all", 1],
    [["s1"], "all", 1],
    [["s1", "s2"], new Set(["shop/s2"]), 2],
    [["s2"], new Set(["shop/s1"]), 2],
    [["s1", "s2"], new Set(["shop/s1"]), 3],
    [[], "all", 3],
    [["s1"], "all", 4],
  ];
  for (const [names, changed, wanted] of steps) {
    await syncState(wishing(...names), changed);
    assertEquals(warnings(), wanted);
  }
});

const CHANGES = [
  ["an endpoint", service("s1", ["10.244.1.1", "10.244.1.9"])],
  ["the cluster IP", service("s1", ["10.244.1.1", "10.244.1.2"], { clusterIP: "10.96.1.99" })],
  ["the affinity", service("s1", ["10.244.1.1", "10.244.1.2"], { sessionAffinity: "ClientIP" })],
] as const;

for (const program of ["ipvsadm", "ipset"]) {
  for (const [what, after] of CHANGES) {
    if (program === "ipset" && what !== "the cluster IP") continue;
    Deno.test(`${program}: a change of ${what} that was not written is seen by the next look`, async () => {
      const rig = ipvsRig();
      const { fake, proxier, sync } = rig;
      await sync([...A, ...B]);
      assertEquals(await proxier.findDamage(), false);
      const run = fake.run.bind(fake);
      fake.run = (argv, options) =>
        argv[0] === program && options?.stdin !== undefined
          ? Promise.resolve({ code: 0, stdout: "", stderr: "" })
          : run(argv, options);
      await sync([...after, ...B], ["s1"]);
      fake.run = run;
      assert(await proxier.findDamage(), "nothing is seen");
      await sync([...after, ...B]);
      assertEquals(await proxier.findDamage(), false);
    });
  }
}
