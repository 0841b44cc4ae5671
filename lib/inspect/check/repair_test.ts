/**
 * `kproxy check --repair` on tools that work in memory: afterwards our rules are clean, and other rules are unchanged.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { inputOf } from "../../../tests/support/check_objects.ts";
import { FakeIptables } from "../../../tests/support/fake_iptables.ts";
import { FakeIpvs } from "../../../tests/support/fake_ipvs.ts";
import { FakeNft } from "../../../tests/support/fake_nft.ts";
import { fakeSysctl } from "../../../tests/support/fake_sysctl.ts";
import { ipvsRig } from "../../../tests/support/ipvs_rig.ts";
import type { Modes } from "../../backend/node/choose_mode.ts";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import { silentLogger } from "../../observe/log.ts";
import { type MachineFacts, type RulesMode, UNKNOWN_MACHINE } from "../desired/desired.ts";
import { liveOfKernel } from "../live/kernel_rules.ts";
import { checkNode, type FamilyCheck, isClean } from "./check.ts";
import { damagedFamilies, repair } from "./repair.ts";

/** A node in memory. */
interface Node {
  readonly mode: RulesMode;
  readonly exec: Exec;
  readonly machine: MachineFacts;
  readonly modes?: Modes;
}

const SYSCTLS = {
  "net.netfilter.nf_conntrack_tcp_be_liberal": "0",
  "net.ipv4.conf.all.route_localnet": "1",
  "net.ipv6.conf.all.disable_ipv6": "0",
};

/** Machine facts as the proxiers read them here. */
function thisMachine(): MachineFacts {
  const addresses = Deno.networkInterfaces().map(({ name, family, address }): DeviceAddress => ({
    device: name,
    family,
    address,
    prefixLength: 24,
    scope: "global",
  }));
  return { addresses, tcpBeLiberal: false, nfacct: false };
}

function execOf(run: Exec["run"]): Exec {
  return {
    run: async (argv, options) => {
      if (argv[0] === "sysctl") return fakeSysctl({ ...SYSCTLS }, argv.slice(1));
      return await run(argv, options);
    },
  };
}

function missing(argv: readonly string[]): never {
  throw new ExecError(argv, -1, `entity not found: ${argv[0]}`);
}

function iptablesNode(fake: FakeIptables): Node {
  const exec = execOf(async (argv, options) =>
    /^ip6?tables/.test(argv[0] ?? "") ? await fake.run(argv, options) : missing(argv)
  );
  return { mode: "iptables", exec, machine: thisMachine() };
}

function nftablesNode(fake: FakeNft): Node {
  const exec = execOf(async (argv, options) => {
    if (argv[0] !== "nft") missing(argv);
    if (argv.slice(1).join(" ") !== "list ruleset") return await fake.run(argv, options);
    const tables = ["ip kproxy", "ip6 kproxy", "ip others"].map((table) => fake.listed(table));
    return { code: 0, stdout: tables.join(""), stderr: "" };
  });
  return { mode: "nftables", exec, machine: thisMachine() };
}

function ipvsNode(fake: FakeIpvs): Node {
  const exec = execOf(async (argv, options) => {
    const [program = ""] = argv;
    if (program === "iptables-nft-save") return await fake.run(["iptables-save"], options);
    return program.startsWith("ip6") || program.includes("legacy") || program === "nft"
      ? missing(argv)
      : await fake.run(argv, options);
  });
  const prepared = {
    proxiers: [ipvsRig(fake).proxier],
    refused: [],
    reconfigure: () => [],
  };
  return {
    mode: "ipvs",
    exec,
    machine: UNKNOWN_MACHINE,
    modes: new Map([["ipvs", () => Promise.resolve(prepared)]]),
  };
}

async function check({ mode, exec, machine }: Node): Promise<readonly FamilyCheck[]> {
  return await checkNode({
    mode,
    desired: inputOf(mode, undefined, machine),
    live: await liveOfKernel(exec),
    isKernel: true,
    nodeAddresses: ["192.0.2.10"],
    podInterface: "cni0",
    quarantined: null,
  });
}

async function fix(node: Node, checks: readonly FamilyCheck[]): Promise<readonly string[]> {
  const { mode, exec, machine, modes } = node;
  const desired = inputOf(mode, undefined, machine);
  const { families, refused } = await repair({ exec, mode, desired, checks, log: silentLogger, modes });
  assertEquals(refused, []);
  return families;
}

/** A check reports this damage, and after the repair it reports none. */
async function assertFixed(node: Node, finds: string): Promise<void> {
  const damaged = await check(node);
  assertStringIncludes(places(damaged), finds);
  await fix(node, damaged);
  const after = await check(node);
  assert(after.every(isClean), places(after));
}

function places(checks: readonly FamilyCheck[]): string {
  return checks.flatMap(({ base, services, leftovers, problems }) => [
    ...[...base, ...[...services.values()].flat(), ...leftovers].map((
      { kind, place, cause, wanted, found },
    ) => `${kind} ${place}: ${cause}\n  - ${wanted.join("\n  - ")}\n  + ${found.join("\n  + ")}`),
    ...problems.map(({ place, message }) => `${place}: ${message}`),
  ]).join("\n");
}

/** Name of the fake's chain whose rules match. */
function chainOf(saved: string, words: RegExp): string {
  const chain = words.exec(saved)?.[1];
  assert(chain !== undefined, saved);
  return chain;
}

const OTHERS = "-A PREROUTING -d 203.0.113.9/32 -j ACCEPT";

const IPTABLES_FAULTS:
  readonly (readonly [name: string, args: (nat: string) => readonly string[], finds: string])[] = [
    ["a rule removed", () => ["-D", "KUBE-SERVICES", "1"], "missing iptables nat KUBE-SERVICES"],
    [
      "a rule more in an endpoint's chain",
      (nat) => ["-I", chainOf(nat, /-A (KUBE-SEP-\S+) .*shop\/web/), "-j", "RETURN"],
      "surplus iptables nat KUBE-SEP-",
    ],
    [
      "a jump removed",
      (nat) => {
        const jump = /^-A (OUTPUT .*KUBE-SERVICES)$/m.exec(nat)?.[1] ?? "";
        return [
          "-D",
          ...Array.from(jump.matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, word]) => quoted ?? word ?? ""),
        ];
      },
      "missing iptables nat OUTPUT: the jump is missing",
    ],
    [
      "a stale Service's chain",
      () => ["-N", "KUBE-SVC-ABCDEFGHIJKLMNOP"],
      "leftover iptables nat KUBE-SVC-ABCD",
    ],
  ];

Deno.test("iptables: --repair makes a node clean, and leaves alone what is not ours", async (t) => {
  const fake = new FakeIptables();
  const node = iptablesNode(fake);
  await fake.run(["iptables", "-t", "nat", "-A", "PREROUTING", "-d", "203.0.113.9/32", "-j", "ACCEPT"]);
  const bare = await check(node);
  assertStringIncludes(places(bare), "missing iptables nat KUBE-SERVICES");
  assertEquals(await fix(node, bare), ["IPv4"]);
  assertEquals(places(await check(node)), "");
  for (const [name, args, finds] of IPTABLES_FAULTS) {
    await t.step(name, async () => {
      const { code, stderr } = await fake.run(["iptables", "-t", "nat", ...args(fake.saved("IPv4", "nat"))]);
      assertEquals([code, stderr], [0, ""]);
      await assertFixed(node, finds);
      assertStringIncludes(fake.saved("IPv4", "nat"), OTHERS);
    });
  }
  await t.step("of a sound node nothing is written", async () => {
    const writes = (): number => fake.runs.filter(({ argv }) => argv[0]?.includes("restore")).length;
    const before = writes();
    assertEquals(await fix(node, await check(node)), []);
    assertEquals(writes(), before);
  });
  await t.step("a rule of another program in front is told, and stays", async () => {
    const rule = ["-d", "10.96.0.1/32", "-j", "ACCEPT"];
    await fake.run(["iptables", "-t", "nat", "-I", "PREROUTING", "1", ...rule]);
    const found = await check(node);
    assertStringIncludes(places(found), "foreign table nat chain PREROUTING rule 1");
    assertEquals([damagedFamilies(found), await fix(node, found)], [[], []]);
    assertStringIncludes(fake.saved("IPv4", "nat"), "-A PREROUTING -d 10.96.0.1/32 -j ACCEPT");
  });
});

const NFT_FAULTS: readonly (readonly [name: string, text: string, finds: string])[] = [
  [
    "an element removed",
    "delete element ip kproxy service-ips { 10.96.0.1 . tcp . 80 }",
    "missing nftables ip kproxy service-ips",
  ],
  [
    "an element of no Service",
    "add element ip kproxy cluster-ips { 10.96.7.7 }",
    "leftover nftables ip kproxy cluster-ips",
  ],
  ["the table removed", "delete table ip kproxy", "the table is gone"],
];

Deno.test("nftables: --repair makes a node clean, and leaves alone what is not ours", async (t) => {
  const fake = new FakeNft();
  const node = nftablesNode(fake);
  await fake.others("add table ip others\nadd chain ip others mine\nadd rule ip others mine accept\n");
  await fix(node, await check(node));
  assertEquals(places(await check(node)), "");
  const others = fake.listed("ip others");
  for (const [name, text, finds] of NFT_FAULTS) {
    await t.step(name, async () => {
      await fake.others(`${text}\n`);
      await assertFixed(node, finds);
      assertEquals(fake.listed("ip others"), others);
    });
  }
});

const IPVS_FAULTS:
  readonly (readonly [name: string, argv: readonly string[], stdin: string, finds: string])[] = [
    [
      "a real server with another weight",
      ["ipvsadm", "-R"],
      "-e -t 10.96.0.1:80 -r 10.244.0.12:8080 -m -w 7\n",
      "changed IPVS 10.96.0.1:80/TCP: a real server has another weight",
    ],
    [
      "a real server removed",
      ["ipvsadm", "-R"],
      "-d -t 10.96.0.1:80 -r 10.244.0.12:8080\n",
      "missing IPVS 10.96.0.1:80/TCP",
    ],
    [
      "an entry removed",
      ["ipset", "restore"],
      "del KUBE-CLUSTER-IP 10.96.0.1,tcp:80\n",
      "missing ipset KUBE-CLUSTER-IP",
    ],
  ];

Deno.test("ipvs: --repair makes a node clean", async (t) => {
  const fake = new FakeIpvs();
  const node = ipvsNode(fake);
  const bare = await check(node);
  assertEquals(await fix(node, bare), ["IPv4"]);
  assertEquals(places(await check(node)), "");
  for (const [name, argv, stdin, finds] of IPVS_FAULTS) {
    await t.step(name, async () => {
      const { code, stderr } = await fake.run(argv, { stdin });
      assertEquals([code, stderr], [0, ""]);
      await assertFixed(node, finds);
    });
  }
});
