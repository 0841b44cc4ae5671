/**
 * `kproxy doctor` on real programs and a real kernel, beside other proxies and a running kproxy. Faults that are planted into a node are
 * in `planted_faults_test.ts`.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { Finding } from "../../lib/inspect/doctor/report.ts";
import type { DoctorReport } from "../../lib/inspect/doctor/report.ts";
import { findProgram } from "../../tools/setup.ts";
import { inTime, kproxy, kproxyArgv } from "../cli/kproxy.ts";
import { asNobody } from "../support/as_nobody.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { type Netns, socketIn, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { ROOT } from "../../tools/project_files.ts";
import { tempFolder } from "../support/temp_files.ts";

const TOOLS = ["ip", "sysctl", "nft", "iptables", "ip6tables", "iptables-legacy", "conntrack"];
const NEEDS = [ROOT_NAMESPACES, ...TOOLS.map(program)];
const FLAGS = [
  "doctor",
  "-o=json",
  "--hostname-override=node-a",
  `--manifests=${ROOT}/examples/demo`,
  "--metrics-bind-address=127.0.0.1:1",
  "--conntrack-max-per-core=0",
];

/** What is not well there. */
async function complaints(
  netns: Netns,
  mode: string,
  ...more: readonly string[]
): Promise<readonly Finding[]> {
  const { code, out, err } = await inTime(() =>
    kproxy([...FLAGS, `--proxy-mode=${mode}`, ...more], { netns: netns.name })
  );
  assert(code === 0 || code === 1, err);
  const report: DoctorReport = JSON.parse(out);
  assertEquals(code, report.result === "failure" ? 1 : 0);
  return report.findings.filter(({ level }) => level !== "ok");
}

/** A namespace that forwards, as a node does, with a device that is no pod's. */
async function withNode(work: (netns: Netns) => Promise<void>): Promise<void> {
  await withNetns(async (netns) => {
    await netns.run(["sysctl", "-w", "net.ipv4.ip_forward=1"]);
    await netns.run(["ip", "link", "add", "d0", "type", "bridge"]);
    await netns.run(["ip", "link", "set", "d0", "up"]);
    for (const device of ["all", "default", "d0"]) {
      await netns.run(["sysctl", "-w", `net.ipv4.conf.${device}.rp_filter=0`]);
    }
    await work(netns);
  });
}

e2eTest(
  "beside a running kproxy doctor judges by its mode and source, and calls none of its rules left over",
  NEEDS,
  async () => {
    await withNode(async (netns) => {
      await using manifests = await LabManifests.create();
      await using running = await KproxyProcess.start({
        netns,
        args: ["--proxy-mode=nftables", "--hostname-override=node-a", `--manifests=${manifests.folder}`],
      });
      await running.untilMessage("First sync done, Services are served");
      // Who names an API server asks for that one, and not for another mode.
      const doctor = (...more: readonly string[]) =>
        inTime(() => kproxy(["doctor", "-o=json", ...more], { netns: netns.name }));
      const named = await doctor("--master=http://127.0.0.1:1");
      const elsewhere: DoctorReport = JSON.parse(named.out);
      assertEquals([
        elsewhere.mode,
        elsewhere.findings.filter(({ check }) => check === "leftovers")
          .map(({ level }) => level),
      ], ["nftables", ["ok"]]);
      const [asked] = elsewhere.findings.filter(({ check }) => check === "API server");
      assertEquals([asked?.level, asked?.what.includes("http://127.0.0.1:1")], ["failure", true], named.out);
      const { out, err } = await doctor();
      const { mode, node, findings }: DoctorReport = JSON.parse(out);
      assertEquals([mode, node, err], ["nftables", "node-a", ""]);
      const wrong = findings.filter(({ check, level }) =>
        level !== "ok" && ["leftovers", "API server", "mode"].includes(check)
      );
      assertEquals(wrong, []);
      assertEquals(findings.filter(({ check }) => check === "kproxy").map(({ what }) => what), [
        `kproxy on ${socketIn(netns.name)} runs in mode nftables: this node is judged by its configuration`,
      ]);
      // Who names a mode wants that one judged.
      const { out: other } = await doctor("--proxy-mode=iptables");
      assertEquals(JSON.parse(other).mode, "iptables");
      assertEquals((await running.stop()).code, 0);
      const left: DoctorReport = JSON.parse((await doctor()).out);
      const leftovers = left.findings.filter(({ check }) => check === "leftovers").map(({ level }) => level);
      assertEquals([left.mode, leftovers], ["nftables", ["ok"]]);
      // One that was told of its API server by a flag is asked which that is.
      const args = ["--proxy-mode=nftables", "--hostname-override=node-a", "--master=http://127.0.0.1:1"];
      await using lonely = KproxyProcess.spawn({ netns, args });
      await lonely.until("its socket", (lines) => lines.some(({ server }) => server === "socket"));
      const flagged: DoctorReport = JSON.parse((await doctor()).out);
      const [api] = flagged.findings.filter(({ check }) => check === "API server");
      assertMatch(api?.what ?? "", /^http:\/\/127\.0\.0\.1:1 .* does not answer/);
    });
  },
);

e2eTest("tables and rules of other proxies are named", NEEDS, async () => {
  await withNode(async (netns) => {
    const chain = "add chain ip kube-proxy n { type nat hook prerouting priority -100 ; }";
    await netns.run(["nft", `add table ip kube-proxy; ${chain}`]);
    await netns.run(["nft", `add table ip lb; ${chain.replace("kube-proxy", "lb").replace("-100", "-110")}`]);
    await netns.run(["iptables", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY"]);
    await netns.run(["iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES"]);
    const found = (await complaints(netns, "iptables")).map(({ what }) => what).join("\n");
    assertMatch(found, /^kube-proxy \(mode nftables\) was or is here: table ip kube-proxy$/m);
    assertMatch(
      found,
      /^ip lb n \(prerouting, priority -110\) may translate a destination before kproxy does/m,
    );
    assertMatch(found, /^a service proxy left rules in the legacy variant \(IPv4\)/m);
    assertMatch(found, /^another mode left 1 tables of nft/m);
  });
});

e2eTest(
  "a rule of others that drops packets of pods behind kproxy's own is named, and one that does not is not",
  NEEDS,
  async () => {
    await withNode(async (netns) => {
      const named = async (): Promise<string> =>
        (await complaints(netns, "nftables", "--cluster-cidr=10.244.0.0/16")).map(({ what }) => what).filter((
          what,
        ) => /a rule of others/.test(what))
          .join("\n");
      const chain = "chain fw { type filter hook forward priority 10 ; policy accept ; }";
      await netns.run(["nft", `add table inet firewall; add ${chain.replace("fw", "inet firewall fw")}`]);
      await netns.run(["nft", "add rule inet firewall fw ip saddr 203.0.113.0/24 drop"]);
      assertEquals(await named(), "");
      await netns.run(["nft", "add rule inet firewall fw ip saddr 10.244.0.0/16 counter drop"]);
      assertMatch(
        await named(),
        /^a rule of others ends packets between pods, .*: table inet firewall chain fw rule 2: ip saddr 10\.244\.0\.0\/16 .*drop/,
      );
    });
  },
);

e2eTest("looking leaves rules and settings as they are, in every mode", NEEDS, async () => {
  await withNode(async (netns) => {
    const state = async (): Promise<string> =>
      await netns.run(["nft", "list", "ruleset"]) +
      await netns.run([
        "sysctl",
        "-a",
        "-r",
        "^net\\.(ipv[46]\\.(conf|ip_forward)|netfilter\\.nf_conntrack_(max|tcp))",
      ]);
    // What the programs themselves make by being asked is made here.
    for (const mode of ["nftables", "iptables", "auto"]) await complaints(netns, mode);
    const before = await state();
    for (const mode of ["nftables", "iptables", "auto", "ipvs"]) await complaints(netns, mode);
    assertEquals(await state(), before);
  });
});

e2eTest("a program that is missing is named with the modes that need it", NEEDS, async () => {
  await using temporary = await tempFolder();
  const bin = temporary.path;
  for (const tool of ["sysctl", "ip"]) await Deno.symlink(findProgram(tool) ?? tool, `${bin}/${tool}`);
  await withNode(async (netns) => {
    const argv = [findProgram("env") ?? "env", `PATH=${bin}`, Deno.execPath(), ...kproxyArgv()];
    const { code, stdout } = await netns.exec.run([...argv, ...FLAGS, "--proxy-mode=nftables"]);
    assertEquals(code, 1);
    const { findings }: DoctorReport = JSON.parse(stdout);
    const failures = findings.filter(({ level }) => level === "failure").map(({ what }) => what);
    assertEquals(failures, [
      "mode nftables cannot run here: install nftables (not on PATH: nft)",
      "nft is not on the PATH: mode nftables does not work",
    ]);
  });
});

e2eTest(
  "a user who is not root learns that rules of iptables' legacy variant are not seen, and not that there are none",
  [
    ...NEEDS,
    program("setpriv"),
  ],
  async () => {
    await withNode(async (netns) => {
      await netns.run(["iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES"]);
      await asNobody(["net_admin", "net_raw"], async ({ prefix, deno, root }) => {
        const run = async (...args: readonly string[]): Promise<string> => {
          const start = [deno, ...kproxyArgv(root)];
          const { stdout } = await new Deno.Command("ip", {
            args: ["netns", "exec", netns.name, ...prefix, ...start, ...args],
            stdin: "null",
            stderr: "null",
          }).output();
          return new TextDecoder().decode(stdout);
        };
        const node = [
          "--hostname-override=node-a",
          `--manifests=${root}/examples/demo`,
          "--metrics-bind-address=127.0.0.1:1",
        ];
        const { findings }: DoctorReport = JSON.parse(
          await run("doctor", ...node, "--proxy-mode=nftables", "-o=json"),
        );
        const told = findings.filter(({ check, level }) =>
          check === "iptables variant" && level === "warning"
        );
        assertEquals(told.length, 1);
        assertStringIncludes(told[0]?.what ?? "", "may not list the rules of the legacy variant");
        const unseen =
          /^Not read: iptables-legacy-save(?: -c)?: .*only root may list the rules of iptables' legacy variant/m;
        for (
          const words of [
            ["service", "list"],
            ["service", "get", "demo/web"],
            ["trace", "local", "demo/web"],
            ["check"],
          ]
        ) {
          assertMatch(await run(...words, ...node), unseen);
        }
      });
    });
  },
);
