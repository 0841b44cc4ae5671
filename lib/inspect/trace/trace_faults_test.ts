/** Findings of `kproxy trace` on a node: desired rules of iptables mode as the tools print them, with a fault planted. */
import { assert, assertStringIncludes } from "@std/assert";
import { KUBE_PROXY_TABLE } from "../../../tests/support/kube_proxy_table.ts";
import { type Node, save, SOUND, traced } from "../../../tests/support/traced_node.ts";

const NONE = { permissions: "none" } as const;

/** Changes to a sound node. */
interface Planted extends Partial<Omit<Node, "texts">> {
  /** Plants the fault in the output of iptables. */
  readonly plant?: (sound: string) => string;
  /** Output of nft. */
  readonly nft?: string;
}

type Fault = readonly [
  name: string,
  planted: Planted,
  /** Words of the finding. */
  finds: string,
  /** Words of the first differing step; absent: not checked. */
  step?: string,
];

const FAULTS: readonly Fault[] = [
  [
    "a policy of FORWARD that drops, behind our marks",
    { plant: (sound) => sound.replace(":FORWARD ACCEPT", ":FORWARD DROP") },
    "dropped by what is no service proxy's: table filter chain FORWARD: policy DROP",
    "policy DROP",
  ],
  [
    "another program's rule drops in front",
    { plant: (sound) => sound.replace("-I FORWARD", "-A FORWARD -s 10.244.0.0/16 -j DROP\n-I FORWARD") },
    "chain FORWARD rule 5: -s 10.244.0.0/16 -j DROP",
    "-s 10.244.0.0/16 -j DROP",
  ],
  [
    "a table of another program drops, before any translation",
    {
      nft:
        'table inet firewall {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\tip daddr 10.96.0.0/16 counter packets 3 bytes 180 drop comment "no"\n\t}\n}\n',
    },
    "table inet firewall chain pre rule 1",
    "ip daddr 10.96.0.0/16",
  ],
  [
    "a table of another program drops a range of ports",
    {
      nft:
        "table inet fw {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\ttcp dport 60-90 drop\n\t}\n}\n",
    },
    "table inet fw chain pre rule 1: tcp dport 60-90 drop",
    "tcp dport 60-90 drop",
  ],
  ["the jump to the rules is gone", {
    plant: (sound) => sound.replaceAll(/^-I (PREROUTING|OUTPUT).*-j KUBE-SERVICES$/gm, "# gone"),
  }, "No packet is led to the rules of iptables mode"],
  [
    "the rule of the Service is gone",
    { plant: (sound) => sound.replace(/^-A KUBE-SERVICES .*cluster IP.*\n/m, "") },
    "do something else",
    "shop/web:http cluster IP",
  ],
  [
    "an endpoint has another address",
    {
      plant: (sound) =>
        sound.replace("--to-destination 10.244.0.12:8080", "--to-destination 10.244.9.9:8080"),
    },
    "do something else",
    "10.244.9.9",
  ],
  [
    "the Service's chain is empty",
    { plant: (sound) => sound.replaceAll(/^-A KUBE-SVC-.*\n/gm, "") },
    "do something else",
    "KUBE-SVC-",
  ],
  ["the node does not forward", {
    around: { notForwarding: { IPv4: "net.ipv4.ip_forward is 0", IPv6: null } },
  }, "IPv4 packets are not forwarded: net.ipv4.ip_forward is 0"],
  ["another program switches connection tracking off", {
    plant: (sound) =>
      `${sound}*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.0/16 -j CT --notrack\nCOMMIT\n`,
  }, "rule translates it: table raw chain PREROUTING rule 1: -d 10.96.0.0/16 -j CT --notrack"],
  ["a table of nftables switches connection tracking off", {
    nft:
      "table ip early {\n\tchain pre {\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\tip daddr 10.96.0.0/16 notrack\n\t}\n}\n",
  }, "rule translates it: table ip early chain pre rule 1: ip daddr 10.96.0.0/16 notrack"],
  ["another program drops what leaves through the endpoints' interface", {
    plant: (sound) => sound.replace("-I FORWARD", "-A FORWARD -o cni0 -j DROP\n-I FORWARD"),
    around: { outInterface: (address) => address.startsWith("10.244.") ? "cni0" : "eth0" },
  }, "chain FORWARD rule 5: -o cni0 -j DROP"],
  ["a table of nftables drops what leaves through the endpoints' interface", {
    nft:
      'table inet fw {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\toifname "cni*" drop\n\t}\n}\n',
    around: { outInterface: () => "cni0" },
  }, 'table inet fw chain f rule 1: oifname "cni*" drop'],
  [
    "there is no way to the endpoints",
    { around: { outInterface: () => null } },
    "there is no route to 10.244.0.11",
  ],
  [
    "the name of the node is not that of its Node",
    { around: {}, nodeName: "worker-9" },
    "There is no Node worker-9, by whose name policies and hints are decided here; Node node-a has an address " +
    "of this machine: --hostname-override=node-a",
  ],
  ["the interface is down", { around: { downInterfaces: new Set(["cni0"]) } }, "the interface is down"],
  ["the way back to the source is another one", {
    around: { strictInterfaces: new Set(["cni0"]), outInterface: () => "eth1" },
  }, "reverse path filter: the way back is through eth1"],
  [
    "no rules at all",
    { plant: () => "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n" },
    "There are no rules of a service proxy",
  ],
  [
    "rules of another mode, which do the same",
    { plant: () => "", nft: KUBE_PROXY_TABLE },
    "should have rules of mode iptables, and has those of kube-proxy (nftables: table ip kube-proxy)",
  ],
  [
    "kube-proxy's table is still there, beside kproxy's rules",
    { nft: KUBE_PROXY_TABLE },
    "Rules of several service proxies are in force",
  ],
];

for (const [name, { plant, nft, ...node }, finds, step] of FAULTS) {
  Deno.test(`trace finds: ${name}`, NONE, async () => {
    const text = plant?.(SOUND) ?? SOUND;
    assert(text !== SOUND || nft !== undefined || Object.keys(node).length > 0, "no fault");
    const trace = await traced({
      ...node,
      texts: [save(text), ...nft === undefined ? [] : [{ name: "nft", text: nft }]],
    });
    assertStringIncludes(trace.findings.join("\n"), finds);
    if (step === undefined) return;
    const { difference } = trace;
    const steps = [difference?.desiredStep, difference?.liveStep].map((one) => `${one?.chain}: ${one?.rule}`)
      .join("\n");
    assertStringIncludes(steps, step);
  });
}
