/**
 * Rules that were added with nft to the tables of iptables, and that iptables-nft has no words for: our jumps stand there once, however
 * often everything is written, what others take away comes back, and what is unknown is logged.
 */
import { assertEquals, assertRejects } from "@std/assert";
import { IptablesProxier } from "../../lib/backend/iptables/apply/proxier.ts";
import { SyncError } from "../../lib/errors.ts";
import { type Exec, runOk } from "../../lib/kernel/exec.ts";
import { Iptables } from "../../lib/kernel/iptables.ts";
import { probeIptables } from "../../lib/kernel/iptables_variant.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { defaultSettings, stateOf } from "../support/fake_iptables_state.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("iptables-nft"), program("nft")];

/** The native rule; the second kind breaks iptables-save off in the middle of its text. */
const RULES = [
  ["a table that is named as incompatible", "tcp dport 4999 redirect to :5000"],
  ["a rule that cannot be parsed", "meta mark set meta mark or 0x20"],
] as const;

interface Rig {
  readonly proxier: IptablesProxier;
  readonly told: string[];
  readonly exec: Exec;
  sync(changed?: readonly string[]): ReturnType<IptablesProxier["sync"]>;
  nft(...args: readonly string[]): Promise<string>;
  /** Jumps from these chains to ours, as nft sees them. */
  jumps(table: string, chain: string): Promise<readonly string[]>;
}

async function rig(exec: Exec): Promise<Rig> {
  const told: string[] = [];
  const proxier = new IptablesProxier({
    iptables: new Iptables(exec, await probeIptables(exec, "IPv4", "nft")),
    settings: defaultSettings("IPv4"),
    interfaceIps: () => [],
    logger: { ...silentLogger, warn: (message, values) => told.push(`${values?.["tables"]}: ${message}`) },
  });
  const nft = (...args: readonly string[]): Promise<string> => runOk(exec, ["nft", ...args]);
  return {
    proxier,
    told,
    exec,
    sync: (changed) =>
      proxier.sync({
        state: stateOf("IPv4", { s1: 2, "s2-np": 1 }),
        changed: changed === undefined ? "all" : new Set(changed),
      }),
    nft,
    jumps: async (table, chain) =>
      [...(await nft("list", "chain", "ip", table, chain)).matchAll(/jump (KUBE-\S+)/g)].map(([, to = ""]) =>
        to
      ),
  };
}

for (const [name, rule] of RULES) {
  e2eTest(`a native rule beside our jumps, ${name}: they stand there once`, NEEDS, async () => {
    await withNetns(async ({ exec }) => {
      const { proxier, told, sync, nft, jumps } = await rig(exec);
      await sync();
      for (const table of ["nat", "filter"]) {
        const native = table === "nat" ? rule : "ct state invalid,new counter";
        await nft("add", "rule", "ip", table, "OUTPUT", ...native.split(" "));
      }
      const before = [
        await jumps("nat", "PREROUTING"),
        await jumps("nat", "OUTPUT"),
        await jumps("filter", "OUTPUT"),
      ];
      assertEquals(before[0], ["KUBE-SERVICES"]);
      const next = await rig(exec);
      for (const one of [{ sync, proxier }, next, next]) {
        await one.sync();
        assertEquals(await one.proxier.findDamage(), false);
        assertEquals(
          [await jumps("nat", "PREROUTING"), await jumps("nat", "OUTPUT"), await jumps("filter", "OUTPUT")],
          before,
        );
      }
      assertEquals(told.map((line) => line.split(":")[0]?.split(" ").includes("nat")), [true]);

      // What is ours and can be looked for comes back.
      const chain = /KUBE-SVC-\S+/.exec(await nft("list", "chain", "ip", "nat", "KUBE-SERVICES"))?.[0] ?? "";
      for (
        const lost of [["ip", "nat", "PREROUTING"], ["ip", "nat", "KUBE-SERVICES"], ["ip", "nat", chain]]
      ) {
        await nft("flush", "chain", ...lost);
        const damage = await proxier.findDamage();
        assertEquals(typeof damage, "object", lost.join(" "));
        await sync();
        assertEquals(await proxier.findDamage(), false, lost.join(" "));
      }
      assertEquals(await jumps("nat", "PREROUTING"), before[0]);
    });
  });
}

e2eTest("a lost jump that nobody can look for is said, and not made twice", NEEDS, async () => {
  await withNetns(async ({ exec }) => {
    const { sync, nft, jumps } = await rig(exec);
    await sync();
    await nft("flush", "chain", "ip", "nat", "PREROUTING");
    await nft("add", "rule", "ip", "nat", "PREROUTING", "ct", "state", "new", "counter");
    for (let i = 0; i < 2; i++) {
      await assertRejects(() => sync(), SyncError, "because of rules that nft added to it");
    }
    assertEquals(await jumps("nat", "PREROUTING"), []);
    await nft("flush", "chain", "ip", "nat", "PREROUTING");
    await sync();
    assertEquals(await jumps("nat", "PREROUTING"), ["KUBE-SERVICES"]);
  });
});
