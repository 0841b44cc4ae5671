import { assertEquals } from "@std/assert";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { liveOfKernel } from "./kernel_rules.ts";
import { modeInForce } from "./live.ts";
import { deviceTo, hostStateOf, nodeFindings, readHostNetwork, readLocalnet } from "./host_network.ts";

const NONE = { permissions: "none" } as const;

type Printed = string | { readonly code: number; readonly stderr: string };

/** A machine whose programs print the given texts; other programs do not exist. */
function machine(printed: Readonly<Record<string, Printed>>): Exec & { readonly asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    run(argv) {
      const command = argv.join(" ");
      asked.push(command);
      const found = printed[command];
      if (found === undefined) return Promise.reject(new ExecError(argv, -1, `entity not found: ${argv[0]}`));
      return Promise.resolve(
        typeof found === "string" ? { code: 0, stdout: found, stderr: "" } : { stdout: "", ...found },
      );
    },
  };
}

const SERVICES = `*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
[3:180] -A PREROUTING -j KUBE-SERVICES
[2:120] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
`;
const DEVICE = "ip -json address show dev kube-ipvs0";
const NO_DEVICE = { code: 1, stderr: 'Device "kube-ipvs0" does not exist.\n' };

Deno.test(
  "rules of both variants of iptables count, and those of iptables are not read twice",
  NONE,
  async () => {
    const exec = machine({
      "iptables-nft-save -c": SERVICES,
      "iptables-legacy-save -c": "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n",
      "ip6tables-nft-save -c": "",
      "ip6tables-legacy-save -c": "",
      "nft list ruleset":
        "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\txt match frob\n\t}\n}\ntable inet own {\n\tchain c {\n\t\ttype filter hook input priority 0; policy accept;\n\t}\n}\n",
      [DEVICE]: NO_DEVICE,
    });
    const live = await liveOfKernel(exec);
    const four = live.get("IPv4");
    assertEquals(four?.problems, []);
    assertEquals(four?.iptables.map(({ variant }) => variant), ["nft", "legacy"]);
    assertEquals(four?.nftables.map(({ name }) => name), ["inet own"]);
    assertEquals(four?.proxies.map(({ mode, isHooked }) => [mode, isHooked]), [["iptables", true]]);
    assertEquals(modeInForce(live), "iptables");
    const chain = four?.iptables[0]?.tables.get("nat")?.get("KUBE-SERVICES");
    assertEquals(chain?.rules, ["-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT"]);
    assertEquals(chain !== undefined && "counters" in chain ? chain.counters : null, [{
      packets: 2,
      bytes: 120,
    }]);
    assertEquals([live.get("IPv6")?.iptables, live.get("IPv6")?.proxies], [[], []]);
    // Only listing commands are run.
    assertEquals(
      exec.asked.filter((command) =>
        !/-save -c$|^nft list |^ipset save$|^ipvsadm -Sn$|^ip -json /.test(command)
      ),
      [],
    );
  },
);

Deno.test("before 1.8 there are no programs with a variant in their names", NONE, async () => {
  const live = await liveOfKernel(machine({ "iptables-save -c": SERVICES, [DEVICE]: NO_DEVICE }));
  assertEquals(live.get("IPv4")?.proxies.length, 1);
});

Deno.test("what may not be read is reported, and the rest counts", NONE, async () => {
  const live = await liveOfKernel(machine({
    "iptables-nft-save -c": { code: 4, stderr: "Fatal: can't open lock file: Permission denied\n" },
    "iptables-legacy-save -c": SERVICES,
    "nft list ruleset": { code: 1, stderr: "Operation not permitted (you must be root)\nnetlink: Error\n" },
    "ipvsadm -Sn": { code: 255, stderr: "Can't initialize ipvs: Protocol not available\n" },
    "ipset save": { code: 1, stderr: "ipset v7.17: Cannot open session to kernel.\n" },
    [DEVICE]: NO_DEVICE,
  }));
  assertEquals(live.get("IPv4")?.problems.map(({ place }) => place), [
    "iptables-nft-save -c",
    "nft list ruleset",
  ]);
  assertEquals(
    live.get("IPv4")?.problems[1]?.message.endsWith("reading it needs root or CAP_NET_ADMIN"),
    true,
  );
  assertEquals(live.get("IPv4")?.proxies.length, 1);
});

const LINKS = JSON.stringify([
  {
    ifname: "lo",
    flags: ["LOOPBACK", "UP"],
    addr_info: [{ local: "127.0.0.1", family: "inet", prefixlen: 8, scope: "host" }],
  },
  {
    ifname: "eth0",
    flags: ["UP"],
    addr_info: [{ local: "192.0.2.10", family: "inet", prefixlen: 24, scope: "global" }],
  },
  { ifname: "eth1", flags: ["BROADCAST"], addr_info: [] },
]);
const ROUTES = JSON.stringify([
  { dst: "default", dev: "eth0", gateway: "192.0.2.1" },
  { dst: "10.244.0.0/24", dev: "cni0" },
  { dst: "10.244.0.9", dev: "veth9", metric: 5 },
  { dst: "10.9.0.0/16", type: "unreachable" },
]);
const SYSCTLS =
  "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.bridge.bridge-nf-call-iptables " +
  "net.bridge.bridge-nf-call-ip6tables net.netfilter.nf_conntrack_tcp_be_liberal net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max";
const AROUND = {
  "ip -json -details address": LINKS,
  "ip -json route": ROUTES,
  "ip -json -6 route": "[]",
  "ip -json rule": JSON.stringify([{ table: "local" }, { table: "main" }]),
  "ip -json netconf": JSON.stringify([
    { family: "inet", interface: "all", forwarding: true, rp_filter: "off" },
    { family: "inet", interface: "cni0.7", forwarding: false, rp_filter: "strict" },
    { family: "inet", interface: "eth0", forwarding: true, rp_filter: "off" },
  ]),
  [SYSCTLS]: "net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 0\n" +
    "net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\n" +
    "net.netfilter.nf_conntrack_tcp_be_liberal = 0\nnet.netfilter.nf_conntrack_count = 64\n" +
    "net.netfilter.nf_conntrack_max = 64\n",
};

Deno.test("a machine's ways, interfaces and settings", NONE, async () => {
  const around = await readHostNetwork(machine(AROUND));
  assertEquals(around.problems, []);
  const routes = around.routes ?? [];
  const ways = ["10.244.0.5", "10.244.0.9", "198.51.100.1", "10.9.1.1", "fd00::1"];
  assertEquals(ways.map((to) => deviceTo(routes, to)), ["cni0", "veth9", "eth0", null, null]);
  assertEquals([...around.down], ["eth1"]);
  const { notForwarding, strictInterfaces } = hostStateOf(around, [], "cni0.7");
  const IPv6 = "net.ipv6.conf.all.forwarding is 0";
  assertEquals(notForwarding, { IPv4: "net.ipv4.conf.cni0/7.forwarding is 0", IPv6 });
  assertEquals([...strictInterfaces], ["cni0.7"]);
  assertEquals(hostStateOf(around, [], "eth0").notForwarding, { IPv4: null, IPv6 });
  assertEquals(nodeFindings(around), [
    "Connection tracking is full, and drops new connections: 64, and net.netfilter.nf_conntrack_max is 64",
  ]);
});

Deno.test(
  "which interfaces take loopback addresses follows from the settings of all and of each",
  NONE,
  async () => {
    const around = await readHostNetwork(machine(AROUND));
    assertEquals(hostStateOf(around, [], "").localnetInterfaces, null);
    const names = ["all", "lo", "eth0", "eth1"].map((name) => `net.ipv4.conf.${name}.route_localnet`);
    const on = async (...values: readonly number[]): Promise<readonly string[]> => {
      const text = names.map((name, index) => `${name} = ${values[index]}\n`).join("");
      const nearer = await readLocalnet(machine({ [`sysctl ${names.join(" ")}`]: text }), around);
      return [...hostStateOf(nearer, [], "").localnetInterfaces ?? []];
    };
    assertEquals(await on(0, 0, 0, 1), ["eth1"]);
    assertEquals(await on(1, 0, 0, 0), ["lo", "eth0", "eth1"]);
  },
);

Deno.test("policy routing, and texts that are none, leave ways and addresses untold", NONE, async () => {
  const around = await readHostNetwork(machine({
    ...AROUND,
    "ip -json rule": JSON.stringify([{ table: "main" }, { table: "100" }]),
    "ip -json -details address": "garbage",
  }));
  assertEquals([around.routes, around.addresses], [null, null]);
  assertEquals([...new Set(around.problems.map(({ place }) => place))].sort(), ["ip address", "ip rule"]);
  assertEquals(hostStateOf(around, [], "eth0").outInterface("10.0.0.1"), undefined);
});

Deno.test(
  "beside iptables' tables nft lists only those of others, and what iptables cannot read",
  NONE,
  async () => {
    const own =
      "table inet own {\n\tchain c {\n\t\ttype filter hook input priority 0; policy accept;\n\t}\n}\n";
    const exec = machine({
      "nft list flowtables":
        "table ip nat {\n}\ntable ip filter {\n}\ntable inet own {\n}\ntable ip6 nat {\n}\n",
      "iptables-nft-save -c": `${SERVICES}# Table \`filter' is incompatible, use 'nft' tool.\n`,
      "ip6tables-nft-save -c": SERVICES,
      "nft list table inet own": own,
      "nft list table ip filter": own.replace("inet own", "ip filter"),
      [DEVICE]: NO_DEVICE,
    });
    const live = await liveOfKernel(exec);
    assertEquals(live.get("IPv4")?.nftables.map(({ name }) => name), ["inet own", "ip filter"]);
    assertEquals(live.get("IPv6")?.nftables.map(({ name }) => name), ["inet own"]);
    assertEquals(exec.asked.filter((command) => command.startsWith("nft ")), [
      "nft list flowtables",
      "nft list table inet own",
      "nft list table ip filter",
    ]);
  },
);
