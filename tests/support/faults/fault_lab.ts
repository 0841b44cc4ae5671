/**
 * A node with Services, foreign rules, and packets that arrive: where faults are planted.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { AUDITED, inTime, type Run } from "../../cli/kproxy.ts";
import type { ApiJson } from "../../flows/objects.ts";
import { service, slice } from "../../flows/objects.ts";
import { LabFlowCase } from "../lab_flow.ts";
import { LabManifests } from "../lab_manifests.ts";
import type { Netns } from "../netns.ts";
import { NetnsCli } from "../netns_cli.ts";
import { NODE_OBJECT, NodeLab } from "../node_lab.ts";
import { DEFAULT_OPTIONS } from "../../flows/flow_case.ts";
import type { FaultMode } from "./fault.ts";

/** Packets of the lab's clients, and how they fare where nothing is wrong. */
export const POD = "10.244.0.5@cni0 → 10.96.0.1:80";
export const NODE = "192.0.2.10@node → 10.96.0.1:80";
export const WORLD = "198.51.100.9@eth0 → 192.0.2.10:30080";
export const BALANCED = "198.51.100.9@eth0 → 203.0.113.20:80";
export const OTHER_LINK = "198.51.100.9@eth1 → 192.168.7.10:30080";
export const LOOPBACK = "127.0.0.1@node → 127.0.0.1:30080";
const WEB = "10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2)";
export const SOUND: Readonly<Record<string, string>> = {
  [POD]: `${WEB}, masquerade no`,
  [NODE]: `${WEB}, masquerade yes`,
  [WORLD]: `${WEB}, masquerade yes`,
  [BALANCED]: "10.244.0.21:8080, masquerade yes",
  [OTHER_LINK]: `${WEB}, masquerade yes`,
  [LOOPBACK]: `${WEB}, masquerade yes`,
};

/** Beside `shop/web`, whose endpoints are the first two pods, a Service with an address of a load balancer. */
export const WEB_ENDPOINTS = ["10.244.0.11@node-a", "10.244.0.12@node-a"];
export function webService(more: Partial<Parameters<typeof service>[1]> = {}): ApiJson {
  return service("shop/web", {
    type: "NodePort",
    clusterIP: "10.96.0.1",
    ports: ["http:80:30080"],
    ...more,
  });
}
export function balancedService(more: Partial<Parameters<typeof service>[1]> = {}): ApiJson {
  return service("shop/api", {
    type: "LoadBalancer",
    clusterIP: "10.96.0.2",
    ports: ["http:80:30081"],
    ingress: [{ ip: "203.0.113.20" }],
    ...more,
  });
}
const API_SLICE = slice("shop/api.1", ["http:8080"], ["10.244.0.21@node-a"]);

/** Rules, sets and settings of others on the node: they are as they were, whatever kproxy fixes. */
const OTHERS = `
iptables -w 5 -N FIREWALL; iptables -w 5 -A INPUT -j FIREWALL
iptables -w 5 -A FIREWALL -s 203.0.113.99 -j DROP
iptables -w 5 -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables -w 5 -t raw -A OUTPUT -d 203.0.113.95 -j DROP
iptables-legacy -w 5 -t nat -A POSTROUTING -s 203.0.113.96 -j RETURN
iptables -w 5 -t mangle -A PREROUTING -d 203.0.113.98 -j MARK --set-xmark 0x7/0xff
ip6tables -w 5 -A INPUT -s 2001:db8::99 -j DROP
nft 'add table inet guard; add chain inet guard in { type filter hook input priority 10; }; add rule inet guard in ip saddr 203.0.113.97 drop'
sysctl -q -w net.ipv4.conf.all.log_martians=0`;
/** What is there, of whomever: rules, whose order counts, and what has none. */
const RULES = "iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; nft list ruleset";
const NETWORK = `
ip -d -o link; ip -o address; ip route show table all; ip -6 route show table all; ip rule
cd /proc/sys/net; for name in forwarding rp_filter disable_ipv6 log_martians; do grep -s . ipv4/ip_forward ipv[46]/conf/*/$name; done`;

/** The lab; disposing of it removes it. */
export class FaultLab implements AsyncDisposable {
  /** Where an API server answers; null: there is none. */
  api: string | null = null;

  private constructor(
    readonly mode: FaultMode,
    readonly lab: NodeLab,
    readonly manifests: LabManifests,
    readonly cli: NetnsCli,
  ) {}

  static async create(mode: FaultMode): Promise<FaultLab> {
    const lab = await NodeLab.create();
    const manifests = await LabManifests.create();
    const cli = await NetnsCli.start(lab.node.netns);
    const one = new FaultLab(mode, lab, manifests, cli);
    try {
      await one.sh(OTHERS);
      await one.restore();
      // Hosts, and the routes to them, are made when they are needed first.
      for (const [packet, fares] of Object.entries(SOUND)) {
        if (mode === "nftables" && (packet === LOOPBACK || packet === OTHER_LINK)) continue;
        assertEquals(await one.send(packet, fares), [], packet);
      }
      return one;
    } catch (error) {
      await one[Symbol.asyncDispose]();
      throw error;
    }
  }

  get netns(): Netns {
    return this.lab.node.netns;
  }

  /** Commands on the node, one a line. */
  async sh(script: string): Promise<string> {
    return await this.netns.run(["sh", "-e", "-c", script]);
  }

  /** Adds to, or takes from, the tables of iptables. */
  async iptables(...args: readonly string[]): Promise<string> {
    return await this.netns.run(["iptables", "-w", "5", ...args]);
  }

  async nft(text: string): Promise<string> {
    return await this.netns.run(["nft", "-f", "-"], { stdin: `${text}\n` });
  }

  /** The chain of iptables with such a beginning whose rules name `shop/web`. */
  async chain(prefix: string): Promise<string> {
    const saved = await this.netns.run(["iptables-save", "-t", "nat"]);
    const chain = new RegExp(`^-A (${prefix}\\S+) .*shop/web`, "m").exec(saved)?.[1];
    assert(chain !== undefined, saved);
    return chain;
  }

  /** The lab's kproxy, with the flags that every command has; a flag given again takes its place. */
  async kproxy(command: string, args: readonly string[], flags: readonly string[] = []): Promise<Run> {
    const usual = [
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
      `--proxy-mode=${this.mode}`,
      `--manifests=${this.manifests.folder}`,
    ];
    const given = new Set(flags.map((flag) => flag.split("=")[0]));
    if (given.has("--master")) given.add("--manifests");
    const kept = usual.filter((flag) => !given.has(flag.split("=")[0] ?? ""));
    const run = () => this.cli.run([command, ...args, ...kept, ...flags]);
    return await (command === "doctor" ? inTime(run) : run());
  }

  /** The objects as they are at first, with some in the place of others, and the rules that a proxy makes of them. */
  async serve(
    {
      node = NODE_OBJECT,
      web = webService(),
      endpoints = WEB_ENDPOINTS,
      balanced = balancedService(),
      flags = [],
    }: {
      readonly node?: ApiJson;
      readonly web?: ApiJson;
      readonly endpoints?: readonly string[];
      readonly balanced?: ApiJson;
      readonly flags?: readonly string[];
    } = {},
  ): Promise<void> {
    await this.manifests.replace("node.json", [node]);
    await this.manifests.replace("web.json", [web, slice("shop/web.1", ["http:8080"], endpoints)]);
    await this.manifests.replace("api.json", [balanced, API_SLICE]);
    await this.repair(flags);
  }

  /** Writes the rules that the objects stand for. */
  async repair(flags: readonly string[] = []): Promise<void> {
    const { code, out, err } = await this.kproxy("check", ["--repair"], flags);
    // Where there was something to be written.
    // What a Service does not get is told of at each look; all else would be news.
    assertEquals(
      [code, err.replace(AUDITED, "").replaceAll(/^Warning: Service .* does not get it: .*\n/gm, "")],
      [0, ""],
      out,
    );
  }

  /** `kproxy cleanup` of what is not wanted; then the rules that are. */
  async clean(...args: readonly string[]): Promise<void> {
    const { code, out, err } = await this.cli.run(["cleanup", ...args]);
    assertEquals(code, 0, out + err);
    await this.repair();
  }

  /** An API server that knows the lab's Node. */
  async serveApi({ denied }: { readonly denied: readonly string[] }): Promise<void> {
    this.api = await this.cli.serveApi({ objects: [NODE_OBJECT], denied });
  }

  async endApi(): Promise<void> {
    await this.cli.endApi();
    this.api = null;
  }

  /** All objects and rules as at first. */
  async restore(): Promise<void> {
    await this.serve();
  }

  /** What is there and is not the proxy's, without what only counts. */
  async others(): Promise<string> {
    const [rules, network] = await Promise.all(
      [RULES, NETWORK].map((script) => this.netns.run(["sh", "-c", script])),
    );
    const isOwnTable = /^table ip6? kproxy \{[^]*?^\}$/gm;
    // What iptables keeps in nftables was told by iptables itself.
    const isIptables = /^table ip6? (?:filter|nat|mangle|raw|security) \{[^]*?^\}$/gm;
    const lines = (rules ?? "").replace(isOwnTable, "").replace(isIptables, "").split("\n")
      .filter((line) => !/KUBE-|^#|^$/.test(line))
      .map((line) => line.replace(/\[\d+:\d+\]|packets \d+ bytes \d+/g, ""));
    // Neighbours come and go, and so does what the kernel says of a link's life.
    const others = (network ?? "").split("\n").map((line) =>
      line.replace(/ (?:valid_lft|preferred_lft|expires) \S+|gc_timer +\S+|\w+_timer +\S+/g, "")
    ).sort();
    return [...lines, ...others].join("\n");
  }

  /** Sends the packet, really, as often as it takes to see all that may become of it; yields what is not as told. */
  async send(packet: string, fares: string): Promise<readonly string[]> {
    const servers = ["10.244.0.11", "10.244.0.12", "10.244.0.21", "10.244.1.13"];
    const flowCase = {
      name: packet,
      guards: [],
      objects: [slice("shop/all.1", ["http:8080"], servers)],
      options: DEFAULT_OPTIONS,
      flows: [`${packet} ⇒ ${fares}`],
    };
    return await new LabFlowCase(this.lab, flowCase, { mode: this.mode }).run(() => undefined);
  }

  /** What `kproxy trace -o json` printed last: to look up what it predicted. */
  lastTrace = "";

  /** What `kproxy trace` says of the packet by the rules that are there. */
  async predict(packet: string): Promise<string> {
    const [from = "", to = ""] = packet.split(" → ");
    const { out, err } = await this.kproxy("trace", [from, to, "-o=json", "--no-desired"]);
    assert(out !== "", err);
    this.lastTrace = out;
    return JSON.parse(out).live.end;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cli[Symbol.dispose]();
    await this.lab[Symbol.asyncDispose]();
    await this.manifests[Symbol.asyncDispose]();
  }
}
