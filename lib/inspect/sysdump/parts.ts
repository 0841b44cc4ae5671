/**
 * What a dump consists of.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { writeConfigYaml } from "../../config/write.ts";
import type { Exec } from "../../kernel/exec.ts";
import { localHost, splitHostPort } from "../../model/ip.ts";
import { CONFIG_PATH, OBJECTS_PATH, STATUS_PATH } from "../../serve/status/status_document.ts";
import { pagePart, type Part, programPart, textPart } from "./part.ts";

export interface SysdumpInput {
  readonly exec: Exec;
  /** In force by the flags and the file. */
  readonly config: KubeProxyConfiguration;
  /** What this program is, line by line. */
  readonly versions: readonly string[];
}

/** Settings that decide about packets. No pattern of them covers `stable_secret`. */
const SETTINGS =
  "^net\\.(netfilter\\.nf_(conntrack|flowtable|hooks)[a-z_0-9]*|nf_conntrack_max|ipv4\\.vs\\.[a-z_0-9]+|ipv4\\.ip_(forward|local_port_range|local_reserved_ports|nonlocal_bind)" +
  "|ipv4\\.icmp_ratelimit|ipv[46]\\.conf\\..+\\.(forwarding|rp_filter|route_localnet|accept_local|arp_ignore|arp_announce|disable_ipv6|src_valid_mark)" +
  "|bridge\\.bridge-nf-call-[a-z0-9]+|core\\.(devconf_inherit_init_net|bpf_jit_harden))$";

const SAVES = [
  "iptables-save",
  "ip6tables-save",
  "iptables-nft-save",
  "ip6tables-nft-save",
  "iptables-legacy-save",
  "ip6tables-legacy-save",
];

/** Each kind of what `ip` knows. */
const NETWORK: readonly (readonly [name: string, args: string])[] = [
  ["addresses", "-details address"],
  ["links", "-details -statistics link"],
  ["routes-ipv4", "-4 route show table all"],
  ["routes-ipv6", "-6 route show table all"],
  ["rules-ipv4", "-4 rule"],
  ["rules-ipv6", "-6 rule"],
  ["neighbours", "neighbour"],
];

const TOOL_VERSIONS: readonly (readonly [name: string, argv: string])[] = [
  ["iptables", "iptables --version"],
  ["ip6tables", "ip6tables --version"],
  ["iptables-nft", "iptables-nft --version"],
  ["iptables-legacy", "iptables-legacy --version"],
  ["nft", "nft --version"],
  ["ipvsadm", "ipvsadm --version"],
  ["ipset", "ipset version"],
  ["ip", "ip -Version"],
  ["conntrack", "conntrack --version"],
  ["sysctl", "sysctl --version"],
];

/** All parts, in the order of the list. */
export function sysdumpParts({ exec, config, versions }: SysdumpInput): readonly Part[] {
  const program = (name: string, argv: string): Part => programPart(name, argv.split(" "), exec);
  return [
    textPart("versions/kproxy.txt", "kproxy itself", () => versions.map((line) => `${line}\n`).join("")),
    textPart("configuration/effective.yaml", "flags and --config", () => writeConfigYaml(config)),
    ...runningParts(config),
    ...SAVES.map((save) => program(`rules/${save}.txt`, `${save} -c`)),
    program("rules/nft-ruleset.txt", "nft list ruleset"),
    program("rules/ipvsadm.txt", "ipvsadm -Sn"),
    program("rules/ipset.txt", "ipset save"),
    ...NETWORK.map(([name, args]) => program(`network/${name}.json`, `ip -json ${args}`)),
    programPart("network/settings.txt", ["sysctl", "-a", "-r", SETTINGS], exec),
    program("network/conntrack-count.txt", "conntrack -C"),
    program("network/conntrack-statistics.txt", "conntrack -S"),
    ...TOOL_VERSIONS.map(([name, argv]) => program(`versions/${name}.txt`, argv)),
  ];
}

const SOCKET_PAGES: readonly (readonly [name: string, path: string])[] = [
  ["status.json", STATUS_PATH],
  ["configuration.json", CONFIG_PATH],
  ["objects.json", OBJECTS_PATH],
];
const METRICS_PAGES: readonly (readonly [name: string, path: string])[] = [
  ["metrics.txt", "/metrics"],
  ["proxy-mode.txt", "/proxyMode"],
  ["configz.json", "/configz"],
  ["flagz.txt", "/flagz"],
  ["statusz.txt", "/statusz"],
];
const HEALTH_PAGES: readonly (readonly [name: string, path: string])[] = [
  ["healthz.json", "/healthz"],
  ["livez.json", "/livez"],
  ["readyz.json", "/readyz"],
];

/** What the kproxy, or the kube-proxy, that runs here tells of itself. */
function runningParts(
  { metricsBindAddress, healthzBindAddress, kproxy: { socket } }: KubeProxyConfiguration,
): readonly Part[] {
  const told = socket === ""
    ? []
    : SOCKET_PAGES.map(([name, path]) => pagePart(`running/${name}`, { socket, path }));
  const pagesAt = (address: string, pages: readonly (readonly [string, string])[]): readonly Part[] => {
    if (address === "") return [];
    const [bound, port] = splitHostPort(address);
    const host = localHost(bound);
    return pages.map(([name, path]) => pagePart(`running/${name}`, { host, port, path }));
  };
  return [
    ...told,
    ...pagesAt(metricsBindAddress, METRICS_PAGES),
    ...pagesAt(healthzBindAddress, HEALTH_PAGES),
  ];
}
