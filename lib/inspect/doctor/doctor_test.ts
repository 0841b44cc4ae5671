import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { eventually } from "../../../tests/support/until.ts";
import { DoctorNode, type ProgramFault } from "../../../tests/support/doctor_node.ts";
import { PacedNode, settled } from "../../../tests/support/paced_node.ts";
import { applyModeDefaults, defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import type { DoctorReport, Finding, Level } from "./report.ts";
import type { Exec } from "../../kernel/exec.ts";
import { examine } from "./doctor.ts";

/** Without an API server, and without asking a program that serves metrics on this machine. */
function configOf(mode: ProxyMode): KubeProxyConfiguration {
  const config = defaultConfig();
  return applyModeDefaults({
    ...config,
    mode,
    metricsBindAddress: "",
    conntrack: { ...config.conntrack, maxPerCore: 0 },
    kproxy: { ...config.kproxy, manifests: [new URL("../../../examples/demo", import.meta.url).pathname] },
  });
}

function look(node: Exec, mode: ProxyMode, limitMs = 60_000): Promise<DoctorReport> {
  return examine({
    exec: node,
    config: configOf(mode),
    master: "",
    nodeName: "node-a",
    migrateTo: null,
    isSourceNamed: true,
    limitMs,
    lockPath: "/nowhere/xtables.lock",
  });
}

function lines(findings: readonly Finding[], ...levels: Level[]): readonly string[] {
  return findings.filter(({ level }) => levels.includes(level)).map(({ check, level, what }) =>
    `${level} ${check}: ${what}`
  );
}

/** Command lines that write rules, sets, sysctls or devices: none may run. */
const WRITES =
  /(iptables|ip6tables)(-nft|-legacy)?(-restore| .*-[ADFINPRX] )|sysctl -w|ipset (restore|create)|nft -f|link (add|del)/;

for (const mode of ["nftables", "iptables", "ipvs"] as const) {
  Deno.test(`a healthy node has no warning in mode ${mode}, and nothing is written`, async () => {
    const node = new DoctorNode();
    const report = await look(node, mode);
    assertEquals(lines(report.findings, "warning", "failure"), []);
    assertEquals([report.result, report.mode, report.node], ["ok", mode, "node-a"]);
    assertEquals(node.runs.filter((line) => WRITES.test(line)), []);
    const checks = new Set(report.findings.map(({ check }) => check));
    for (const check of ["mode", "programs", "rights", "forwarding", "reverse path filter", "packet sizes"]) {
      assert(checks.has(check), check);
    }
  });
}

Deno.test("no question is put to the machine twice", async () => {
  const node = new DoctorNode();
  await look(node, "iptables");
  const asked = node.runs.filter((line) => !line.startsWith("nft -c"));
  assertEquals(asked.length, new Set(asked).size, asked.toSorted().join("\n"));
});

/** A program's fault → the finding, and its level. */
const FAULTS: readonly (readonly [
  name: string,
  mode: ProxyMode,
  start: string,
  fault: ProgramFault,
  said: readonly RegExp[],
])[] = [
  ["no nft", "nftables", "nft", "missing", [
    /^failure programs: nft is not on the PATH: mode nftables does not work$/,
    /^failure mode: mode nftables cannot run here: install/,
  ]],
  ["nft not granted", "nftables", "nft", "forbidden", [/^failure programs: nft may not be started/]],
  [
    "an old nft",
    "nftables",
    "nft --version",
    { code: 0, stdout: "nftables v0.9.8 (E.D.S.)\n" },
    [/^failure programs: nft 0\.9\.8 is too old, kproxy needs 1\.0\.1/],
  ],
  ["the oldest nft", "nftables", "nft --version", { code: 0, stdout: "nftables v1.0.1 (X)\n" }, [
    /^ok programs: nft 1\.0\.1$/,
  ]],
  ["an old nft, not needed", "iptables", "nft --version", { code: 0, stdout: "nftables v0.9 (X)\n" }, [
    /^ok programs: nft 0\.9 is too old, kproxy needs 1\.0\.1; only mode nftables needs it$/,
  ]],
  ["an old ipset", "ipvs", "ipset --version", { code: 0, stdout: "ipset v5.9, protocol version: 5\n" }, [
    /^failure programs: ipset 5\.9 is too old, kproxy needs 6\.0: mode ipvs does not work$/,
  ]],
  ["ip that may not be started", "ipvs", "ip", "forbidden", [
    /^failure programs: ip may not be started: mode ipvs does not work$/,
  ]],
  ["no ip, not needed", "nftables", "ip -V", "missing", [
    /^ok programs: ip is not on the PATH; only mode ipvs needs it$/,
  ]],
  ["nft without rights", "nftables", "nft -c", "denied", [/^failure rights: .* has no CAP_NET_ADMIN/]],
  [
    "nft that hangs",
    "nftables",
    "nft",
    "hangs",
    [/^failure programs: nft does not end: nft .* was still running after 1 s$/],
  ],
  [
    "nft that prints garbage for a version",
    "nftables",
    "nft --version",
    "garbage",
    [/^failure programs: nft prints what is none of its outputs: nft --version prints "/],
  ],
  ["nft whose list cannot be had", "nftables", "nft -y", {
    stderr: "cache initialization failed: Too many\n",
  }, [/^warning rules of others: could not be looked at: .*cache initialization failed/]],
  [
    "no nft, not needed",
    "iptables",
    "nft",
    "missing",
    [/^ok programs: nft is not on the PATH; only mode nftables needs it$/],
  ],
  [
    "no ipvsadm",
    "ipvs",
    "ipvsadm",
    "missing",
    [/^failure programs: ipvsadm is not on the PATH: mode ipvs does not work$/],
  ],
  ["no IPVS in the kernel", "ipvs", "ipvsadm", {
    code: 2,
    stderr: "Can't initialize ipvs: Protocol not available\n",
  }, [/^failure mode: mode ipvs cannot run here: .*kernel module ip_vs/]],
  [
    "no sets in the kernel",
    "ipvs",
    "ipset list",
    { stderr: "ipset v7.17: Cannot open session to kernel.\n" },
    [/^failure mode: .*kernel module ip_set/],
  ],
  ["no sysctl", "iptables", "sysctl", "missing", [
    /^warning programs: sysctl is not on the PATH: kernel settings are neither/,
    /^warning kernel settings: could not be looked at/,
  ]],
  [
    "sysctl that hangs",
    "nftables",
    "sysctl",
    "hangs",
    [/^failure mode: could not be looked at: it took longer/],
  ],
  [
    "sysctl that prints garbage",
    "nftables",
    "sysctl net.ipv4.ip_forward",
    "garbage",
    [/^warning kernel settings: could not be looked at/],
  ],
  [
    "a variant's program that is killed",
    "iptables",
    "iptables-legacy-save",
    { code: 137 },
    [/^failure programs: iptables-legacy-save does not come to its end: .* was killed by signal SIGKILL$/],
  ],
  [
    "a list of chains that is none",
    "iptables",
    "nft -y list chains",
    "garbage",
    [/^failure programs: nft prints what is none of its outputs: nft -y list chains prints "/],
  ],
  [
    "a save that is none",
    "iptables",
    "iptables-nft-save",
    "garbage",
    [/^failure programs: iptables-nft-save prints what is none of its outputs: /],
  ],
  [
    "conntrack that is killed",
    "nftables",
    "conntrack",
    { code: 139, stderr: "Segmentation fault\n" },
    [/^failure programs: conntrack .* was killed by signal SIGSEGV: Segmentation fault$/],
  ],
  [
    "an ip without netconf",
    "nftables",
    "ip -json netconf",
    { stderr: 'Object "netconf" is unknown, try "ip help".\n' },
    [/^warning settings of devices: could not be looked at: .*"netconf" is unknown/],
  ],
  ["no ip", "nftables", "ip", "missing", [/^warning packet sizes: could not be looked at/]],
  [
    "ip that prints garbage",
    "nftables",
    "ip -json",
    "garbage",
    [/^failure programs: ip prints what is none of its outputs: ip -json .* prints "/],
  ],
  [
    "no conntrack",
    "nftables",
    "conntrack",
    "missing",
    [/^warning programs: conntrack is not on the PATH: UDP flows stay/],
  ],
];

for (const [name, mode, start, fault, said] of FAULTS) {
  const isSaid = async (): Promise<void> => {
    const report = await look(new DoctorNode().fail(start, fault), mode, fault === "hangs" ? 1_000 : 60_000);
    const all = lines(report.findings, "ok", "warning", "failure");
    for (const one of said) {
      assert(all.some((line) => one.test(line)), `${one} is none of\n${all.join("\n")}`);
    }
    for (const { level, what, fix } of report.findings) {
      assertEquals(fix === "", level === "ok", what);
      assert(!`${what}${fix}`.includes("\n"), what);
    }
    // Facts that do not need the program are known all the same.
    if (!start.startsWith("sysctl")) {
      assert(all.includes("ok forwarding: net.ipv4.ip_forward is 1"), all.join("\n"));
    }
    if (!start.startsWith("choom") && fault !== "hangs") {
      assert(all.some((line) => line.includes("choom 2.38")));
    }
  };
  // If the machine stalls for as long as a program may hang, others had no time, either.
  Deno.test(
    `${name}: the report says so, and looks at everything else`,
    fault === "hangs" ? () => eventually(isSaid, { limitMs: 60_000 }) : isSaid,
  );
}

Deno.test("a node on which every program hangs has a report, of what is unknown", async () => {
  const node = new DoctorNode();
  for (const program of ["iptables", "nft", "sysctl", "ip", "conntrack", "choom", "ipset", "ipvsadm"]) {
    node.fail(program, "hangs");
  }
  const report = await look(node, "nftables", 2_000);
  assert(lines(report.findings, "warning").length > 8, lines(report.findings, "warning").join("\n"));
  assertEquals(report.mode, "nftables");
  const failures = lines(report.findings, "failure").join("\n");
  for (const program of ["iptables", "nft", "sysctl", "ip", "conntrack", "choom", "ipset", "ipvsadm"]) {
    assertMatch(failures, new RegExp(`^failure programs: ${program} does not end: `, "m"));
  }
});

Deno.test("programs that hang keep no others from being asked", async () => {
  const node = new DoctorNode();
  for (const program of ["iptables", "ip6tables", "nft", "ipvsadm", "ipset", "conntrack", "choom"]) {
    node.fail(program, "hangs");
  }
  // If the machine stalls for as long, no program had the time.
  await eventually(async () => {
    const report = await look(node, "nftables", 2_000);
    const fine = lines(report.findings, "ok");
    for (const line of ["ok programs: sysctl 4.0.2", "ok forwarding: net.ipv4.ip_forward is 1"]) {
      assert(fine.includes(line), fine.join("\n"));
    }
  }, { limitMs: 60_000 });
});

// Six programs run in parallel; in sequence they would take 31 to 36 rounds.
for (const [mode, mostRounds] of [["iptables", 10], ["nftables", 12], ["ipvs", 9]] as const) {
  Deno.test(`a healthy node in mode ${mode} is looked at in few rounds of programs`, async () => {
    const paced = new PacedNode(new DoctorNode());
    let isDone = false;
    // A round may take as long as the machine needs.
    const looking = look(paced, mode, 300_000).finally(() => isDone = true);
    let rounds = 0;
    while (!isDone) {
      await settled(paced, () => isDone);
      if (isDone) break;
      paced.endAll();
      rounds++;
    }
    assertEquals((await looking).result, "ok");
    assert(rounds <= mostRounds, `${rounds} rounds`);
    assert(paced.node.runs.length > 25);
  });
}

Deno.test("an API server that takes connections and says nothing is a failure by its name", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const connections: Deno.Conn[] = [];
  const taking = (async () => {
    for await (const connection of listener) connections.push(connection);
  })();
  const server = `http://127.0.0.1:${(listener.addr as Deno.NetAddr).port}`;
  const config = configOf("nftables");
  // If the machine stalls for as long as the limit, other facts are unknown, too.
  await eventually(async () => {
    const startMs = performance.now();
    const { findings, result, migration } = await examine({
      exec: new DoctorNode(),
      config: { ...config, kproxy: { ...config.kproxy, manifests: [] } },
      master: server,
      nodeName: "node-a",
      migrateTo: "ipvs",
      isSourceNamed: true,
      limitMs: 500,
      lockPath: "/nowhere/xtables.lock",
    });
    // More than the usual limit of an API server, and many times this one's.
    assert(performance.now() - startMs < 30_000);
    assertEquals([result, migration], ["failure", null]);
    const failures = lines(findings, "failure");
    assert(failures.some((line) => line.startsWith(`failure API server: ${server} `)), failures.join("\n"));
    assertEquals(lines(findings, "ok").includes("ok forwarding: net.ipv4.ip_forward is 1"), true);
  }, { limitMs: 60_000 });
  listener.close();
  await taking;
  for (const connection of connections) connection.close();
});

Deno.test("iptables that is missing ends mode iptables, and auto passes over what does not work", async () => {
  const missing = ["", "-nft", "-legacy"].flatMap((variant) =>
    ["iptables", "ip6tables"].flatMap((tool) =>
      ["", "-save", "-restore"].map((action) => `${tool}${variant}${action}`)
    )
  );
  const bare = await look(new DoctorNode({ missing }), "iptables");
  assertEquals(bare.result, "failure");
  assert(
    lines(bare.findings, "failure").some((line) => line.startsWith("failure mode: mode iptables cannot run")),
  );
  const chosen = await look(new DoctorNode().fail("nft", "missing"), "auto");
  assertEquals(chosen.mode, "iptables");
  assertMatch(
    lines(chosen.findings, "ok")[0] ?? "",
    /^ok mode: iptables works here; passed over nftables: install nftables/,
  );
});

Deno.test("planted faults of a node are named with their fix", async () => {
  const node = new DoctorNode();
  node.settings["net.ipv4.ip_forward"] = "0";
  node.settings["net.ipv4.conf.eth0/100.rp_filter"] = "1";
  node.settings["net.netfilter.nf_conntrack_count"] = "1040000";
  node.links = { eth0: { mtu: 1500 }, "flannel.1": { kind: "vxlan", mtu: 1500 } };
  node.chains =
    "table ip kube-proxy {\n\tchain nat-prerouting {\n\t\ttype nat hook prerouting priority -100; policy accept;\n" +
    "\t}\n}\ntable inet fw {\n\tchain f {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n}\n";
  node.tables = ["ip kube-proxy"];
  await node.iptables.run(["iptables", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY"]);
  await node.iptables.run(["iptables-restore", "--noflush"], {
    stdin: "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n",
  });
  await node.iptables.run(["iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES"]);
  const { findings, result } = await look(node, "iptables");
  assertEquals(result, "failure");
  const text = findings.filter(({ level }) => level !== "ok").map(({ what, fix }) => `${what} -> ${fix}`)
    .join("\n");
  for (
    const part of [
      "net.ipv4.ip_forward is 0: packets to and from pods of this node are dropped -> sysctl -w net.ipv4.ip_forward=1",
      "strict on eth0.100: ",
      "-> sysctl -w net.ipv4.conf.eth0/100.rp_filter=2",
      "1040000 of 1048576 connections are tracked: new ones are dropped",
      "flannel.1 (vxlan) takes packets of 1500 bytes",
      "ip link set flannel.1 mtu 1450",
      "kube-proxy (mode nftables) was or is here: table ip kube-proxy",
      "inet fw f (forward, priority 0) drops what its own rules do not accept",
      "IPv4 chain FORWARD drops what no rule accepts: kproxy lets packets of Services through",
      "a service proxy left rules in the legacy variant (IPv4)",
      "another mode left 1 tables of nft",
    ]
  ) assertStringIncludes(text, part);
});
