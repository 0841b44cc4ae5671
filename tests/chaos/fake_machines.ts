/**
 * The fake machines of {@linkcode runFakeChaos}, one for each mode.
 *
 * @module
 */
import { IptablesProxier } from "../../lib/backend/iptables/apply/proxier.ts";
import { IpvsProxier, SchedulerProbe } from "../../lib/backend/ipvs/apply/proxier.ts";
import { GracefulTermination } from "../../lib/backend/ipvs/apply/graceful_termination.ts";
import { type Clock, Mutex, systemClock } from "../../lib/kernel/clock.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { Iptables, type IptablesVariant } from "../../lib/kernel/iptables.ts";
import { probeIptables } from "../../lib/kernel/iptables_variant.ts";
import { Ipvsadm } from "../../lib/kernel/ipvsadm.ts";
import { splitHostPort } from "../../lib/model/ip.ts";
import { nodePortAddresses } from "../../lib/model/node.ts";
import type { DeviceAddress } from "../../lib/netfilter/ip_batch.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { FakeIptables } from "../support/fake_iptables.ts";
import { defaultSettings } from "../support/fake_iptables_state.ts";
import { FakeIpvs } from "../support/fake_ipvs.ts";
import { FakeNft } from "../support/fake_nft.ts";
import { exampleIpvsOptions } from "../support/golden_ipvs.ts";
import { iptablesLines } from "../support/iptables_rig.ts";
import { nftablesProxier, TABLE } from "../support/nftables_rig.ts";
import type { FakeMachine } from "./fake_chaos.ts";
import { comparableNft } from "./nft_list.ts";

const NODE_IPS = ["192.0.2.10"];
/** Waits of a proxier take no time. */
const CLOCK: Clock = { nowMs: () => 0, sleep: () => Promise.resolve() };

/** iptables mode in one of its variants. */
export async function fakeIptablesMachine(variant: IptablesVariant): Promise<FakeMachine> {
  const fake = new FakeIptables({ variant });
  const found = await probeIptables(fake, "IPv4", variant);
  const restore = (...lines: readonly string[]) => async (): Promise<void> => {
    await fake.run([`iptables-restore`, "--noflush"], { stdin: lines.map((line) => `${line}\n`).join("") });
  };
  return {
    exec: fake,
    proxier: (exec) =>
      new IptablesProxier({
        iptables: new Iptables(exec, { ...found, clock: CLOCK, random: () => 0.5, lockDeadlineMs: 50 }),
        settings: defaultSettings("IPv4"),
        interfaceIps: () => NODE_IPS,
        logger: silentLogger,
      }),
    damages: [
      restore("*nat", "-F", "COMMIT"),
      restore("*filter", "-F", "COMMIT"),
      restore("*nat", "-F KUBE-SERVICES", "COMMIT"),
      restore("*nat", "-F KUBE-POSTROUTING", "COMMIT"),
      restore("*nat", "-A KUBE-SERVICES -d 203.0.113.7/32 -j RETURN", "COMMIT"),
      restore("*nat", "-D KUBE-MARK-MASQ 1", "COMMIT"),
      async () => {
        await fake.run(["iptables-restore"], { stdin: "*nat\nCOMMIT\n*filter\nCOMMIT\n" });
      },
    ],
    pause: () => {},
    endState: () => iptablesLines(fake.saved("IPv4")),
    mode: "iptables",
    texts: () =>
      Promise.resolve([{
        name: "iptables-save",
        kind: "iptables",
        family: "IPv4",
        text: fake.saved("IPv4"),
      }]),
  };
}

/** nftables mode; a few elements in each transaction make a sync several. */
export function fakeNftablesMachine(elementsPerTransaction = 10): FakeMachine {
  const fake = new FakeNft();
  const clock = { nowMs: 0 };
  const others = (text: string) => async (): Promise<void> => {
    if (fake.listed(TABLE) !== "") await fake.others(text);
  };
  return {
    exec: fake,
    proxier: (exec) => nftablesProxier(exec, clock, elementsPerTransaction),
    damages: [
      others("delete table ip kproxy\n"),
      others("flush map ip kproxy service-ips\n"),
      others("flush chain ip kproxy services\n"),
      others("flush chain ip kproxy nat-prerouting\n"),
      others("add element ip kproxy cluster-ips { 10.9.9.9 }\n"),
      others("add rule ip kproxy services drop\n"),
    ],
    pause: () => {
      clock.nowMs += 2_000;
    },
    endState: () => fake.listed(TABLE) === "" ? [] : comparableNft(fake.json(TABLE)),
    mode: "nftables",
    texts: () => Promise.resolve([{ name: "nft", kind: "nftables", text: fake.listed(TABLE) }]),
  };
}

const { nodePortIps: _1, hostIps: _2, schedulers: _3, ...IPVS_OPTIONS } = exampleIpvsOptions(
  "IPv4",
);

/** A proxier of IPVS mode on the fake tools. */
function ipvsProxier(exec: Exec): IpvsProxier {
  const ipvs = new Ipvsadm(exec);
  const mutex = new Mutex();
  return new IpvsProxier({
    exec,
    ipvs,
    terminations: new GracefulTermination({
      ipvs,
      clock: { ...systemClock, sleep: () => new Promise(() => {}) },
      log: silentLogger,
      deadlineMs: 0,
      mutex,
    }),
    mutex,
    iptables: new Iptables(exec, {
      family: "IPv4",
      variant: "nft",
      version: "1.8.9",
      programs: { command: "iptables", save: "iptables-save", restore: "iptables-restore" },
      clock: CLOCK,
    }),
    schedulers: new SchedulerProbe(ipvs, "rr"),
    settings: { ...IPVS_OPTIONS, nodePortAddresses: nodePortAddresses("IPv4", null) },
    deviceAddresses: () =>
      NODE_IPS.map((address): DeviceAddress => ({
        device: "eth0",
        family: "IPv4",
        address,
        prefixLength: 24,
        scope: "global",
      })),
    log: silentLogger,
    nowMs: () => 0,
  });
}

/** What may be done to a node in IPVS mode. */
function ipvsDamages(kernel: FakeIpvs["kernel"]): FakeMachine["damages"] {
  const damage = (work: () => void) => (): Promise<void> => Promise.resolve(work());
  return [
    damage(() => kernel.servers.clear()),
    damage(() => {
      const [first] = kernel.servers.keys();
      if (first !== undefined) kernel.servers.delete(first);
    }),
    damage(() => {
      for (const { real } of kernel.servers.values()) real.clear();
    }),
    damage(() => {
      for (const { entries } of kernel.sets.values()) entries.clear();
      // What was being removed has lost its address first, and then only the sets tell whose it is: it goes with them.
      for (const key of kernel.servers.keys()) {
        const [address = ""] = splitHostPort(key.split(" ")[1] ?? "");
        if (kernel.addresses?.has(address) !== true) kernel.servers.delete(key);
      }
    }),
    damage(() => kernel.edit("nat", "KUBE-SERVICES", (rules) => rules.splice(0))),
    damage(() => {
      kernel.addresses?.clear();
    }),
  ];
}

/** IPVS mode. */
export function fakeIpvsMachine(): FakeMachine {
  const fake = new FakeIpvs();
  const { kernel } = fake;
  return {
    exec: fake,
    proxier: ipvsProxier,
    damages: ipvsDamages(kernel),
    pause: () => {},
    // Virtual servers are kproxy's by their addresses and sets. One that stays although these went looks like another program's, and so it
    // does after a lie of the programs that show or delete them.
    isSpared: (fault, [program]) => (fault === "lies" || fault === "garbage") && program !== "iptables-save",
    endState: () => {
      const { servers, ...rest } = kernel.snapshot() as { readonly servers: readonly string[] };
      // Real servers on their way out go with the last of their connections.
      return { ...rest, servers: servers.filter((line) => !line.endsWith(" -w 0")) };
    },
    mode: "ipvs",
    texts: async () => {
      const said = async (...argv: readonly string[]): Promise<string> => (await fake.run(argv)).stdout;
      return [
        { name: "iptables-save", kind: "iptables", family: "IPv4", text: await said("iptables-save") },
        { name: "ipset", kind: "ipset", text: await said("ipset", "save") },
        { name: "ipvsadm", kind: "ipvsadm", text: await said("ipvsadm", "-Sn") },
      ];
    },
  };
}
