/**
 * Rules that were added with nft to the tables of iptables, and that iptables-nft has no words for: in mode ipvs our jumps stand there
 * once and in their order, and what others take away comes back. Sets and rules are real; IPVS and the device,
 * which this kernel may lack, are made up.
 */
import { assertEquals } from "@std/assert";
import type { Exec, ExecOptions, ExecResult } from "../../lib/kernel/exec.ts";
import { Iptables } from "../../lib/kernel/iptables.ts";
import { probeIptables } from "../../lib/kernel/iptables_variant.ts";
import { FakeIpvs } from "../support/fake_ipvs.ts";
import { ipvsRig } from "../support/ipvs_rig.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { stateOf } from "../support/fake_iptables_state.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { recordingLog } from "../support/recording_log.ts";

const NEEDS = [ROOT_NAMESPACES, ...["iptables-nft", "nft", "ipset"].map(program)];

/** A node whose IPVS and devices are made up. */
class NodeWithoutIpvs extends FakeIpvs {
  readonly #exec: Exec;
  readonly #iptables: Iptables;

  constructor(exec: Exec, iptables: Iptables) {
    super();
    this.#exec = exec;
    this.#iptables = iptables;
  }

  static async in({ exec }: Netns): Promise<NodeWithoutIpvs> {
    return new NodeWithoutIpvs(exec, new Iptables(exec, await probeIptables(exec, "IPv4", "nft")));
  }

  override iptables(): Iptables {
    return this.#iptables;
  }

  override run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return argv[0] === "ipvsadm" || argv[0] === "ip"
      ? super.run(argv, options)
      : this.#exec.run(argv, options);
  }
}

/** A rule that breaks iptables-save off in the middle of its text; what reads tables is that of mode iptables. */
const RULE = "meta mark set meta mark or 0x20".split(" ");

/** Chains of the kernel with jumps to ours. */
const JUMPING = [
  ["nat", "PREROUTING"],
  ["nat", "OUTPUT"],
  ["nat", "POSTROUTING"],
  ["filter", "INPUT"],
  ["filter", "FORWARD"],
  ["filter", "OUTPUT"],
] as const;

e2eTest(
  "mode ipvs, a native rule beside our jumps that cannot be parsed: they stand there once",
  NEEDS,
  async () => {
    await withNetns(async (netns) => {
      const nft = (...args: readonly string[]): Promise<string> => netns.run(["nft", ...args]);
      const jumps = async (): Promise<readonly string[]> => {
        const found = [];
        for (const [table, chain] of JUMPING) {
          const text = await nft("list", "chain", "ip", table, chain);
          found.push(
            `${table} ${chain}: ${Array.from(text.matchAll(/jump (KUBE-\S+)/g), ([, to]) => to).join(" ")}`,
          );
        }
        return found;
      };
      const node = await NodeWithoutIpvs.in(netns);
      const { log, lines } = recordingLog();
      const { proxier, syncState } = ipvsRig(node, { log });
      const sync = () => syncState(stateOf("IPv4", { s1: 2, "s2-np": 1 }), "all");
      await sync();
      const before = await jumps();
      assertEquals(before[4], "filter FORWARD: KUBE-PROXY-FIREWALL KUBE-FORWARD");
      await nft("add", "rule", "ip", "nat", "OUTPUT", ...RULE);
      await nft("add", "rule", "ip", "filter", "FORWARD", "counter", "log");

      const next = ipvsRig(node);
      const nextSync = () => next.syncState(stateOf("IPv4", { s1: 2, "s2-np": 1 }), "all");
      for (const one of [{ proxier, sync }, { proxier: next.proxier, sync: nextSync }]) {
        await one.sync();
        assertEquals(await one.proxier.findDamage(), false);
        assertEquals(await jumps(), before);
      }
      const warnings = lines.filter((line) => line.startsWith("W "));
      assertEquals(
        [warnings.length, /tables="nat filter"/.test(warnings[0] ?? "")],
        [1, true],
        lines.join("\n"),
      );

      // What others take away comes back, in its place.
      const firewall = /jump KUBE-PROXY-FIREWALL # handle (\d+)/.exec(
        await nft("-a", "list", "chain", "ip", "filter", "FORWARD"),
      )?.[1] ?? "";
      for (
        const [damage, found] of [
          [["flush", "chain", "ip", "nat", "PREROUTING"], "nat PREROUTING"],
          [["flush", "chain", "ip", "nat", "KUBE-SERVICES"], "nat KUBE-SERVICES"],
          [["add", "rule", "ip", "nat", "KUBE-SERVICES", ...RULE], "nat KUBE-SERVICES"],
          [["delete", "rule", "ip", "filter", "FORWARD", "handle", firewall], "filter FORWARD"],
        ] as const
      ) {
        await nft(...damage);
        assertEquals(await proxier.findDamage(), [found], damage.join(" "));
        await sync();
        assertEquals(await proxier.findDamage(), false, damage.join(" "));
        assertEquals(await jumps(), before, damage.join(" "));
      }
    });
  },
);
