/** What `kproxy trace` finds wrong on a node: rules of the desired iptables mode as the tools print them, with a fault planted. */
import { assert, assertStringIncludes } from "@std/assert";
import { KUBE_PROXY_TABLE } from "../../../tests/support/kube_proxy_table.ts";
import { type Node, save, SOUND, traced } from "../../../tests/support/traced_node.ts";

const NONE = { permissions: "none" } as const;

interface Fault {
  readonly name: string;
  readonly node: (sound: string) => Node;
  /** Words of what is found. */
  readonly finds: string;
  /** Words of the step where desired and live part; absent: it does not matter. */
  readonly step?: string;
}

const FAULTS: readonly Fault[] = [
  {
    name: "a policy of FORWARD that drops, behind our marks",
    node: (sound) => ({ texts: [save(sound.replace(":FORWARD ACCEPT", ":FORWARD DROP"))] }),
    finds: "dropped by what is no service proxy's: table filter chain FORWARD: policy DROP",
    step: "policy DROP",
  },
  {
    name: "another program's rule drops in front",
    node: (sound) => ({
      texts: [save(sound.replace("-I FORWARD", "-A FORWARD -s 10.244.0.0/16 -j DROP\n-I FORWARD"))],
    }),
    finds: "chain FORWARD rule 5: -s 10.244.0.0/16 -j DROP",
    step: "-s 10.244.0.0/16 -j DROP",
  },
  {
    name: "a table of another program drops, before any translation",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          'table inet firewall {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\tip daddr 10.96.0.0/16 counter packets 3 bytes 180 drop comment "no"\n\t}\n}\n',
      }],
    }),
    finds: "table inet firewall chain pre rule 1",
    step: "ip daddr 10.96.0.0/16",
  },
  {
    name: "a table of another program drops a range of ports",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          "table inet fw {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\ttcp dport 60-90 drop\n\t}\n}\n",
      }],
    }),
    finds: "table inet fw chain pre rule 1: tcp dport 60-90 drop",
    step: "tcp dport 60-90 drop",
  },
  {
    name: "the jump to the rules is gone",
    node: (sound) => ({
      texts: [save(sound.replaceAll(/^-I (PREROUTING|OUTPUT).*-j KUBE-SERVICES$/gm, "# gone"))],
    }),
    finds: "No packet is led to the rules of iptables mode",
  },
  {
    name: "the rule of the Service is gone",
    node: (sound) => ({ texts: [save(sound.replace(/^-A KUBE-SERVICES .*cluster IP.*\n/m, ""))] }),
    finds: "do something else",
    step: "shop/web:http cluster IP",
  },
  {
    name: "an endpoint has another address",
    node: (sound) => ({
      texts: [save(sound.replace("--to-destination 10.244.0.12:8080", "--to-destination 10.244.9.9:8080"))],
    }),
    finds: "do something else",
    step: "10.244.9.9",
  },
  {
    name: "the Service's chain is empty",
    node: (sound) => ({ texts: [save(sound.replaceAll(/^-A KUBE-SVC-.*\n/gm, ""))] }),
    finds: "do something else",
    step: "KUBE-SVC-",
  },
  {
    name: "the node does not forward",
    node: (sound) => ({
      texts: [save(sound)],
      around: { notForwarding: { IPv4: "net.ipv4.ip_forward is 0", IPv6: null } },
    }),
    finds: "IPv4 packets are not forwarded: net.ipv4.ip_forward is 0",
  },
  {
    name: "another program switches connection tracking off",
    node: (sound) => ({
      texts: [
        save(
          `${sound}*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.0/16 -j CT --notrack\nCOMMIT\n`,
        ),
      ],
    }),
    finds: "rule translates it: table raw chain PREROUTING rule 1: -d 10.96.0.0/16 -j CT --notrack",
  },
  {
    name: "a table of nftables switches connection tracking off",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          "table ip early {\n\tchain pre {\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\tip daddr 10.96.0.0/16 notrack\n\t}\n}\n",
      }],
    }),
    finds: "rule translates it: table ip early chain pre rule 1: ip daddr 10.96.0.0/16 notrack",
  },
  {
    name: "another program drops what leaves through the endpoints' interface",
    node: (sound) => ({
      texts: [save(sound.replace("-I FORWARD", "-A FORWARD -o cni0 -j DROP\n-I FORWARD"))],
      around: { outInterface: (address) => address.startsWith("10.244.") ? "cni0" : "eth0" },
    }),
    finds: "chain FORWARD rule 5: -o cni0 -j DROP",
  },
  {
    name: "a table of nftables drops what leaves through the endpoints' interface",
    node: (sound) => ({
      texts: [save(sound), {
        name: "nft",
        text:
          'table inet fw {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\toifname "cni*" drop\n\t}\n}\n',
      }],
      around: { outInterface: () => "cni0" },
    }),
    finds: 'table inet fw chain f rule 1: oifname "cni*" drop',
  },
  {
    name: "there is no way to the endpoints",
    node: (sound) => ({ texts: [save(sound)], around: { outInterface: () => null } }),
    finds: "there is no route to 10.244.0.11",
  },
  {
    name: "the name of the node is not that of its Node",
    node: (sound) => ({ texts: [save(sound)], around: {}, nodeName: "worker-9" }),
    finds:
      "There is no Node worker-9, by whose name policies and hints are decided here; Node node-a has an address " +
      "of this machine: --hostname-override=node-a",
  },
  {
    name: "the interface is down",
    node: (sound) => ({ texts: [save(sound)], around: { downInterfaces: new Set(["cni0"]) } }),
    finds: "the interface is down",
  },
  {
    name: "the way back to the source is another one",
    node: (sound) => ({
      texts: [save(sound)],
      around: { strictInterfaces: new Set(["cni0"]), outInterface: () => "eth1" },
    }),
    finds: "reverse path filter: the way back is through eth1",
  },
  {
    name: "no rules at all",
    node: () => ({ texts: [save("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")] }),
    finds: "There are no rules of a service proxy",
  },
  {
    name: "rules of another mode, which do the same",
    node: () => ({ texts: [{ name: "nft", text: KUBE_PROXY_TABLE }] }),
    finds: "should have rules of mode iptables, and has those of kube-proxy (nftables: table ip kube-proxy)",
  },
  {
    name: "kube-proxy's table is still there, beside kproxy's rules",
    node: (sound) => ({ texts: [save(sound), { name: "nft", text: KUBE_PROXY_TABLE }] }),
    finds: "Rules of several service proxies are in force",
  },
];

for (const { name, node, finds, step } of FAULTS) {
  Deno.test(`trace finds: ${name}`, NONE, async () => {
    const planted = node(SOUND);
    assert(
      planted.around !== undefined || planted.texts.length > 1 || planted.texts[0]?.text !== SOUND,
      "no fault",
    );
    const trace = await traced(planted);
    assertStringIncludes(trace.findings.join("\n"), finds);
    if (step === undefined) return;
    const { difference } = trace;
    const steps = [difference?.desiredStep, difference?.liveStep].map((one) => `${one?.chain}: ${one?.rule}`)
      .join("\n");
    assertStringIncludes(steps, step);
  });
}
