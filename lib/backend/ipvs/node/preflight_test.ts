/** What the preflight checks, and its errors where something is missing. */
import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { fakeSysctl } from "../../../../tests/support/fake_sysctl.ts";
import { modeContext } from "../../../../tests/support/mode_context.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { defaultConfig } from "../../../config/defaults.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { type Exec, type ExecResult, wholeText } from "../../../kernel/exec.ts";
import { connReuse, prepareIpvs, requireSetsAndMatches } from "./preflight.ts";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import { probeSetName } from "../plan/sets.ts";

const NONE = { permissions: "none" } as const;
const OK: ExecResult = { code: 0, stdout: "", stderr: "" };
const VERSION: ExecResult = { ...OK, stdout: "iptables v1.8.9 (legacy)\n" };
const NO_NAT: ExecResult = {
  code: 3,
  stdout: "",
  stderr: "can't initialize ip6tables table `nat': Table does not exist (do you need to insmod?)\n",
};

/** A node where IPVS never ran, as far as a start asks. */
class Machine implements Exec {
  readonly started: string[] = [];
  readonly lines: string[] = [];
  readonly sets = new Set<string>();
  readonly sysctls: Record<string, string> = {
    "net.ipv6.conf.all.disable_ipv6": "0",
    "net.ipv4.vs.conntrack": "0",
    "net.ipv4.vs.expire_nodest_conn": "0",
    "net.ipv4.vs.expire_quiescent_template": "0",
    "net.ipv4.vs.conn_reuse_mode": "1",
    "net.ipv4.ip_forward": "1",
  };
  missing = "";
  /** Null: no device of ours. */
  device: "ours" | null = null;
  isReadOnly = false;
  /** A virtual server that a killed proxy left while it tried. */
  hasProbeServer = false;
  hasIpv6Nat = true;

  async run(argv: readonly string[], options: Parameters<Exec["run"]>[1] = {}): Promise<ExecResult> {
    await Promise.resolve();
    const [program = "", first = ""] = argv;
    if (program === this.missing || /-(nft|legacy)/.test(program)) {
      throw new ExecError(argv, -1, `entity not found: ${program}`);
    }
    this.started.push(`${program} ${first}`);
    if (program === "sysctl") {
      const names = Object.keys(this.sysctls);
      const write = Object.fromEntries(names.map((name) => [name, `sysctl: "${name}": Permission denied`]));
      return fakeSysctl(this.sysctls, argv.slice(1), this.isReadOnly ? { write } : {});
    }
    if (program === "ip") return this.#ip(argv);
    if (first === "--version") return program === "ipset" ? { ...OK, stdout: "ipset v7.17\n" } : VERSION;
    if (program === "ipset") return this.#ipset(wholeText(options.stdin ?? ""), first);
    if (program === "ipvsadm") {
      const stderr = this.hasProbeServer ? "" : "No such service\n";
      this.hasProbeServer = false;
      return { ...OK, stderr };
    }
    return program.startsWith("ip6tables") && !this.hasIpv6Nat ? NO_NAT : OK;
  }

  #ip(argv: readonly string[]): ExecResult {
    if (argv[2] === "add" && this.device !== null) {
      return { code: 2, stdout: "", stderr: "RTNETLINK answers: File exists\n" };
    }
    if (argv.includes("show")) {
      return { ...OK, stdout: `[{"ifname":"kube-ipvs0","linkinfo":{"info_kind":"dummy"},"addr_info":[]}]` };
    }
    this.device = argv[2] === "add" ? "ours" : null;
    return OK;
  }

  #ipset(text: string, command: string): ExecResult {
    if (command === "list") return { ...OK, stdout: [...this.sets].map((name) => `${name}\n`).join("") };
    for (const [, verb, name = ""] of text.matchAll(/^(\w+) (\S+)/gm)) {
      if (verb === "create") this.sets.add(name);
      else this.sets.delete(name);
    }
    return OK;
  }

  async prepare(): Promise<readonly string[]> {
    const { log, lines } = recordingLog();
    const { proxiers, close } = await prepareIpvs(
      await modeContext({ exec: this, config: defaultConfig(), log }),
    );
    await close?.();
    this.lines.push(...lines);
    return proxiers.map(({ family }) => family);
  }
}

Deno.test("where all is well, each program is started once for each thing that it tells", NONE, async () => {
  const machine = new Machine();
  assertEquals(await machine.prepare(), ["IPv4", "IPv6"]);
  assertEquals(machine.started.filter((line) => !line.includes("tables-save")), [
    "sysctl net.ipv6.conf.all.disable_ipv6",
    "ipvsadm -R",
    "ip link",
    "iptables --version",
    "ip6tables --version",
    "iptables -w",
    "ip6tables -w",
    "ipset restore",
    "iptables-restore -w",
    "ip6tables-restore -w",
    "ipset restore",
    "sysctl net.ipv4.vs.conntrack",
    "sysctl -w",
  ]);
  assertEquals(machine.sets.size, 0);
});

Deno.test(
  "sets of other names than ours are tried, and go again; a device that is there stays",
  NONE,
  async () => {
    const machine = new Machine();
    machine.device = "ours";
    machine.sets.add("KUBE-CLUSTER-IP");
    assertEquals(await machine.prepare(), ["IPv4", "IPv6"]);
    assertEquals([[...machine.sets], machine.device], [["KUBE-CLUSTER-IP"], "ours"]);
    assertEquals(machine.started.filter((line) => line.startsWith("ipset")).length, 2);
  },
);

Deno.test("a node that cannot run the mode is left without sets and device", NONE, async (t) => {
  const faults: Readonly<Record<string, (machine: Machine) => void>> = {
    "no ipset": (machine) => machine.missing = "ipset",
    "no iptables": (machine) => machine.missing = "iptables-restore",
    "settings that may not be written": (machine) => machine.isReadOnly = true,
  };
  for (const [name, make] of Object.entries(faults)) {
    await t.step(name, async () => {
      const machine = new Machine();
      make(machine);
      await assertRejects(() => machine.prepare(), Error);
      assertEquals([machine.sets.size, machine.device], [0, null]);
    });
    await t.step(`${name}, where the device was there`, async () => {
      const machine = new Machine();
      machine.device = "ours";
      make(machine);
      await assertRejects(() => machine.prepare(), Error);
      assertEquals([machine.sets.size, machine.device], [0, "ours"]);
    });
  }
});

Deno.test(
  "what a killed proxy left while it tried a scheduler does not stop a start",
  NONE,
  async () => {
    const machine = new Machine();
    machine.hasProbeServer = true;
    assertEquals(await machine.prepare(), ["IPv4", "IPv6"]);
    assertEquals(machine.started.filter((line) => line.startsWith("ipvsadm")), ["ipvsadm -R"]);
  },
);

Deno.test("without the rules of IPv6 the node serves IPv4, and says so once", NONE, async () => {
  const machine = new Machine();
  machine.hasIpv6Nat = false;
  assertEquals(await machine.prepare(), ["IPv4"]);
  const told = machine.lines.filter((line) => line.includes('"IP family cannot be served" family="IPv6"'));
  assertEquals(told.length, 1);
  assertMatch(told[0] ?? "", /nat/);
  assertEquals(machine.started.filter((line) => line.startsWith("ip6tables-restore")).length, 0);
  assertEquals(machine.sets.size, 0);
});

Deno.test("a program that is missing is named with its package", NONE, async () => {
  for (
    const [missing, message] of [
      ["ipvsadm", /the program ipvsadm \(package ipvsadm\)/],
      ["ipset", /the program ipset \(package ipset\)/],
      ["ip", /the program ip \(package iproute2\)/],
    ] as const
  ) {
    const machine = new Machine();
    machine.missing = missing;
    assertMatch((await assertRejects(() => machine.prepare(), UnsupportedError)).message, message);
  }
});

const permissions = "none";

// conn_reuse_mode by kernel version.
Deno.test("conn_reuse_mode is chosen by the version of the kernel", { permissions }, () => {
  for (
    const [release, choice] of [
      ["3.10.0-1160.el7.x86_64", "too old"],
      ["4.0.9", "too old"],
      ["4.1.0", "off"],
      ["4.19.0-26-amd64", "off"],
      ["5.4.0-150-generic", "off"],
      ["5.8.18", "off"],
      ["5.9.0", "leave"],
      ["5.10.0-28-cloud-amd64", "leave"],
      ["6.1.176", "leave"],
      ["10.0", "leave"],
    ] as const
  ) {
    assertEquals(connReuse(`${release}\n`), choice, release);
  }
  assertEquals(connReuse("FreeBSD"), null);
});

/** `ipset` has done what stands before the line that it cannot do. */
async function ranUpTo(
  fake: FakeIpvs,
  argv: readonly string[],
  lines: readonly string[],
): Promise<ExecResult> {
  const isSets = argv[0] === "ipset";
  if (isSets) await fake.run(argv, { stdin: lines.map((line) => `${line}\n`).join("") });
  const place = isSets ? `ipset v7.17: Error in line ${lines.length + 1}: ` : "";
  return { code: 2, stdout: "", stderr: `${place}no such thing\n` };
}

/** A kernel without the features whose lines contain one of the words. */
function kernelWithout(words: readonly string[]): { readonly fake: FakeIpvs; readonly exec: Exec } {
  const fake = new FakeIpvs();
  return {
    fake,
    exec: {
      run: (argv, options) => {
        const text = wholeText(options?.stdin ?? "");
        const lines = text.split("\n");
        const missing = lines.findIndex((line) => words.some((word) => `${line} `.includes(word)));
        if (missing < 0) return fake.run(argv, options);
        return ranUpTo(fake, argv, lines.slice(0, missing));
      },
    },
  };
}

function probe(exec: Exec): Promise<void> {
  const programs = { command: "iptables", save: "iptables-save", restore: "iptables-restore" };
  const iptables = new Iptables(exec, { family: "IPv4", variant: "nft", version: "1.8.9", programs });
  return requireSetsAndMatches(exec, [iptables]);
}

Deno.test("where everything is there, nothing is left behind", NONE, async () => {
  const { fake, exec } = kernelWithout([]);
  const before = JSON.stringify(fake.kernel.snapshot());
  await probe(exec);
  assertEquals(JSON.stringify(fake.kernel.snapshot()), before);
});

for (
  const [words, message] of [
    [[" hash:ip,port,net "], "the kernel module ip_set_hash_ipportnet"],
    [[" bitmap:port "], "the kernel module ip_set_bitmap_port"],
    [[" hash:ip ", " hash:ip,port,ip "], "the kernel modules ip_set_hash_ip, ip_set_hash_ipportip"],
    [["-m ipvs "], "the kernel module xt_ipvs"],
    [["-m set "], "the kernel module xt_set"],
    [["-m physdev ", "-m comment "], "the kernel modules xt_physdev, xt_comment"],
  ] satisfies [string[], string][]
) {
  Deno.test(`missing: ${message}`, NONE, async () => {
    const { fake, exec } = kernelWithout(words);
    const error = await assertRejects(() => probe(exec), UnsupportedError);
    assertEquals([error.needs, error.found.replace(/^ipset .*: /, "")], [message, "no such thing"]);
    assertEquals(fake.kernel.sets.size, 0);
  });
}

Deno.test("sets of a probe have names that a later kproxy finds and removes", NONE, () => {
  assertEquals(
    [probeSetName("hash:ip,port", "IPv4"), probeSetName("hash:ip,port", "IPv6")],
    ["KPROXY-PROBE-4-1", "KPROXY-PROBE-6-1"],
  );
});
