import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { loadGolden } from "../support/golden.ts";
import { loadIpvsGolden } from "../support/golden_ipvs.ts";
import { loadGoldenNftables } from "../support/golden_nftables.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { inFolder, kproxy, type Run } from "./kproxy.ts";

/** The node of the golden cases. */
const EXAMPLE_NODE = [
  "--hostname-override=node-a",
  "--bind-address=192.0.2.10",
  "--cluster-cidr=10.244.0.0/16",
];

const SERVICE = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.10.1
  ports: [{name: http, port: 80}]
`;
const SERVICE_CIDR = `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16, "fd00:10:96::/112"]}
`;
const SLICE = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.11], nodeName: node-a}]
ports: [{name: http, port: 8080, protocol: TCP}]
`;
const SERVICE_V6 = SERVICE.replace("name: web,", "name: six,").replace("10.96.10.1", '"fd00:96::1"')
  .replace("spec:", "spec:\n  ipFamilies: [IPv6]");

/** Without what leads into the rules from the kernel's chains, which a plan keeps apart. */
function withoutJumps(text: string): string {
  return text.split("\n").filter((line) => !line.startsWith("-I ")).join("\n");
}

Deno.test("render prints the golden rules from the objects alone", async () => {
  let compared = 0;
  // `tests/golden` has all of them, without a program.
  for (const name of ["all-examples", "mixed-dual-stack", "nodeport-ipv6"]) {
    for (const [family, expected] of Object.entries(loadGolden(name).expected)) {
      const manifests = `--manifests=${ROOT}/tests/golden/${name}/objects.yaml`;
      const { code, out } = await kproxy([
        "render",
        manifests,
        `--family=${family.toLowerCase()}`,
        ...EXAMPLE_NODE,
      ]);
      assertEquals([code, withoutJumps(out)], [0, expected], `${name} ${family}`);
      compared++;
    }
  }
  assertEquals(compared, 5);
});

const NFTABLES = "--proxy-mode=nftables";

Deno.test("render prints the table of nftables mode", async () => {
  const objects = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;
  const args = ["render", NFTABLES, objects, "--family=ipv4", ...EXAMPLE_NODE];
  const expected = loadGoldenNftables("mixed-dual-stack").IPv4 ?? "";
  const { code, out } = await kproxy(args);
  assertEquals([code, out], [0, expected.replace(/^.*unallocated ClusterIPs"\n/m, "")]);
  await inFolder({ "cidrs.yaml": SERVICE_CIDR }, async (folder) => {
    const { code, out, err } = await kproxy([...args, `--manifests=${folder}/cidrs.yaml`]);
    assertEquals([code, out, err], [0, expected, ""]);
  });
});

Deno.test("render prints sets, rules, virtual servers and addresses of IPVS mode", async () => {
  const objects = `--manifests=${ROOT}/tests/golden/ipvs/capture-1/objects.yaml`;
  const { code, out } = await kproxy([
    "render",
    "--proxy-mode=ipvs",
    objects,
    "--family=ipv4",
    ...EXAMPLE_NODE,
  ]);
  assertEquals(code, 0);
  assertEquals(out.match(/^### .*/gm), [
    "### ipset restore",
    "### iptables-restore --noflush",
    "### ipvsadm -R",
    "### ip -batch -",
  ]);
  const { ipvsadm } = loadIpvsGolden("capture-1");
  const ipv4 = (text: string): string[] =>
    text.split("\n").filter((line) => /^-[Aa] -[tu] \d/.test(line)).sort();
  assertEquals(ipv4(out), ipv4(ipvsadm));
  assertStringIncludes(
    out,
    '-I INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER\n',
  );
  assertStringIncludes(out, "add KUBE-NODE-PORT-TCP 30910\n");
});

e2eTest("what render prints of both families loads with nft at once", [
  ROOT_NAMESPACES,
  program("ip"),
  program("nft"),
], async () => {
  const objects = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;
  const { out } = await kproxy(["render", NFTABLES, objects, "--family=both", ...EXAMPLE_NODE]);
  await withNetns(async (netns) => {
    await netns.run(["nft", "--check", "-f", "-"], { stdin: out });
    await netns.run(["nft", "-f", "-"], { stdin: out });
    assertEquals(await netns.run(["nft", "list", "tables"]), "table ip kproxy\ntable ip6 kproxy\n");
  });
});

e2eTest("what render prints loads with the real tools and leaves nothing out", [
  ROOT_NAMESPACES,
  program("ip"),
  program("iptables-restore"),
  program("ip6tables-restore"),
], async () => {
  const objects = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;
  for (const [family, tool] of [["ipv4", "iptables"], ["ipv6", "ip6tables"]] as const) {
    const { out } = await kproxy(["render", objects, `--family=${family}`, ...EXAMPLE_NODE]);
    await withNetns(async (netns) => {
      await netns.run([`${tool}-restore`, "--test"], { stdin: out });
      await netns.run([`${tool}-restore`, "--test", "--noflush"], { stdin: out });
      await netns.run([`${tool}-restore`, "--noflush"], { stdin: out });
      const saved = await netns.run([`${tool}-save`]);
      const rules = (text: string): number => text.split("\n").filter((line) => /^-[AI] /.test(line)).length;
      assertEquals(rules(saved), rules(out), tool);
      assertMatch(saved, /^-A PREROUTING .*-j KUBE-SERVICES$/m);
    });
  }
});

e2eTest("what render prints leaves rules of the kubelet alone where it adds none to its chain", [
  ROOT_NAMESPACES,
  program("ip"),
  program("iptables-restore"),
  program("ip6tables-restore"),
], async () => {
  const objects = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;
  const kubelet = "*filter\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\n" +
    "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\nCOMMIT\n";
  const cases = [["ip6tables", "--family=ipv6"], [
    "iptables",
    "--family=ipv4",
    "--iptables-localhost-nodeports=false",
  ]] as const;
  for (const [tool, ...args] of cases) {
    const { out } = await kproxy(["render", objects, ...args, ...EXAMPLE_NODE]);
    await withNetns(async (netns) => {
      await netns.run([`${tool}-restore`, "--noflush"], { stdin: kubelet });
      const before = await netns.run([tool, "-S", "KUBE-FIREWALL"]);
      await netns.run([`${tool}-restore`, "--noflush"], { stdin: out });
      assertEquals(await netns.run([tool, "-S", "KUBE-FIREWALL"]), before, tool);
      assertMatch(await netns.run([`${tool}-save`]), /^-A PREROUTING .*-j KUBE-SERVICES$/m);
    });
  }
});

Deno.test("render prints the families that have Services, each after a comment if there are two", async () => {
  await inFolder({ "four.yaml": `${SERVICE}---\n${SLICE}`, "six.yaml": SERVICE_V6 }, async (folder) => {
    const render = (...args: string[]): Promise<Run> => kproxy(["render", ...args], { cwd: folder });
    const four = await render("--manifests=four.yaml");
    assertEquals([four.code, four.err], [0, ""]);
    assertStringIncludes(four.out, "--to-destination 10.244.0.11:8080\n");
    assert(!four.out.includes("#"), four.out);
    const six = await render("--manifests=six.yaml");
    assertStringIncludes(six.out, "fd00:96::1");
    assertEquals((await render("--manifests=four.yaml", "--family=ipv4")).out, four.out);
    const both = await render("--manifests=four.yaml", "--manifests=six.yaml");
    assertEquals(
      both.out,
      `# IPv4: what follows is for iptables-restore --noflush\n${four.out}` +
        `# IPv6: what follows is for ip6tables-restore --noflush\n${six.out}`,
    );
    assertEquals((await render("--manifests=.")).out, both.out);
    assertEquals((await render("--manifests=.", "--family=both")).out, both.out);
    // Nothing to say is not an error.
    const none = await kproxy(["render", "--manifests=-"], { cwd: folder, stdin: "" });
    assertEquals(none.code, 0);
    assertStringIncludes(none.out, "*filter\n");
  });
});

Deno.test("flags and the Node among the objects shape the rules", async () => {
  const node = `apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {topology.kubernetes.io/zone: a}}
spec: {podCIDRs: [10.244.7.0/24]}
status: {addresses: [{type: InternalIP, address: 192.0.2.10}]}
`;
  const objects = [SERVICE, SLICE, node].join("---\n");
  const cases: [args: readonly string[], holds: string][] = [
    [
      ["--masquerade-all"],
      '--comment "shop/web:http cluster IP" -m tcp -p tcp -d 10.96.10.1 --dport 80 -j KUBE-MARK-MASQ',
    ],
    [["--cluster-cidr=10.244.0.0/16"], "--dport 80 ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ"],
    [
      ["--detect-local-mode=NodeCIDR", "--hostname-override=node-a"],
      "--dport 80 ! -s 10.244.7.0/24 -j KUBE-MARK-MASQ",
    ],
    [
      ["--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"],
      "--dport 80 ! -i cni0 -j KUBE-MARK-MASQ",
    ],
    [["--iptables-masquerade-bit=15"], "-j MARK --or-mark 0x00008000"],
    [["--nodeport-addresses=primary", "--hostname-override=node-a"], "-d 192.0.2.10 -j KUBE-NODEPORTS"],
  ];
  for (const [args, holds] of cases) {
    const { code, out, err } = await kproxy(["render", "--manifests=-", ...args], { stdin: objects });
    assertEquals([code, err], [0, ""], args.join(" "));
    assertStringIncludes(out, holds);
  }
  const plain = await kproxy(["render", "--manifests=-"], { stdin: objects });
  for (const [, holds] of cases) assert(!plain.out.includes(holds), holds);
});

Deno.test("packets outside the TCP window are rendered as dropped unless tcpBeLiberal is set", async () => {
  const drop = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n";
  for (const [args, drops] of [[[], true], [["--conntrack-tcp-be-liberal"], false]] as const) {
    const { out } = await kproxy(["render", "--manifests=-", ...args], { stdin: SERVICE });
    assertEquals(out.includes(drop), drops, args.join());
  }
});

Deno.test("refused objects are reported and the others rendered; with none left the exit code is 2", async () => {
  const broken = SERVICE.replace("port: 80", "port: 80000");
  await inFolder({
    "good.yaml": SERVICE,
    "bad.yaml": broken.replace("name: web,", "name: bad,"),
    "syntax.yaml": "kind: [",
  }, async (folder) => {
    const some = await kproxy(["render", "--manifests=good.yaml", "--manifests=bad.yaml"], { cwd: folder });
    assertEquals(some.code, 1);
    assertStringIncludes(some.out, "shop/web:http");
    assertMatch(some.err, /^Error: bad\.yaml[^\n]*: Service shop\/bad: [^\n]*80000[^\n]*\n$/);
    const none = await kproxy(["render", "--manifests=syntax.yaml"], { cwd: folder });
    assertEquals([none.code, none.out], [2, ""]);
    assertMatch(none.err, /^Error: syntax\.yaml:\d+ \(document 1\): cannot be parsed: [^\n]+\n$/);
  });
});

Deno.test("objects of other kinds are left out with a note, and are no failure", async () => {
  const object = (kind: string, name: string, apiVersion = "v1"): string =>
    JSON.stringify({ apiVersion, kind, metadata: { name } });
  const folder = {
    "all.yaml": [
      SERVICE,
      object("Deployment", "web", "apps/v1"),
      object("Deployment", "db", "apps/v1"),
      object("Role", "reader", "rbac.authorization.k8s.io/v1"),
      SLICE,
    ].join("\n---\n"),
    "list.json": `{"apiVersion": "v1", "kind": "List", "items": [${object("Pod", "a")}, ${
      object("Pod", "b")
    }]}`,
    "map.yaml": object("ConfigMap", "settings"),
  };
  await inFolder(folder, async (cwd) => {
    const { code, out, err } = await kproxy(["render", "--manifests=."], { cwd });
    assertEquals(
      err,
      "Note: ./all.yaml: 2 objects of kind Deployment not read\n" +
        "Note: ./all.yaml: 1 object of kind Role not read\n" +
        "Note: ./list.json: 2 objects of kind Pod not read\n" +
        "Note: ./map.yaml: 1 object of kind ConfigMap not read\n",
    );
    assertEquals(code, 0);
    assertStringIncludes(out, "--to-destination 10.244.0.11:8080\n");
  });
});

Deno.test("render says which mode it cannot print, and why", async () => {
  const { code, out, err } = await kproxy(["render", "--manifests=-", "--proxy-mode=userspace"], {
    stdin: SERVICE,
  });
  assertEquals([code, out], [1, ""]);
  assertEquals(
    err,
    "Error: Rendering proxy mode userspace is not possible, its rules lead to ports that kproxy opens when it runs; " +
      "possible with: iptables, nftables, ipvs\n",
  );
});
