/** Refused parts of a Service are left out and reported; everything else is in force after one sync. */
import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import type { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { ipvsRig as rig, standing } from "../../../../tests/support/ipvs_rig.ts";
import { service } from "../../../../tests/support/nftables_rig.ts";
import { releaseBy, RELEASES } from "../../../../tests/support/quarantine_release.ts";
import { SyncError } from "../../../errors.ts";
import type { ApiObject } from "../../../model/objects.ts";

const NONE = { permissions: "none" } as const;
const GOOD = service("s2", ["10.244.1.3", "10.244.1.4"]);
const NOT_UNICAST = "ipvsadm: Invalid operation.  Possibly wrong module version, address not unicast, ...";

/** Broadcast addresses of links of the node. */
const BROADCASTS: readonly string[] = [
  "192.0.2.127",
  "192.0.2.191",
  "192.0.2.255",
  ...Array.from({ length: 500 }, (_, at) => `198.18.${at >> 8}.${at & 255}`),
];

/** A rig of a node with these links, or of one more process beside `kernel` as it is now. */
function ipvsRig(kernel?: FakeIpvs): ReturnType<typeof rig> {
  const made = rig(kernel);
  if (kernel === undefined) { for (const address of BROADCASTS) made.fake.kernel.broadcasts.add(address); }
  return made;
}

/** The kernel after a first sync of these, without real servers that leave. */
async function fresh(objects: readonly ApiObject[]): Promise<unknown> {
  const { fake, sync } = ipvsRig();
  await sync(objects);
  return standing(fake);
}

function refuseAdding(fake: FakeIpvs, program: "ipset" | "ip" | "ipvsadm" | "iptables", words: string): void {
  fake.kernel.refuse = (one, line) =>
    one === program && / ?(add |-[Aa] )/.test(line) && line.includes(words) ? "Unknown error -1" : undefined;
}

Deno.test(
  "an endpoint that IPVS cannot have costs only itself, on a fresh node and later, in one sync",
  NONE,
  async () => {
    const { fake, sync } = ipvsRig();
    const bad = service("s1", ["10.244.1.1", "192.0.2.255", "192.0.2.127"]);
    const good = service("s1", ["10.244.1.1"]);
    const report = await sync([...bad, ...GOOD]);
    assertEquals(standing(fake), await fresh([...good, ...GOOD]));
    assertEquals(report.quarantined, [
      { service: "shop/s1", problem: `endpoint 192.0.2.127:8080: ${NOT_UNICAST} (and 1 more)` },
    ]);
    // Now that it is known, it costs the others nothing, and nothing is read.
    fake.runs.length = 0;
    const more = service("s2", ["10.244.1.3", "10.244.1.9"]);
    const next = await sync([...bad, ...more], ["s2"]);
    assertEquals([fake.runs, next.commands], [["ipvsadm -R"], 1]);
    assertEquals(next.quarantined, report.quarantined);
    assertEquals(standing(fake), await fresh([...good, ...more]));

    // One that comes with a change, beside a change of others: no read either.
    fake.runs.length = 0;
    const worse = service("s2", ["10.244.1.3", "192.0.2.191", "10.244.1.5"]);
    const third = await sync([...bad, ...worse, ...service("s3", ["10.244.1.7"])], ["s2", "s3"]);
    assertEquals(fake.runs, ["ipset restore", "ipvsadm -R", "ipvsadm -R", "ip -force"]);
    assertEquals([third.commands, third.quarantined?.map(({ service }) => service)], [4, [
      "shop/s1",
      "shop/s2",
    ]]);
    assertEquals(
      standing(fake),
      await fresh([
        ...good,
        ...service("s2", ["10.244.1.3", "10.244.1.5"]),
        ...service("s3", ["10.244.1.7"]),
      ]),
    );
  },
);

for (const release of RELEASES) {
  Deno.test(
    `what the kernel takes now is in force by ${release}, and no longer quarantined`,
    NONE,
    async () => {
      const { fake, sync, clock } = ipvsRig();
      const bad = service("s1", ["10.244.1.1", "10.244.1.66"]);
      refuseAdding(fake, "ipvsadm", "10.244.1.66");
      assertEquals((await sync([...bad, ...GOOD])).quarantined?.length, 1);
      // Tried again, in vain.
      const changed = service("s1", ["10.244.1.2", "10.244.1.66"]);
      assertEquals((await sync([...changed, ...GOOD], ["s1"])).quarantined?.length, 1);
      fake.kernel.refuse = () => undefined;
      const nextSync = ipvsRig(fake).sync;
      const wanted = await releaseBy(release, { sync, clock, nextSync, service: changed, others: GOOD });
      assertEquals(standing(fake), await fresh(wanted));
    },
  );
}

const UNFIT = service("s1", ["10.244.1.1"], { clusterIP: "0.0.0.0" });

Deno.test(
  "a cluster IP that no set can hold is not served; everything else is, in the same sync",
  NONE,
  async (t) => {
    await t.step("on a fresh node", async () => {
      const { fake, proxier, sync } = ipvsRig();
      const { quarantined } = await sync([...UNFIT, ...GOOD]);
      assertEquals(standing(fake), await fresh(GOOD));
      assertEquals(quarantined, [{
        service: "shop/s1",
        problem: "address 0.0.0.0:80/TCP: ipset: Null-valued element, cannot be stored in a hash type of set",
      }]);
      assertEquals(await proxier.findDamage(), false);
      // A change of others reads nothing, one of its own neither.
      fake.runs.length = 0;
      const [first = UNFIT[0]!] = UNFIT;
      const other = [first, ...service("s1", ["10.244.1.2"]).slice(1)];
      assertEquals((await sync([...other, ...GOOD.slice(0, 1)], ["s1", "s2"])).quarantined?.length, 1);
      assertEquals(fake.runs, ["ipvsadm -R"]);
    });
    await t.step("with a change", async () => {
      const { fake, sync } = ipvsRig();
      await sync(GOOD);
      fake.runs.length = 0;
      const { quarantined, commands } = await sync([...UNFIT, ...GOOD, ...service("s3", ["10.244.1.7"])], [
        "s1",
        "s3",
      ]);
      assertEquals(quarantined?.length, 1);
      assertEquals(standing(fake), await fresh([...GOOD, ...service("s3", ["10.244.1.7"])]));
      assertEquals(fake.runs.length, commands);
      // A cluster IP that is one is tried at once.
      const fit = service("s1", ["10.244.1.1"]);
      assertEquals((await sync([...fit, ...GOOD], ["s1", "s3"])).quarantined, []);
      assertEquals(standing(fake), await fresh([...fit, ...GOOD]));
    });
  },
);

for (
  const [program, words] of [
    ["ipset", "203.0.113.7,tcp:80"],
    ["ipvsadm", "-A -t 203.0.113.7:80"],
    ["ip", "203.0.113.7/32"],
    ["iptables", "--vaddr 203.0.113.7 "],
  ] as const
) {
  Deno.test(
    `an address that ${program} refuses is not served; the Service's other ones are`,
    NONE,
    async () => {
      const guarded = (...ips: readonly string[]) =>
        service("s1", ["10.244.1.1"], {
          type: "LoadBalancer",
          loadBalancerIngress: ips.map((ip) => ({ ip, ipMode: "VIP" as const })),
          loadBalancerSourceRanges: ["198.51.100.0/24"],
        });
      const wanted = [...guarded("203.0.113.6", "203.0.113.7", "203.0.113.8"), ...GOOD];
      for (const before of [undefined, GOOD]) {
        const { fake, proxier, sync, clock } = ipvsRig();
        if (before !== undefined) await sync(before);
        refuseAdding(fake, program, words);
        const { quarantined } = await sync(wanted, before === undefined ? undefined : ["s1"]);
        assertEquals(standing(fake), await fresh([...guarded("203.0.113.6", "203.0.113.8"), ...GOOD]));
        assertMatch(quarantined?.[0]?.problem ?? "", new RegExp(`^address 203.0.113.7:80/TCP: ${program}: `));
        assertEquals(await proxier.findDamage(), false);
        fake.kernel.refuse = () => undefined;
        clock.nowMs = 60_000;
        assertEquals((await sync(wanted, ["s2"])).quarantined, []);
        assertEquals(standing(fake), await fresh(wanted));
      }
    },
  );
}

Deno.test("an entry of no server that is refused costs only itself", NONE, async () => {
  const { fake, sync } = ipvsRig();
  refuseAdding(fake, "ipset", "KUBE-NODE-PORT-TCP 30001");
  const nodePort = service("s1", ["10.244.1.1"], {
    type: "NodePort",
    ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 30001, appProtocol: "" }],
  } as never);
  const { quarantined } = await sync([...nodePort, ...GOOD]);
  assertEquals(quarantined?.map(({ problem }) => problem), [
    "entry KUBE-NODE-PORT-TCP 30001: ipset: Unknown error -1",
  ]);
  assert(fake.kernel.servers.has("-t 192.0.2.10:30001"));
  assert(fake.kernel.addresses?.has("10.96.1.1"));
});

Deno.test("many refused endpoints cost one run more when they come, and none later", NONE, async () => {
  const { fake, sync } = ipvsRig();
  const bad = service("s1", BROADCASTS.slice(-500));
  await sync(GOOD);
  fake.runs.length = 0;
  const { quarantined } = await sync([...bad, ...GOOD], ["s1"]);
  assertEquals(fake.runs, ["ipset restore", "ipvsadm -R", "ipvsadm -R", "ip -force"]);
  assertStringIncludes(quarantined?.[0]?.problem ?? "", "(and 499 more)");
  fake.runs.length = 0;
  await sync([...bad, ...service("s2", ["10.244.1.3"])], ["s2"]);
  assertEquals(fake.runs, ["ipvsadm -R"]);
});

Deno.test("hundreds of refused entries cost only themselves, in one sync", NONE, async () => {
  const { fake, sync } = ipvsRig();
  const external = (name: string, count: number): readonly ApiObject[] =>
    service(name, ["10.244.1.1"], {
      externalIPs: Array.from({ length: count }, (_, i) => `203.0.${i >> 8}.${i & 255}`),
    });
  refuseAdding(fake, "ipset", "203.0.");
  const { quarantined } = await sync([...external("s1", 600), ...GOOD]);
  assertEquals(standing(fake), await fresh([...external("s1", 0), ...GOOD]));
  assertEquals(quarantined?.map(({ service }) => service), ["shop/s1"]);
  assertStringIncludes(quarantined?.[0]?.problem ?? "", "(and 599 more)");
  // Now that they are known, they cost the others nothing.
  fake.runs.length = 0;
  await sync([...external("s1", 600), ...service("s2", ["10.244.1.3"])], ["s2"]);
  assertEquals(fake.runs, ["ipvsadm -R"]);
});

/** Faults of a whole sync, whatever Services there are. */
const OTHER_FAULTS: readonly [name: string, break_: (fake: FakeIpvs) => void][] = [
  ["others add the same virtual server meanwhile", (fake) => {
    fake.afterRun = (argv) => {
      if (argv[1] === "restore") {
        fake.kernel.servers.set("-t 10.96.1.1:80", { options: "-s rr", real: new Map() });
      }
      return Promise.resolve();
    };
  }],
  ["no memory for a set", (fake) => {
    fake.kernel.refuse = (program) =>
      program === "ipset" ? "Kernel error received: Cannot allocate memory" : undefined;
  }],
  ["no memory for a server", (fake) => {
    fake.kernel.refuse = (program) => program === "ipvsadm" ? "Memory allocation problem" : undefined;
  }],
  ["no rights", (fake) => {
    fake.kernel.refuse = (program) =>
      program === "ip" ? "RTNETLINK answers: Operation not permitted" : undefined;
  }],
  ["a rule of no Service", (fake) => {
    fake.kernel.refuse = (_, line) => line.includes("-A KUBE-MARK-MASQ") ? "Invalid argument" : undefined;
  }],
  ["ipvsadm is killed", (fake) => {
    fake.fail = (argv) => argv[1] === "-R" ? { code: 137, stdout: "", stderr: "" } : undefined;
  }],
  ["ipvsadm prints what has no meaning", (fake) => {
    fake.fail = (argv) => argv[1] === "-R" ? { code: 0, stdout: "", stderr: "Segfault?\n" } : undefined;
  }],
  ["ipset prints what has no meaning", (fake) => {
    fake.fail = (argv) =>
      argv[1] === "restore" ? { code: 1, stdout: "", stderr: "Error in line 9999999: what\n" } : undefined;
  }],
];

Deno.test("no Service is quarantined for what is not its fault", NONE, async (t) => {
  const objects = (...pods: readonly string[]): readonly ApiObject[] => [
    ...service("s1", pods, {
      type: "LoadBalancer",
      loadBalancerIngress: [{ ip: "203.0.113.7", ipMode: "VIP" }],
      loadBalancerSourceRanges: ["198.51.100.0/24"],
    }),
    ...GOOD,
  ];
  const wanted = objects("10.244.1.1", "192.0.2.127");
  for (const [name, break_] of OTHER_FAULTS) {
    await t.step(name, async () => {
      const { fake, sync } = ipvsRig();
      break_(fake);
      await assertRejects(() => sync(wanted), SyncError);
      fake.fail = () => undefined;
      fake.afterRun = () => Promise.resolve();
      fake.kernel.refuse = () => undefined;
      const { quarantined } = await sync(wanted);
      assertEquals(quarantined?.map(({ problem }) => problem), [`endpoint 192.0.2.127:8080: ${NOT_UNICAST}`]);
      assertEquals(standing(fake), await fresh(objects("10.244.1.1")));
    });
  }
});

Deno.test("a virtual server that others took away is no fault of its endpoints", NONE, async () => {
  const { fake, sync } = ipvsRig();
  await sync([...service("s1", ["10.244.1.1"]), ...GOOD]);
  fake.kernel.servers.delete("-t 10.96.1.2:80");
  const wanted = [
    ...service("s1", ["10.244.1.1", "192.0.2.127"]),
    ...service("s2", ["10.244.1.3", "10.244.1.5"]),
  ];
  await assertRejects(() => sync(wanted, ["s1", "s2"]), SyncError, "Service not defined");
  assertEquals((await sync(wanted)).quarantined?.map(({ service }) => service), ["shop/s1"]);
  assertEquals(
    standing(fake),
    await fresh([...service("s1", ["10.244.1.1"]), ...service("s2", ["10.244.1.3", "10.244.1.5"])]),
  );
});
