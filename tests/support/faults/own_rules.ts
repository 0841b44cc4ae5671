/**
 * Faults in rules that are a service proxy's own: `check` names each with its Service and its place, and `--repair` fixes it.
 *
 * @module
 */
import type { FaultLab } from "./fault_lab.ts";
import { NODE, POD, WORLD } from "./fault_lab.ts";
import type { PlantedFault } from "./fault.ts";

const nat = (lab: FaultLab, ...args: readonly string[]): Promise<string> =>
  lab.iptables("-t", "nat", ...args);

/** The number of the rule of table nat that fits. */
async function ruleOf(lab: FaultLab, chain: string, words: RegExp): Promise<string> {
  const rules = (await nat(lab, "-S", chain)).split("\n").filter((line) => line.startsWith("-A"));
  return String(rules.findIndex((line) => words.test(line)) + 1);
}

async function secondEndpointFirst(lab: FaultLab): Promise<void> {
  const chain = await lab.chain("KUBE-SVC-");
  const last = (await nat(lab, "-S", chain)).trim().split("\n").at(-1) ?? "";
  const target = / -j (\S+)$/.exec(last)?.[1] ?? "";
  const rule = ["-m", "comment", "--comment", "shop/web:http -> 10.244.0.12:8080", "-j", target];
  await nat(lab, "-D", chain, ...rule);
  await nat(lab, "-I", chain, "2", ...rule);
}

const IPTABLES: readonly PlantedFault[] = [
  {
    name: "the rule of a cluster IP is removed",
    modes: ["iptables"],
    plant: async (lab) =>
      await nat(lab, "-D", "KUBE-SERVICES", await ruleOf(lab, "KUBE-SERVICES", /shop\/web.*cluster IP/)),
    ask: ["check"],
    says: /Service shop\/web\n {2}iptables nat KUBE-SERVICES: a rule is missing\n {4}- .*-d 10\.96\.0\.1 /,
    packet: POD,
    fix: "repair",
  },
  {
    name: "rules are reordered, so that one endpoint gets everything",
    modes: ["iptables"],
    plant: secondEndpointFirst,
    ask: ["check"],
    says: /Service shop\/web\n {2}iptables nat KUBE-SVC-\S+: the rules stand in another order/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "an endpoint's address is changed to that of another Service's",
    modes: ["iptables"],
    plant: async (lab) => {
      const chain = await lab.chain("KUBE-SEP-");
      await nat(lab, "-R", chain, "2", "-p", "tcp", "-j", "DNAT", "--to-destination", "10.244.0.21:8080");
    },
    ask: ["check"],
    says:
      /Service shop\/web\n {2}iptables nat KUBE-SEP-\S+: a rule is not as it should be\n.*\n {4}\+ .*10\.244\.0\.21/,
    packet: NODE,
    fix: "repair",
  },
  {
    name: "a Service's chain is flushed",
    modes: ["iptables"],
    plant: async (lab) => await nat(lab, "-F", await lab.chain("KUBE-SVC-")),
    ask: ["trace", "10.244.0.5@cni0", "shop/web"],
    says: /They part here:\n {2}desired: .*chain KUBE-SVC-\S+ rule 2: .*shop\/web:http/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "the chain of all Services is flushed",
    modes: ["iptables"],
    plant: (lab) => nat(lab, "-F", "KUBE-SERVICES"),
    ask: ["check"],
    says: /Service shop\/web\n {2}iptables nat KUBE-SERVICES: a rule is missing; the chain is empty/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "the jump for packets from outside is removed",
    modes: ["iptables"],
    plant: async (lab) =>
      await nat(lab, "-D", "PREROUTING", await ruleOf(lab, "PREROUTING", /KUBE-SERVICES/)),
    ask: ["check"],
    says: /Base chains and jumps\n {2}iptables nat PREROUTING: the jump is missing\n {4}- .*-j KUBE-SERVICES/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "the jump for the node's own packets is removed",
    modes: ["iptables"],
    plant: async (lab) => await nat(lab, "-D", "OUTPUT", await ruleOf(lab, "OUTPUT", /KUBE-SERVICES/)),
    ask: ["trace", "local", "shop/web"],
    says: /They part here:\n {2}desired: output, table nat chain OUTPUT rule 1: .*-j KUBE-SERVICES/,
    packet: NODE,
    fix: "repair",
  },
  {
    name: "masquerading is flushed",
    modes: ["iptables"],
    plant: (lab) => nat(lab, "-F", "KUBE-POSTROUTING"),
    ask: ["check"],
    says: /iptables nat KUBE-POSTROUTING: the chain is empty/,
    packet: WORLD,
    fix: "repair",
  },
  {
    name: "the mark for masquerading is changed",
    modes: ["iptables"],
    plant: (lab) => nat(lab, "-R", "KUBE-MARK-MASQ", "1", "-j", "MARK", "--or-mark", "0x8000"),
    ask: ["check"],
    says: /iptables nat KUBE-MARK-MASQ: a rule is not as it should be\n {4}- .*0x0*4000\n {4}\+ .*0x8000/,
    packet: WORLD,
    fix: "repair",
  },
  {
    name: "the rule of a node port is removed",
    modes: ["iptables"],
    plant: async (lab) =>
      await nat(
        lab,
        "-D",
        "KUBE-NODEPORTS",
        await ruleOf(lab, "KUBE-NODEPORTS", /shop\/web.*--dport 30080 -j/),
      ),
    ask: ["check"],
    says: /Service shop\/web\n {2}iptables nat KUBE-NODEPORTS: a rule is missing\n {4}- .*--dport 30080/,
    packet: WORLD,
    fix: "repair",
  },
  {
    name: "somebody's rule in the chain of all Services",
    modes: ["iptables"],
    plant: (lab) => nat(lab, "-I", "KUBE-SERVICES", "1", "-d", "10.96.0.1/32", "-j", "RETURN"),
    ask: ["check"],
    says: /iptables nat KUBE-SERVICES: a rule that is not ours\n {4}\+ -d 10\.96\.0\.1\/32 -j RETURN/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "node ports are asked before cluster IPs",
    modes: ["iptables"],
    plant: async (lab) => {
      const rule = ["-m", "addrtype", "--dst-type", "LOCAL", "-j", "KUBE-NODEPORTS"];
      const comment = "kubernetes service nodeports; NOTE: this must be the last rule in this chain";
      const words = ["-m", "comment", "--comment", comment, ...rule];
      await nat(lab, "-D", "KUBE-SERVICES", ...words);
      await nat(lab, "-I", "KUBE-SERVICES", "1", ...words);
    },
    ask: ["check"],
    says:
      /Service shop\/web\n {2}iptables nat KUBE-SERVICES: rules stand behind others that take their packets/,
    fix: "repair",
  },
  {
    name: "a chain of a Service that is gone",
    modes: ["iptables"],
    plant: async (lab) => {
      await nat(lab, "-N", "KUBE-SEP-OLDOLDOLDOLDOLDO");
      const rule = ["-p", "tcp", "-m", "comment", "--comment", "shop/old:http"];
      await nat(
        lab,
        "-A",
        "KUBE-SEP-OLDOLDOLDOLDOLDO",
        ...rule,
        "-j",
        "DNAT",
        "--to-destination",
        "10.9.9.9:1",
      );
    },
    ask: ["check"],
    says:
      /Leftovers\n {2}iptables nat KUBE-SEP-OLD\S+: a chain of Service shop\/old, which nothing wants any more/,
    fix: "repair",
  },
  {
    name: "a whole table is flushed",
    modes: ["iptables"],
    plant: async (lab) => {
      // What others have in it is for them to put back.
      const others = (await nat(lab, "-S", "POSTROUTING")).split("\n").filter((line) =>
        /^-A.*172\.17/.test(line)
      );
      await nat(lab, "-F");
      for (const line of others) await nat(lab, ...line.split(" "));
    },
    ask: ["trace", "10.244.0.5@cni0", "10.96.0.1:80"],
    says: /Wrong: No packet is led to the rules of iptables mode \(chain KUBE-SERVICES of table nat/,
    packet: POD,
    fix: "repair",
  },
];

const MAP = "ip kproxy endpoints-tcp";

const NFTABLES: readonly PlantedFault[] = [
  {
    name: "the element of a cluster IP is removed",
    modes: ["nftables"],
    plant: (lab) => lab.nft("delete element ip kproxy service-ips { 10.96.0.1 . tcp . 80 }"),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}nftables ip kproxy service-ips: an element is missing\n {4}- 10\.96\.0\.1 \. tcp \. 80/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "an element leads to another Service's endpoint",
    modes: ["nftables"],
    plant: (lab) =>
      lab.nft(
        `delete element ${MAP} { 10.96.0.1 . 80 . 0 }\nadd element ${MAP} { 10.96.0.1 . 80 . 0 : 10.244.0.21 . 8080 }`,
      ),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}nftables ip kproxy endpoints-tcp: an element leads elsewhere\n.*\n {4}\+ .*10\.244\.0\.21 \. 8080/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "an endpoint's element is missing",
    modes: ["nftables"],
    plant: (lab) => lab.nft(`delete element ${MAP} { 10.96.0.1 . 80 . 1 }`),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}nftables ip kproxy endpoints-tcp: an element is missing\n {4}- 10\.96\.0\.1 \. 80 \. 1/,
    fix: "repair",
  },
  {
    name: "an element is too much",
    modes: ["nftables"],
    plant: (lab) => lab.nft(`add element ${MAP} { 10.96.0.1 . 80 . 7 : 10.244.0.21 . 8080 }`),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}nftables ip kproxy endpoints-tcp: an element is too much\n {4}\+ 10\.96\.0\.1 \. 80 \. 7/,
    fix: "repair",
  },
  {
    name: "the chain of all Services is flushed",
    modes: ["nftables"],
    plant: (lab) => lab.nft("flush chain ip kproxy services"),
    ask: ["check"],
    says: /Base chains and jumps\n {2}nftables ip kproxy services: the chain is empty/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "the table is deleted",
    modes: ["nftables"],
    plant: (lab) => lab.nft("delete table ip kproxy"),
    ask: ["trace", "10.244.0.5@cni0", "shop/web"],
    says: /Wrong: There are no rules of a service proxy/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "masquerading is flushed",
    modes: ["nftables"],
    plant: (lab) => lab.nft("flush chain ip kproxy masquerading"),
    ask: ["check"],
    says: /nftables ip kproxy masquerading: the chain is empty/,
    packet: WORLD,
    fix: "repair",
  },
  {
    name: "the mark for masquerading is changed",
    modes: ["nftables"],
    plant: (lab) =>
      lab.nft(
        "flush chain ip kproxy nodeport-masq-tcp-2\nadd rule ip kproxy nodeport-masq-tcp-2 meta mark set meta mark | 0x8000\n" +
          "add rule ip kproxy nodeport-masq-tcp-2 goto nodeport-tcp-2",
      ),
    ask: ["check"],
    says:
      /nftables ip kproxy nodeport-masq-tcp-2: a rule is not as it should be\n {4}- .*0x00004000.*\n {4}\+ .*0x00008000/,
    packet: WORLD,
    fix: "repair",
  },
  {
    name: "the element of a node port is removed",
    modes: ["nftables"],
    plant: (lab) => lab.nft("delete element ip kproxy service-nodeports { tcp . 30080 }"),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}nftables ip kproxy service-nodeports: an element is missing\n {4}- tcp \. 30080/,
    packet: WORLD,
    fix: "repair",
  },
  {
    name: "somebody's rule in the chain of all Services",
    modes: ["nftables"],
    plant: (lab) => lab.nft("insert rule ip kproxy services ip daddr 10.96.0.1 return"),
    ask: ["check"],
    says: /nftables ip kproxy services: a rule is too much\n {4}\+ ip daddr 10\.96\.0\.1 return/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "the chain that the kernel calls is removed",
    modes: ["nftables"],
    plant: (lab) => lab.nft("delete chain ip kproxy nat-prerouting"),
    ask: ["check"],
    says: /nftables ip kproxy nat-prerouting: the chain is gone/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "the chain that the kernel calls hangs elsewhere",
    modes: ["nftables"],
    plant: (lab) =>
      lab.nft(
        "delete chain ip kproxy nat-prerouting\n" +
          "add chain ip kproxy nat-prerouting { type nat hook output priority -99 ; }\n" +
          "add rule ip kproxy nat-prerouting jump services",
      ),
    ask: ["check"],
    says: /nftables ip kproxy nat-prerouting: the chain hangs elsewhere/,
    packet: POD,
    fix: "repair",
  },
  {
    name: "somebody's chain in the proxy's table drops",
    modes: ["nftables"],
    plant: (lab) =>
      lab.nft(
        "add chain ip kproxy intruder { type filter hook prerouting priority -150 ; }\n" +
          "add rule ip kproxy intruder ip daddr 10.96.0.1 drop",
      ),
    ask: ["check"],
    says: /nftables ip kproxy intruder: another program hooked a chain into our table/,
    packet: POD,
    fix: "repair",
  },
];

export const OWN_RULE_FAULTS: readonly PlantedFault[] = [...IPTABLES, ...NFTABLES];
