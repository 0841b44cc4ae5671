/**
 * Faults that others' rules are: they are named with their place, `check --repair` leaves them alone, and they go with what their
 * owner does or the answer says.
 *
 * @module
 */
import { BOTH, type PlantedFault } from "./fault.ts";
import { type FaultLab, NODE, POD, SOUND, WORLD } from "./fault_lab.ts";

/** A rule of iptables that is appended or put in front, and later taken away. */
function rule(action: "-A" | "-I", ...words: readonly string[]): Pick<PlantedFault, "plant" | "fix"> {
  const at = words.indexOf("-t") === 0 ? 2 : 0;
  const change = (action: string) => (lab: FaultLab): Promise<string> =>
    lab.iptables(...words.slice(0, at), action, ...words.slice(at));
  return { plant: change(action), fix: change("-D") };
}

/** A table of nftables with one chain. */
function table(
  name: string,
  base: string,
  ...rules: readonly string[]
): Pick<PlantedFault, "plant" | "fix"> {
  const lines = [`add table ${name}`, `add chain ${name} c { ${base} ; }`];
  return {
    plant: (lab) => lab.nft([...lines, ...rules.map((one) => `add rule ${name} c ${one}`)].join("\n")),
    fix: (lab) => lab.nft(`delete table ${name}`),
  };
}

const FROM_POD = ["trace", "10.244.0.5@cni0", "10.96.0.1:80"] as const;

const NOTRACK = ["-d", "-s"].map((side) => `PREROUTING ${side} 10.96.0.0/16 -j CT --notrack`);

const LEGACY = `
iptables-legacy -t nat -N KUBE-SERVICES
iptables-legacy -t nat -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination 10.244.0.21:8080
iptables-legacy -t nat -A PREROUTING -j KUBE-SERVICES`;

export const FOREIGN_RULE_FAULTS: readonly PlantedFault[] = [
  {
    name: "a firewall drops packets to endpoints",
    modes: BOTH,
    ...rule("-I", "FORWARD", "-d", "10.244.0.0/16", "-p", "tcp", "--dport", "8080", "-j", "DROP"),
    ask: FROM_POD,
    says:
      /Wrong: The packet is dropped by what is no service proxy's: table filter chain FORWARD rule 1: -d 10\.244\.0\.0\/16 /,
    packet: POD,
  },
  {
    name: "a firewall drops what leaves through the bridge of the pods",
    modes: BOTH,
    ...rule("-I", "FORWARD", "-o", "cni0", "-p", "tcp", "--dport", "8080", "-j", "DROP"),
    ask: ["trace", "198.51.100.9@eth0", "192.0.2.10:30080"],
    says:
      /Wrong: The packet is dropped by what is no service proxy's: table filter chain FORWARD rule 1: -o cni0 /,
    packet: WORLD,
  },
  {
    name: "a policy refuses one pod",
    modes: BOTH,
    ...rule("-I", "FORWARD", "-s", "10.244.0.5/32", "-j", "REJECT"),
    ask: FROM_POD,
    says:
      /Wrong: The packet is refused by what is no service proxy's: table filter chain FORWARD rule 1: -s 10\.244\.0\.5\/32 /,
    packet: POD,
  },
  {
    name: "the policy of FORWARD drops",
    modes: BOTH,
    plant: (lab) => lab.iptables("-P", "FORWARD", "DROP"),
    ask: FROM_POD,
    says:
      /Wrong: The packet is dropped by what is no service proxy's: table filter chain FORWARD: policy DROP/,
    packet: POD,
    fix: (lab) => lab.iptables("-P", "FORWARD", "ACCEPT"),
  },
  {
    name: "a rule at the end of FORWARD drops everything",
    modes: ["nftables"],
    ...rule("-A", "FORWARD", "-j", "DROP"),
    ask: ["doctor"],
    says:
      /warning +rules of others +a rule in IPv4 chain FORWARD drops everything that comes to it: -A FORWARD -j DROP\n +-> iptables -D FORWARD -j DROP/,
    code: 0,
    packet: POD,
  },
  {
    name: "a rule drops packets to the cluster IP in front",
    modes: BOTH,
    ...rule("-A", "-t", "raw", "PREROUTING", "-d", "10.96.0.1/32", "-j", "DROP"),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}table raw chain PREROUTING rule 1: a rule of others drops 10\.244\.0\.5@cni0 → 10\.96\.0\.1:80\/tcp before ours see it/,
    packet: POD,
  },
  {
    name: "a rule redirects packets to the cluster IP in front",
    modes: BOTH,
    ...rule(
      "-I",
      ...["-t", "nat", "PREROUTING", "-d", "10.96.0.1/32", "-p", "tcp", "--dport", "80"],
      ...["-j", "DNAT", "--to-destination", "10.244.0.21:8080"],
    ),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}table nat chain PREROUTING rule 1: a rule of others redirects 10\.244\.0\.5@cni0/,
    packet: POD,
  },
  {
    name: "a rule lets packets to the cluster IP pass untranslated",
    modes: ["iptables"],
    ...rule("-I", "-t", "nat", "PREROUTING", "-d", "10.96.0.1/32", "-j", "ACCEPT"),
    ask: ["check"],
    says: /Service shop\/web\n {2}table nat chain PREROUTING rule 1: a rule of others lets pass untranslated/,
    packet: POD,
  },
  {
    name: "a rule switches connection tracking off",
    modes: BOTH,
    // As such rules come: for both directions.
    plant: (lab) => lab.sh(NOTRACK.map((words) => `iptables -w 5 -t raw -A ${words}`).join("\n")),
    fix: (lab) => lab.sh(NOTRACK.map((words) => `iptables -w 5 -t raw -D ${words}`).join("\n")),
    ask: FROM_POD,
    says:
      /Wrong: No connection of the packet is tracked, .*: table raw chain PREROUTING rule 1: .*-j CT --notrack/,
    packet: POD,
  },
  {
    name: "a table of nftables switches connection tracking off for the node's own packets",
    modes: BOTH,
    ...table("ip fast", "type filter hook output priority -300", "ip daddr 10.96.0.1 notrack"),
    ask: ["trace", "local", "shop/web"],
    says:
      /Wrong: No connection of the packet is tracked, .*: table ip fast chain c rule 1: ip daddr 10\.96\.0\.1 notrack/,
    packet: NODE,
  },
  {
    name: "a table of nftables drops in front",
    modes: BOTH,
    ...table("ip early", "type filter hook prerouting priority -150", "ip daddr 10.96.0.1 drop"),
    ask: ["check"],
    says:
      /Service shop\/web\n {2}table ip early chain c rule 1: a rule of others drops .* before ours see it/,
    packet: POD,
  },
  {
    name: "a table of nftables drops what it does not accept",
    modes: BOTH,
    ...table(
      "inet fw",
      "type filter hook forward priority 0 ; policy drop",
      "ct state established,related accept",
    ),
    ask: FROM_POD,
    says: /Wrong: The packet is dropped by what is no service proxy's: table inet fw chain c: policy drop/,
    packet: POD,
  },
  {
    name: "a table of nftables drops what leaves through the bridge of the pods",
    modes: BOTH,
    ...table("inet fw", "type filter hook forward priority 0", 'oifname "cni0" tcp dport 8080 drop'),
    ask: FROM_POD,
    says:
      /dropped by what is no service proxy's: table inet fw chain c rule 1: oifname "cni0" tcp dport 8080 drop/,
    packet: POD,
  },
  {
    name: "a load balancer of somebody translates first",
    modes: BOTH,
    ...table(
      "ip lb",
      "type nat hook prerouting priority -110",
      "ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.0.21:8080",
    ),
    ask: FROM_POD,
    says:
      /Wrong: The packet is sent to 10\.244\.0\.21:8080 by what is no service proxy's: table ip lb chain c rule 1: /,
    packet: POD,
  },
  {
    name: "a load balancer of somebody hangs in front",
    modes: BOTH,
    ...table(
      "ip lb",
      "type nat hook output priority -110",
      "ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.0.21:8080",
    ),
    ask: ["doctor"],
    says:
      /warning +rules of others +ip lb c \(output, priority -110\) may translate a destination before kproxy does/,
    code: 0,
    packet: NODE,
  },
  {
    name: "the table of kube-proxy is there, too",
    modes: BOTH,
    plant: (lab) =>
      lab.nft(
        "add table ip kube-proxy\nadd chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }\n" +
          "add rule ip kube-proxy nat-prerouting ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.0.21:8080",
      ),
    ask: FROM_POD,
    says:
      /Wrong: Rules of several service proxies are in force: .*kube-proxy \(nftables: table ip kube-proxy\)/,
    packet: POD,
    // Of chains with one priority the kernel asks the newest first; the age of iptables' is unknown.
    really: "10.244.0.21:8080, masquerade no",
    fix: (lab) => lab.clean("--only=nftables", "--of=kube-proxy"),
  },
  {
    name: "the legacy variant holds rules of a proxy beside those in nft",
    modes: ["iptables"],
    plant: (lab) => lab.sh(LEGACY),
    ask: ["doctor"],
    says:
      /warning +iptables variant +a service proxy left rules in the legacy variant \(IPv4\): packets walk through both/,
    code: 0,
    packet: POD,
    really: SOUND[POD] ?? "",
    fix: (lab) => lab.clean("--only=iptables"),
  },
  {
    name: "rules of iptables mode are left beside those of nftables mode",
    modes: ["nftables"],
    plant: (lab) => lab.sh(LEGACY),
    ask: ["check"],
    says:
      /Leftovers\n {2}chain KUBE-SERVICES of table nat \(iptables legacy\): rules of iptables mode are in force, too: kproxy cleanup --only=iptables removes them/,
    packet: POD,
    really: SOUND[POD] ?? "",
    fix: (lab) => lab.clean("--only=iptables"),
  },
];
