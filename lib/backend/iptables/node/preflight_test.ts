import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeIptables, type FakeIptablesOptions } from "../../../../tests/support/fake_iptables.ts";
import { fakeSysctl } from "../../../../tests/support/fake_sysctl.ts";
import { modeContext } from "../../../../tests/support/mode_context.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { defaultConfig } from "../../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { ChangeTracker } from "../../../model/change_tracker.ts";
import { NODE_A, testNode } from "../../../../tests/support/model_objects.ts";
import type { PreparedMode } from "../../node/mode.ts";
import { invalidDropped, LastingCount, prepareIptables } from "./preflight.ts";

const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";
const ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet";
const NFT_AND_LEGACY = ["nft", "legacy"].flatMap((variant) =>
  ["iptables", "ip6tables"].flatMap((tool) => [`${tool}-${variant}`, `${tool}-${variant}-save`])
);

interface Machine extends FakeIptablesOptions {
  /** Null: there is no program `sysctl`. A setting that is not here is one the kernel does not have. */
  readonly sysctls?: Record<string, string> | null;
  /** Results of some programs instead of their work. */
  readonly refuse?: (program: string) => ExecResult | undefined;
  readonly config?: KubeProxyConfiguration;
}

const SYSCTLS = { [BE_LIBERAL]: "0", [ROUTE_LOCALNET]: "1", "net.ipv6.conf.all.disable_ipv6": "0" };

/** A node in memory, and what the log says of it. */
function machine({ sysctls = SYSCTLS, refuse, config = defaultConfig(), ...options }: Machine) {
  const iptables = new FakeIptables(options);
  const started: string[] = [];
  const exec: Exec = {
    run: (argv, options) => {
      started.push(argv.join(" "));
      const [program = "", ...args] = argv;
      const refused = argv.includes("--version") ? undefined : refuse?.(program);
      if (refused !== undefined) return Promise.resolve(refused);
      if (program !== "sysctl") return iptables.run(argv, options);
      if (sysctls === null) return Promise.reject(new ExecError(argv, -1, "Failed to spawn 'sysctl'"));
      return Promise.resolve(fakeSysctl(sysctls, args));
    },
  };
  const { log, lines } = recordingLog();
  return {
    iptables,
    lines,
    started,
    prepare: async () => prepareIptables(await modeContext({ exec, config, log })),
  };
}

async function syncAll({ proxiers }: PreparedMode): Promise<void> {
  for (const proxier of proxiers) {
    const { state } = new ChangeTracker({ family: proxier.family, node: NODE_A }).checkout();
    await proxier.sync({ state, changed: "all" });
  }
}

function configWith(tcpBeLiberal: boolean): KubeProxyConfiguration {
  const config = defaultConfig();
  return { ...config, conntrack: { ...config.conntrack, tcpBeLiberal } };
}

for (
  const [sysctl, tcpBeLiberal, drops] of [
    ["0", false, true],
    ["0", true, true],
    ["1", false, false],
    ["1", true, false],
    ["2", false, false],
    [undefined, true, true],
  ] as const
) {
  Deno.test(
    `INVALID packets with be_liberal ${sysctl} and tcpBeLiberal ${tcpBeLiberal}: ${
      drops ? "dropped" : "let through"
    }`,
    {
      permissions: "none",
    },
    async () => {
      const sysctls: Record<string, string> = { ...SYSCTLS };
      if (sysctl === undefined) delete sysctls[BE_LIBERAL];
      else sysctls[BE_LIBERAL] = sysctl;
      const { iptables, prepare } = machine({ sysctls, config: configWith(tcpBeLiberal) });
      await syncAll(await prepare());
      for (const family of ["IPv4", "IPv6"] as const) {
        const rules = iptables.saved(family, "filter");
        assert(rules.includes("-A KUBE-FORWARD "), rules);
        assertEquals(/-A KUBE-FORWARD .*INVALID.*-j DROP/.test(rules), drops, family);
      }
    },
  );
}

const NOT_ROOT: ExecResult = {
  code: 4,
  stdout: "",
  stderr:
    "iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n",
};

interface Unusable {
  readonly name: string;
  readonly machine: Machine;
  readonly message: string;
}

const UNUSABLE: readonly Unusable[] = [
  {
    name: "every program refuses for want of rights",
    machine: { refuse: (program) => program === "sysctl" ? undefined : NOT_ROOT },
    message: "run needs root or CAP_NET_ADMIN",
  },
  {
    name: "only some of the programs are there, and they refuse for want of rights",
    machine: {
      missing: [...NFT_AND_LEGACY, "ip6tables"],
      refuse: (program) => program === "sysctl" ? undefined : NOT_ROOT,
    },
    message: "run needs root or CAP_NET_ADMIN",
  },
  {
    name: "no program is there",
    machine: { missing: [...NFT_AND_LEGACY, "iptables", "ip6tables"] },
    message: "install iptables (not on PATH: iptables, iptables-nft, iptables-legacy, " +
      "ip6tables, ip6tables-nft, ip6tables-legacy)",
  },
  {
    name: "the kernel has no nf_tables, and there is nothing else",
    machine: {
      missing: [...NFT_AND_LEGACY, "ip6tables"],
      refuse: (program) =>
        program === "sysctl"
          ? undefined
          : { code: 1, stdout: "", stderr: "Failed to initialize nft: Protocol not supported\n" },
    },
    message:
      'iptables does not work here: Command "iptables -w 5 -S POSTROUTING -t nat" failed with status 1: ' +
      "Failed to initialize nft: Protocol not supported",
  },
  {
    name: "only the primary family does not work",
    machine: {
      refuse: (program) =>
        program.startsWith("iptables")
          ? { code: 3, stdout: "", stderr: "Table does not exist (do you need to insmod?)\n" }
          : undefined,
    },
    message:
      "the primary IP family IPv4 cannot be served: IPv4 is not supported here: needs a nat table that " +
      'iptables can list, found Command "iptables -w 5 -S POSTROUTING -t nat" failed with status 3: Table does not exist (do you need to insmod?)',
  },
];

for (const { name, machine: options, message } of UNUSABLE) {
  Deno.test(`a node without iptables is reported in one short line: ${name}`, {
    permissions: "none",
  }, async () => {
    const error = await assertRejects(() => machine(options).prepare(), UnsupportedError);
    assertEquals(error.message, message);
  });
}

Deno.test("without the program sysctl the safe is assumed and the package named", {
  permissions: "none",
}, async () => {
  const { iptables, lines, prepare } = machine({ sysctls: null });
  const prepared = await prepare();
  assertEquals(prepared.proxiers.map(({ family }) => family), ["IPv4", "IPv6"]);
  await syncAll(prepared);
  assertMatch(iptables.saved("IPv4", "filter"), /-A KUBE-FORWARD .*INVALID.*-j DROP/);
  const warned = lines.filter((line) => line.includes("procps"));
  assertEquals(warned.length, 2, lines.join(""));
  assertMatch(warned[0] ?? "", /^W "Kernel settings cannot be read: install procps/);
  assertMatch(warned[1] ?? "", /127\.0\.0\.1.*route_localnet/);
});

Deno.test("kernel settings are read together, each once", { permissions: "none" }, async () => {
  const { started, prepare } = machine({ sysctls: { ...SYSCTLS, [ROUTE_LOCALNET]: "0" } });
  await prepare();
  assertEquals(started.filter((line) => line.startsWith("sysctl ")), [
    "sysctl net.ipv6.conf.all.disable_ipv6",
    `sysctl ${BE_LIBERAL} ${ROUTE_LOCALNET}`,
    `sysctl -w ${ROUTE_LOCALNET}=1`,
  ]);
});

Deno.test("no program is started twice to see the same", { permissions: "none" }, async () => {
  const { started, prepare } = machine({});
  await prepare();
  assertEquals(started, [...new Set(started)]);
});

Deno.test("in mode NodeCIDR missing pod CIDRs are reported only once the Node is known", {
  permissions: "none",
}, async () => {
  const { lines, prepare } = machine({ config: { ...defaultConfig(), detectLocalMode: "NodeCIDR" } });
  const prepared = await prepare();
  const told = (): string[] => lines.filter((line) => line.includes("podCIDRs"));
  assertEquals(told(), []);
  prepared.reconfigure(testNode());
  prepared.reconfigure(testNode());
  assertEquals(told().length, 2, "once for each family");
});

Deno.test(
  "where the default variant does not work in this kernel, the other one serves, and the log says why",
  {
    permissions: "none",
  },
  async () => {
    const refuse = (program: string): ExecResult | undefined =>
      /^ip6?tables(-nft)?(-save|-restore)?$/.test(program)
        ? { code: 1, stdout: "", stderr: "iptables: Failed to initialize nft: Protocol not supported" }
        : undefined;
    const { iptables, lines, prepare } = machine({ refuse });
    const mode = await prepare();
    assertEquals(mode.proxiers.map(({ family }) => family), ["IPv4", "IPv6"]);
    await syncAll(mode);
    assertMatch(iptables.saved("IPv4", undefined, "legacy"), /:KUBE-SERVICES/);
    assertMatch(JSON.stringify(lines), /only legacy works here: .*Failed to initialize nft/);
  },
);

const LISTING = `-N KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -c 17 1020 -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -c 3 180 -j ACCEPT
`;

Deno.test("the dropped packets are those of the rule against invalid ones", { permissions: "none" }, () => {
  assertEquals(invalidDropped(LISTING), 17);
  assertEquals(
    invalidDropped(LISTING.split("\n").filter((line) => !line.includes("INVALID")).join("\n")),
    null,
  );
  assertEquals(invalidDropped(""), null);
});

Deno.test("a count goes on when the rule was written again", { permissions: "none" }, () => {
  const count = new LastingCount();
  assertEquals([3, 5, 5, 0, 2, 1].map((now) => count.take(now)), [3, 5, 5, 5, 7, 8]);
});
