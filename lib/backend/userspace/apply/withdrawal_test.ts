import { assertEquals } from "@std/assert";
import { createSocket } from "node:dgram";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import type { DispatchRule } from "../../iptables/plan/ruleset.ts";
import { fullSync, NOTHING_HELD } from "../../iptables/store/full_sync.ts";
import { CHAINS, planBaseRules, PORTALS_CONTAINER, PORTALS_FIREWALL } from "../plan/chains.ts";
import { sharedRules } from "../../iptables/store/store.ts";
import { Withdrawal } from "./withdrawal.ts";

const OTHERS = "-A PREROUTING -p tcp -m tcp --dport 1 -j ACCEPT";

/** A node whose rules lead to these ports. */
class Node {
  readonly iptables = new FakeIptables({});
  readonly started: string[] = [];
  readonly withdrawal: Withdrawal;
  readonly lines: string[];
  isBroken = false;

  constructor() {
    const { log, lines } = recordingLog();
    this.lines = lines;
    const exec: Exec = {
      run: async (argv, options) => {
        const stdin = typeof options?.stdin === "function"
          ? [...options.stdin()].join("")
          : options?.stdin ?? "";
        this.started.push(argv[0] === "conntrack" ? stdin.trim() : argv[0] ?? "");
        if (this.isBroken) throw new ExecError(argv, 1, "no such luck");
        if (argv[0] === "conntrack") return { code: 0, stdout: "", stderr: "" };
        return await this.iptables.run(argv, options);
      },
    };
    const programs = { command: "iptables", save: "iptables-save", restore: "iptables-restore" };
    const ended: Exec = { run: () => Promise.reject(new Error("the programs of this run have ended")) };
    const iptables = new Iptables(ended, { family: "IPv4", variant: "nft", version: "1.8.9", programs });
    this.withdrawal = new Withdrawal(iptables, exec, log);
  }

  async lead(port: number): Promise<void> {
    const match = "-m comment --comment shop/dns -p udp -m udp";
    const rules: readonly DispatchRule[] = [
      {
        table: "nat",
        chain: PORTALS_CONTAINER,
        rule: `${match} --dport 53 -d 10.96.0.53/32 -j REDIRECT --to-ports ${port}`,
      },
      { table: "filter", chain: PORTALS_FIREWALL, rule: `${match} --dport ${port} -j REJECT` },
    ];
    const services = new Map([["shop/dns", sharedRules(rules)]]);
    const plan = { all: true, base: planBaseRules({ firewall: true }), services };
    const { transaction } = fullSync(plan, NOTHING_HELD, { family: "IPv4" });
    for (const stdin of transaction.blocks(Infinity)) {
      await this.iptables.run(["iptables-restore", "--noflush"], { stdin });
    }
    await this.iptables.run(["iptables", "-t", "nat", ...OTHERS.split(" ")]);
  }

  rules(table: Table): readonly string[] {
    return this.iptables.saved("IPv4", table).split("\n").filter((line) =>
      line.startsWith("-A ") || CHAINS[table].some((chain) => line.startsWith(`:${chain} `))
    );
  }
}

/** A port on which this test listens while it works. */
async function withPort(work: (port: number) => Promise<void>): Promise<void> {
  const socket = createSocket("udp4");
  await new Promise<void>((resolve) => socket.bind(0, "0.0.0.0", resolve));
  try {
    await work(socket.address().port);
  } finally {
    await new Promise<void>((resolve) => socket.close(() => resolve()));
  }
}

Deno.test("an end takes away what leads to its ports, then flows, then the rest, and nothing of others", async () => {
  await withPort(async (port) => {
    const node = new Node();
    await node.lead(port);
    await node.withdrawal.redirects(new Set([`IPv4 UDP ${port}`]));
    assertEquals(node.rules("nat"), [...CHAINS.nat.map((chain) => `:${chain} - [0:0]`).sort(), OTHERS]);
    assertEquals(node.rules("filter").some((rule) => rule.includes(`--dport ${port} -j REJECT`)), true);
    await node.withdrawal.flows();
    assertEquals(node.started.at(-1), "-D -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.96.0.53");
    await node.withdrawal.rest();
    assertEquals([...node.rules("nat"), ...node.rules("filter")], [OTHERS]);
    assertEquals(node.lines, ['I "Removed the rules that lead Services to this process" family="IPv4"']);
  });
});

Deno.test("rules that lead to ports on which another process listens are that process's", async () => {
  await withPort(async (port) => {
    const node = new Node();
    await node.lead(port);
    const before = [...node.rules("nat"), ...node.rules("filter")];
    await node.withdrawal.redirects(new Set());
    await node.withdrawal.flows();
    await node.withdrawal.rest();
    assertEquals([...node.rules("nat"), ...node.rules("filter")], before);
    assertEquals(node.started, ["iptables-save"]);
  });
});

Deno.test("rules that lead to ports without a listener go, of any origin", async () => {
  const node = new Node();
  let free = 0;
  await withPort((port) => Promise.resolve(void (free = port)));
  await node.lead(free);
  await node.withdrawal.redirects(new Set());
  await node.withdrawal.rest();
  assertEquals([...node.rules("nat"), ...node.rules("filter")], [OTHERS]);
});

Deno.test("where there are no rules none are made, and a failure is reported and no reason not to end", async () => {
  const node = new Node();
  await node.withdrawal.redirects(new Set(["IPv4 TCP 1"]));
  await node.withdrawal.rest();
  assertEquals(node.started, ["iptables-save"]);
  node.isBroken = true;
  await node.withdrawal.redirects(new Set(["IPv4 TCP 1"]));
  await node.withdrawal.flows();
  await node.withdrawal.rest();
  assertEquals(node.lines.length, 1);
  assertEquals(
    node.lines[0]?.startsWith('E "Cannot remove the rules that lead Services to this process'),
    true,
  );
});
